"""Secrets that can be recognised only by their context."""

import base64
from collections.abc import Callable

from benchmarks.redaction.draw import BASE32, BASE64, HEX, UPPER, URL64, WORD, Draw
from benchmarks.redaction.tokens import Token

NAMES = (
    "DB_PASSWORD",
    "API_KEY",
    "SECRET_KEY",
    "AUTH_TOKEN",
    "POSTGRES_PASSWORD",
    "CLIENT_SECRET",
    "JWT_SECRET",
    "ENCRYPTION_KEY",
    "REDIS_PASSWORD",
    "ACCESS_TOKEN",
    "SMTP_PASSWORD",
    "SESSION_SECRET",
    "MYSQL_ROOT_PASSWORD",
    "SIGNING_KEY",
    "ADMIN_PASSWORD",
    "WEBHOOK_SECRET",
    "DJANGO_SECRET_KEY",
    "REFRESH_TOKEN",
    "MAIL_PASS",
    "PRIVATE_TOKEN",
    "SERVICE_PASSWD",
    "DD_API_KEY",
    "RAILS_MASTER_KEY",
    "CLOUDFLARE_API_TOKEN",
    "APP_SECRET",
    "NEXTAUTH_SECRET",
    "KEYSTORE_PASSWORD",
    "VAULT_TOKEN",
    "DEEPSEEK_API_KEY",
    "MISTRAL_API_KEY",
)


def _value(draw: Draw, name: str) -> str:
    """A value that suits such a name."""
    if "PASS" in name:
        return draw.password()
    return draw.rng.choice(
        (draw.some(HEX, 32), draw.some(HEX, 64), draw.some(WORD, 32, 48), draw.some(URL64, 40), draw.base64(33))
    )


def _named(*templates: str, lower: bool = False, camel: bool = False) -> Callable[[Draw], Token]:
    """A setting with the name `{n}` and the value `{v}`."""

    def make(draw: Draw) -> Token:
        name = draw.of(NAMES)
        value = _value(draw, name)
        if lower or camel:
            name = name.lower()
        if camel:
            first, *rest = name.split("_")
            name = first + "".join(word.capitalize() for word in rest)
        host = f"{draw.rng.choice(('web', 'db', 'api'))}-{draw.number(1, 9)}"
        return draw.of(templates).replace("{n}", name).replace("{v}", value).replace("{h}", host), (value,)

    return make


def _password(*templates: str) -> Callable[[Draw], Token]:
    """A template with a password `{v}`, a user `{u}` and a host `{h}`."""

    def make(draw: Draw) -> Token:
        value = draw.password()
        user = draw.rng.choice(("app", "admin", "root", "svc_deploy", "jane", "postgres"))
        host = draw.rng.choice(("db.internal", "10.0.3.17", "prod-1.example.com", "localhost"))
        return draw.of(templates).replace("{v}", value).replace("{u}", user).replace("{h}", host), (value,)

    return make


def _opaque(*templates: str, alphabet: str = URL64, count: int = 32, to: int = 64) -> Callable[[Draw], Token]:
    def make(draw: Draw) -> Token:
        value = draw.some(alphabet, count, to)
        return draw.of(templates).replace("{v}", value), (value,)

    return make


def _encoded(*templates: str) -> Callable[[Draw], Token]:
    """A user and password in base64, as in Kubernetes and basic authentication."""

    def make(draw: Draw) -> Token:
        value = base64.b64encode(f"{draw.rng.choice(('admin', 'app', 'bot'))}:{draw.password()}".encode()).decode()
        return draw.of(templates).replace("{v}", value), (value,)

    return make


def _pem(*labels: str, columns: int = 64, lines: int = 12) -> Callable[[Draw], Token]:
    """A private key; every line of it is secret except the last, which may be short."""

    def make(draw: Draw) -> Token:
        label = draw.rng.choice(labels)
        body = [draw.some(BASE64, columns) for _ in range(draw.number(3, lines))]
        text = "\n".join((f"-----BEGIN {label}-----", *body, draw.some(BASE64, 30) + "==", f"-----END {label}-----"))
        before = draw.of(("", "$ cat ~/.ssh/id\n", "key: |\n", "the old key:\n\n", "ssl_key = '''\n", "1: "))
        return before + text, tuple(body)

    return make


def _service_account(draw: Draw) -> Token:
    key_id = draw.some(HEX, 40)
    body = [draw.some(BASE64, 64) for _ in range(draw.number(4, 12))]
    key = "\\n".join(("-----BEGIN PRIVATE " + "KEY-----", *body, "-----END PRIVATE " + "KEY-----", ""))
    return (
        f'{{"type": "service_account", "project_id": "demo-{draw.number(1, 999)}", "private_key_id": "{key_id}", '
        f'"private_key": "{key}", "client_email": "bot@demo.iam.gserviceaccount.com"}}',
        tuple(body),
    )


def _aws_pair(draw: Draw) -> Token:
    key, secret = draw.some(BASE32, 16), draw.some(BASE64, 40)
    text = draw.of(
        (
            f"[default]\naws_access_key_id = AKIA{key}\naws_secret_access_key = {secret}",
            f"AWS_ACCESS_KEY_ID=AKIA{key}\nAWS_SECRET_ACCESS_KEY={secret}",
            f'{{"AccessKeyId": "AKIA{key}", "SecretAccessKey": "{secret}"}}',
            f"export AWS_SECRET_ACCESS_KEY='{secret}'",
            f"boto3.client('s3', aws_access_key_id='AKIA{key}', aws_secret_access_key='{secret}')",
            f"secretAccessKey: {secret}",
        )
    )
    return text, tuple(one for one in (key, secret) if one in text)


P = "pass" + "word"

SETTINGS: dict[str, Callable[[Draw], Token]] = {
    "aws secret key": _aws_pair,
    "aws session token": _opaque(
        "AWS_SESSION_TOKEN={v}",
        "aws_session_token = {v}",
        '"SessionToken": "{v}"',
        "export AWS_SESSION_TOKEN='{v}'",
        alphabet=BASE64,
        count=200,
        to=360,
    ),
    "azure storage": _opaque(
        "DefaultEndpointsProtocol=https;AccountName=demo;AccountKey={v}==;EndpointSuffix=core.windows.net",
        'conn = "AccountName=demo;AccountKey={v}=="',
        "AccountKey={v}==",
        "az storage blob list --account-key {v}==",
        alphabet=BASE64,
        count=86,
        to=86,
    ),
    "signed url": _opaque(
        "https://demo.blob.core.windows.net/c/f?sv=2024-11-04&se=2026-12-01&sr=b&sp=r&sig={v}%3D",
        "https://b.s3.amazonaws.com/k?X-Amz-Date=20261101T000000Z&X-Amz-Expires=900&X-Amz-Signature={v}",
        "GET /o/file?GoogleAccessId=bot@demo.iam.gserviceaccount.com&Expires=1790000000&Signature={v}",
        "SharedAccessSignature sr=hub.azure-devices.net&sig={v}&se=1790000000",
        alphabet=HEX,
        count=64,
        to=64,
    ),
    "pem rsa": _pem("RSA PRIVATE KEY"),
    "pem pkcs8": _pem("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"),
    "pem ec, dsa": _pem("EC PRIVATE KEY", "DSA PRIVATE KEY", lines=4),
    "pem openssh": _pem("OPENSSH PRIVATE KEY", columns=70),
    "pgp": _pem("PGP PRIVATE KEY BLOCK"),
    "service account": _service_account,
    "basic auth in a url": _password(
        "git clone https://{u}:{v}@{h}/team/repo.git",
        "fatal: unable to access 'https://{u}:{v}@{h}/x.git/'",
        "http://{u}:{v}@{h}:8080/health",
        "proxy = http://{u}:{v}@{h}:3128",
        "pip install --index-url https://{u}:{v}@{h}/simple x",
        "origin\thttps://{u}:{v}@{h}/a/b (fetch)",
    ),
    "token in a url": _opaque(
        "https://api.example.com/v1/me?access_token={v}&limit=10",
        "GET /data?api_key={v} HTTP/1.1",
        "wss://stream.example.com/?token={v}",
        "https://example.com/hook?secret={v}",
        "/callback?code=ok&auth_token={v}#top",
        "https://maps.example.com/tile?apikey={v}&z=3",
    ),
    "connection string": _password(
        "postgresql://{u}:{v}@{h}:5432/app",
        "DATABASE_URL=postgres://{u}:{v}@{h}/app?sslmode=require",
        "mongodb+srv://{u}:{v}@{h}/test?retryWrites=true",
        "redis://:{v}@{h}:6379/0",
        "mysql+pymysql://{u}:{v}@{h}/shop",
        "amqp://{u}:{v}@{h}:5672/%2f",
        "create_engine('postgresql+asyncpg://{u}:{v}@{h}/app')",
        "BROKER=amqps://{u}:{v}@{h}//",
    ),
    "connection settings": _password(
        "Server={h};Database=app;User Id={u};Password={v};Encrypt=true",
        "jdbc:mysql://{h}/app?user={u}&password={v}",
        "host={h} port=5432 user={u} password={v} dbname=app",
        "Data Source={h};Initial Catalog=app;User ID={u};Pwd={v};",
        "jdbc:sqlserver://{h};user={u};password={v};",
        "dsn: host={h} user={u} password='{v}'",
    ),
    "authorization bearer": _opaque(
        "Authorization: Bearer {v}",
        '-H "Authorization: Bearer {v}"',
        "headers={'Authorization': 'Bearer {v}'}",
        '"authorization": "Bearer {v}"',
        "> authorization: bearer {v}",
        "Proxy-Authorization: Bearer {v}",
        '{"Authorization":"Token {v}"}',
        "Authorization: token {v}",
    ),
    "authorization basic": _encoded(
        "Authorization: Basic {v}",
        "-H 'Authorization: Basic {v}'",
        '"Authorization": "Basic {v}"',
        "authorization: basic {v}",
    ),
    "api key header": _opaque(
        "X-API-Key: {v}",
        "-H 'x-api-key: {v}'",
        '"X-Auth-Token": "{v}"',
        "api-key: {v}",
        "X-Vault-Token: {v}",
        "PRIVATE-TOKEN: {v}",
        '"Ocp-Apim-Subscription-Key": "{v}"',
        "x-goog-api-key: {v}",
    ),
    "cookie": _opaque(
        "Cookie: theme=dark; sessionid={v}",
        "Set-Cookie: session={v}; Path=/; HttpOnly",
        "curl -b 'session_token={v}' https://example.com",
        "set-cookie: connect.sid=s%3A{v}; Path=/",
        "cookie: PHPSESSID={v}",
        '"Cookie": "auth={v}; lang=en"',
        "Cookie: JSESSIONID={v}; a=b",
        "Set-Cookie: __Host-token={v}; Secure",
    ),
    ".env": _named(
        "{n}={v}",
        'export {n}="{v}"',
        "{n}='{v}'",
        "{n} = {v}",
        "set {n}={v}",
        "DEBUG=1\n{n}={v}\nPORT=8080",
        '$env:{n} = "{v}"',
        "{n}: {v}",
    ),
    "yaml": _named(
        "services:\n  web:\n    environment:\n      {n}: {v}",
        "    - {n}={v}",
        'auth:\n  {n}: "{v}"',
        "  {n}: '{v}'  # prod",
        "- name: {n}\n  value: {v}",
        'env:\n  - name: {n}\n    value: "{v}"',
        "  {n}: !unsafe {v}",
        "{n}: >-\n  {v}",
        lower=False,
    ),
    "yaml, lower case": _named("{n}: {v}", "  {n}: '{v}'", 'db:\n  {n}: "{v}"\n  port: 1', "- {n}: {v}", lower=True),
    "json": _named(
        '{"{n}": "{v}", "port": 1}',
        '"{n}":"{v}"',
        '  "{n}" : "{v}",',
        '{"env":{"{n}":"{v}"}}',
        '{"name": "{n}", "value": "{v}"}',
        '{\n  "{n}": "{v}"\n}',
        lower=True,
    ),
    "json, camel case": _named(
        '{"{n}": "{v}"}', '"{n}":"{v}",', '{"auth": {"{n}": "{v}"}}', '{ {n}: "{v}" }', camel=True
    ),
    "toml, ini": _named(
        '[auth]\n{n} = "{v}"',
        "{n} = '{v}'",
        "[db]\n{n}={v}",
        '{n}="{v}" # prod',
        "[client]\n{n}: {v}",
        '{n} = """{v}"""',
        lower=True,
    ),
    "properties, xml": _named(
        "spring.datasource.{n}={v}",
        '<add key="{n}" value="{v}" />',
        "<{n}>{v}</{n}>",
        "app.{n}: {v}",
        '<property name="{n}">{v}</property>',
        "quarkus.{n} = {v}",
        lower=True,
    ),
    "shell": _named(
        "{n}={v} ./deploy.sh",
        "$ export {n}={v} && make",
        'readonly {n}="{v}"',
        "env {n}={v} python app.py",
        "+ {n}={v}",
        'declare -x {n}="{v}"',
        "heroku config:set {n}={v} -a demo",
        "setenv {n} {v}",
    ),
    "docker, kubernetes": _named(
        "docker run -e {n}={v} -p 80:80 demo",
        "ENV {n}={v}",
        "ARG {n}={v}",
        "kubectl create secret generic s --from-literal={n}={v}",
        "helm upgrade demo . --set {n}={v}",
        "docker run --env {n}='{v}' demo",
        "ENV {n} {v}",
        'gh secret set {n} --body "{v}"',
    ),
    "kubernetes secret": _encoded(
        "kind: Secret\ndata:\n  password: {v}",
        "apiVersion: v1\nkind: Secret\ntype: Opaque\ndata:\n  token: {v}",
        '{"kind":"Secret","data":{"password":"{v}"}}',
        '{"auths":{"ghcr.io":{"auth":"{v}"}}}',
    ),
    "code": _named(
        '{n} = "{v}"',
        "const {n} = '{v}';",
        '{n} := "{v}"',
        'private static final String {n} = "{v}";',
        'os.environ["{n}"] = "{v}"',
        "define('{n}', '{v}');",
        "Client({n}='{v}', timeout=3)",
        'let {n}: &str = "{v}";',
        "{n}: str = '{v}'",
        'config.{n} = "{v}"',
        lower=True,
    ),
    "command line flag": _password(
        f"tool login --{P} {{v}} --user {{u}}",
        "redis-cli -a {v} ping",
        "curl -u {u}:{v} https://{h}/",
        "sshpass -p {v} ssh {u}@{h}",
        "mysql -u {u} -p{v} app",
        "docker login -u {u} -p {v} {h}",
        f"--{P}={{v}}",
        "PGPASSWORD={v} psql -h {h} -U {u}",
        "curl --user '{u}:{v}' https://{h}/",
        "smbclient //{h}/x -U {u}%{v}",
    ),
    "file of credentials": _password(
        f"machine {{h}} login {{u}} {P} {{v}}",
        "{h}:5432:app:{u}:{v}",
        f"[pypi]\nusername = {{u}}\n{P} = {{v}}",
        f"machine {{h}}\n  login {{u}}\n  {P} {{v}}",
        "https://{u}:{v}@{h}",
        f"username={{u}}\n{P}={{v}}",
    ),
    "registry token": _opaque(
        "//registry.npmjs.org/:_authToken={v}",
        "_authToken={v}",
        "npm config set //npm.example.com/:_authToken {v}",
        "_auth={v}",
        'npmAuthToken: "{v}"',
        '[registry]\ntoken = "{v}"',
    ),
    "totp seed": _opaque(
        "otpauth://totp/demo:me?secret={v}&issuer=demo",
        "TOTP_SECRET={v}",
        "totp secret: {v}",
        '"otp_secret": "{v}"',
        alphabet=BASE32,
        count=32,
        to=32,
    ),
    "password in prose": _password(
        "The password is {v}, please change it later.",
        "log in as {u} with password {v}",
        "my password: {v}",
        "use {u} / {v} to log in",
        "I set the root password to {v} on {h}",
        "credentials: {u} / {v}",
        "password for {u} is `{v}`",
        "Passwort: {v}",
        'the passphrase is "{v}"',
        "pw: {v}",
        "temporary password = {v}",
        "mot de passe : {v}",
    ),
    "key in prose": _opaque(
        "my api key is {v}",
        "the secret key is {v}, rotate it",
        "API key: {v}",
        "here is the token: {v}",
        "token = {v}",
        "use this access token {v} for now",
        "Your API key is `{v}`",
        "client secret: {v}",
    ),
    "device code": _opaque(
        '{"access_token":"{v}","token_type":"bearer","expires_in":3600}',
        '"refresh_token": "{v}"',
        '{"id_token": "{v}"}',
        '{"token": "{v}", "user": {"id": 3}}',
        "access_token={v}&scope=repo&token_type=bearer",
        '{"apiKey":"{v}"}',
        '{"client_id":"demo","client_secret":"{v}"}',
        "refreshToken: '{v}'",
    ),
    "license and hex keys": _opaque(
        "DATADOG_API_KEY={v}",
        "datadog.api_key: {v}",
        'encryption_key = "{v}"',
        "AES_KEY={v}",
        "twilio auth_token: {v}",
        "hmac_secret={v}",
        alphabet=HEX,
        count=32,
        to=32,
    ),
    "upper-case keys": _opaque(
        "ALGOLIA_ADMIN_KEY={v}",
        "recovery key: {v}",
        'backup_key="{v}"',
        "LICENSE_KEY={v}",
        alphabet=UPPER + "23456789",
        count=25,
        to=32,
    ),
}
