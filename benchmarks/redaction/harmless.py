"""Texts that look like secrets and are none: redacting them would spoil examples."""

import uuid
from collections.abc import Callable
from itertools import pairwise

from benchmarks.redaction.draw import BASE64, DIGITS, HEX, LOWER, URL64, WORD, Draw

P, T = "pass" + "word", "tok" + "en"

IDENTIFIERS = ("user_password", "reset_token", "apiKeyField", "secretName", "token_bucket", "passwordHash", "csrfInput")


def _text(*ways: str) -> Callable[[Draw], str]:
    """One of these texts, with numbers, words and identifiers put in."""

    def make(draw: Draw) -> str:
        text = draw.of(ways)
        for mark, value in (
            ("{n}", str(draw.number(2, 99_999))),
            ("{i}", draw.rng.choice(IDENTIFIERS)),
            ("{w}", draw.some(LOWER, 5, 9)),
            ("{N}", draw.some(LOWER, 4, 8).upper()),
        ):
            text = text.replace(mark, value)
        return text

    return make


def _drawn(alphabet: str, count: int, *ways: str, to: int = 0) -> Callable[[Draw], str]:
    return lambda draw: (
        draw.of(ways).replace("{v}", draw.some(alphabet, count, to)).replace("{v2}", draw.some(alphabet, count, to))
    )


def _uuids(draw: Draw) -> str:
    value = str(uuid.UUID(int=draw.rng.getrandbits(128), version=4))
    return draw.of(
        (
            f'{{"uuid":"{value}","parentUuid":null}}',
            f"request id {value}",
            f"sessionId={value}",
            f"/jobs/{value}/log",
            f"DELETE FROM runs WHERE id = '{value}';",
            f'"tenant": "{value}"',
            f"trace {value} took 3 ms",
            f"id: {value}",
        )
    )


def _minified(draw: Draw) -> str:
    names = [draw.some(LOWER, 1, 2) for _ in range(40)]
    body = "".join(f"function {a}({b}){{return {b}.{a}[{draw.number(0, 99)}]?{a}:{b}}}" for a, b in pairwise(names))
    return f"!function(){{{body}}}();//# sourceMappingURL=app.{draw.some(HEX, 8)}.js.map"


def _public_pem(draw: Draw) -> str:
    label = draw.rng.choice(("CERTIFICATE", "PUBLIC KEY", "CERTIFICATE REQUEST"))
    lines = [draw.some(BASE64, 64) for _ in range(draw.number(3, 8))]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"))


HARMLESS: dict[str, Callable[[Draw], str]] = {
    "git sha": _drawn(
        HEX,
        40,
        "commit {v}",
        "HEAD is now at {v}",
        "index {v}..{v2} 100644",
        "git checkout {v}",
        "uses: actions/checkout@{v}",
        "parent {v}",
        '"sha": "{v}"',
        "rev = {v}",
    ),
    "short sha": _drawn(
        HEX, 7, "{v} fix the parser", "* {v} (HEAD -> main) docs", "Updating {v}..{v2}", "merge {v} into main"
    ),
    "uuid": _uuids,
    "sha256": _drawn(
        HEX,
        64,
        "sha256:{v}",
        "{v}  dist/app.tar.gz",
        "--hash=sha256:{v}",
        "digest: sha256:{v}",
        "FROM python@sha256:{v}",
        '"checksum": "{v}"',
        'checksum = "{v}"',
        "sha256sum: {v}",
    ),
    "md5": _drawn(
        HEX, 32, "{v}  file.iso", 'ETag: "{v}"', "md5={v}", "cache/{v}.bin", "fingerprint {v}", '"contentHash":"{v}"'
    ),
    "integrity": _drawn(
        BASE64,
        86,
        '"integrity": "sha512-{v}=="',
        "integrity sha512-{v}==",
        "resolution: {integrity: sha512-{v}==}",
        "h1:{v}=",
    ),
    "base64 image": lambda draw: draw.of(
        (
            '<img src="data:image/png;base64,{}">',
            "url(data:font/woff2;base64,{})",
            '{{"type":"base64","media_type":"image/png","data":"{}"}}',
            "data:image/svg+xml;base64,{}",
        )
    ).format("iVBORw0KGgo" + draw.base64(draw.number(120, 600))),
    "placeholder": _text(
        "API_KEY=YOUR_API_KEY",
        "OPENAI_API_KEY=sk-...",
        f"{P}: <your {P}>",
        "export GITHUB_TOKEN=<token>",
        "api_key = 'your-api-key-here'",
        f"{P.upper()}=changeme",
        "SECRET_KEY=xxxxxxxxxxxxxxxx",
        "Authorization: Bearer <TOKEN>",
        "Authorization: Bearer YOUR_TOKEN",
        'client_secret: "REPLACE_ME"',
        "token: ****************",
        "DB_PASSWORD=",
    ),
    "reference": _text(
        "token: ${{ secrets.GITHUB_TOKEN }}",
        f"{P}: ${{DB_PASSWORD}}",
        'api_key = os.environ["OPENAI_API_KEY"]',
        "const key = process.env.API_KEY",
        f"{P} = var.db_{P}",
        "PGPASSWORD=$PGPASSWORD psql",
        "secretKeyRef: {name: db-{w}, key: " + P + "}",
        f'"{P}": "{{{{ vault_db_{P} }}}}"',
        'curl -H "Authorization: Bearer $TOKEN" https://example.com',
        "api_key=settings.{w}_api_key",
        f"{P}=config.get('db_{P}')",
        "token = get_secret('{w}/token')",
    ),
    "code": _text(
        f"def check_{P}(self, {P}: str) -> bool:",
        f"if not verify({P}, user.{P}_hash):",
        f"{P}_field = forms.CharField(widget=forms.PasswordInput)",
        f"this.{P} = {P};",
        f"{T} = request.headers.get('X-Auth-Token')",
        f"const {T} = await getToken(user);",
        f"secret = hashlib.sha256({P}.encode()).hexdigest()",
        f"assert response.json()['{T}'] == expected_{T}",
        f"func NewClient(apiKey string, {P} string) *Client {{",
        f"{P}: Optional[str] = None",
        "self._{i} = {i}",
        f"raise ValueError('{P} must have at least 8 characters')",
        f"type Props = {{ {T}: string; secret?: string }}",
        "const { api_key: apiKey, secret } = options;",
        "{i} = make_{i}(size={n})",
        "private_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)",
    ),
    "test of code": _text(
        f"tests/test_auth.py::test_{P}_reset_{{w}} PASSED",
        f"FAILED tests/test_{T}s.py::TestTokens::test_expired_{T}",
        f"it('rejects an empty {P}', () => {{",
        "--- FAIL: TestAPIKeyRotation (0.{n}s)",
        "ok   example.com/auth/secretstore  {n}ms",
        f"describe('{T} refresh flow', () => {{",
    ),
    "token counts": _text(
        "input_tokens: {n}",
        '"usage":{"input_tokens":{n},"output_tokens":{n},"cache_read_input_tokens":{n}}',
        "max_tokens={n}",
        "total tokens: {n}",
        "{n} tokens/s, {n} tokens in all",
        "context_tokens = {n}",
        "tokensUsed: {n}",
        "prompt_token_count={n}",
        f"{T}_budget: {{n}}",
        f"{T}s per second: {{n}}.5",
    ),
    "tokenizer": _text(
        '{"id": {n}, "content": "<|im_end|>", "special": true}',
        'pad_token: "<|endoftext|>"',
        'eos_token = "</s>"',
        "tokenizer: cl100k_base",
        '"bos_token": "<|begin_of_text|>"',
        "token_type: bearer",
        '"token_type":"Bearer","expires_in":{n}',
        "tokenizer_class = Qwen2TokenizerFast",
    ),
    "request ids": _drawn(
        WORD,
        24,
        '"id":"msg_01{v}"',
        "req_01{v}",
        '"tool_use_id":"toolu_01{v}"',
        "chatcmpl-{v}",
        '{"id": "call_{v}"}',
        "x-request-id: {v}",
        '"requestId":"req_01{v}"',
        "resp_{v}",
        "thread_{v}",
        "run_{v} finished",
    ),
    "opaque ids": _drawn(
        URL64,
        22,
        "https://www.youtube.com/watch?v={v}",
        "https://docs.google.com/document/d/{v}/edit",
        "/static/chunks/{v}.js",
        'class="css-{v}"',
        "blob/{v}/README.md",
        "Last-Event-ID: {v}",
        '"cursor":"{v}"',
        "s3://bucket/prefix/{v}/part-0",
    ),
    "minified": _minified,
    "colours": _drawn(
        HEX,
        6,
        "color: #{v};",
        "background: linear-gradient(#{v}, #{v2})",
        "--accent: #{v};",
        '"theme": {"primary": "#{v}"}',
    ),
    "paths": _text(
        "/home/me/projects/{w}/src/auth/password_reset/handlers.py",
        "node_modules/@types/{w}/lib/esm/tokenizer/index.d.ts",
        "~/.ssh/id_ed25519.pub",
        "/etc/ssl/private/{w}.key",
        "C:\\\\Users\\\\me\\\\AppData\\\\Local\\\\{w}\\\\secrets.json",
        "reading /run/secrets/db_{w}",
        "open('/var/lib/{w}/token.json')",
        "secrets/{w}.yaml: 12 lines",
    ),
    "model names": _text(
        "claude-sonnet-4-5-20250929",
        "model: gpt-4o-2024-08-06",
        "Qwen/Qwen3-0.6B-Instruct-2507-GPTQ-Int4",
        "meta-llama/Llama-3.3-70B-Instruct",
        "text-embedding-3-large",
        "mistralai/Mixtral-8x22B-Instruct-v0.1",
        "sk-learn-{w} and hf_transfer {n}",
        "unsloth/DeepSeek-R1-Distill-Qwen-32B-bnb-4bit",
    ),
    "public keys": _drawn(
        BASE64,
        68,
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA{v} me@host",
        "github.com ssh-rsa AAAAB3NzaC1yc2EAAAA{v}",
        "public_key: AAAAB3NzaC1yc2E{v}",
        "pubkey={v}",
    ),
    "public pem": _public_pem,
    "fingerprints": _drawn(
        BASE64,
        43,
        "SHA256:{v} me@host (ED25519)",
        "ED25519 key fingerprint is SHA256:{v}.",
        'pin-sha256="{v}="',
        "script-src 'sha256-{v}='",
    ),
    "prose": _text(
        f"Reset your {P} from the settings page.",
        f"The {P} is stored as a hash and never logged.",
        f"Is the {T} still valid? It expired at noon.",
        f"A {P} must have 12 characters, one of them a digit.",
        "The secret of good bread is time.",
        f"I rotated the {T}; nobody knows the old one.",
        f"Remember that the {P} is never sent in clear text.",
        "api keys are in the vault, ask {w}",
        f"The {T} was refused because its audience is wrong.",
        f"Please enter your {P} and press return.",
        f"the {P} is wrong",
        f"Your {P} is incorrect. Try again in {{n}} seconds.",
    ),
    "documents": _text(
        f"{P}: string, required",
        f"| `{T}` | string | the {T} of the session |",
        f"{T}: The access {T} for the API.",
        f"--{P} TEXT  the {P} of the user",
        f"@param {P} plain text",
        f'"{P}": {{"type": "string", "minLength": 8}}',
        f"  {T} (str): Bearer {T}.",
        "api_key: str | None = None  # read from the environment",
        "usage: tool [--api-key API_KEY] [--secret SECRET]",
        "apiKey - the key that the dashboard shows",
    ),
    "schema": _text(
        f"{P} VARCHAR(255) NOT NULL,",
        f"ALTER TABLE users ADD COLUMN reset_{T} TEXT;",
        f"SELECT id, {P}_hash FROM users;",
        f"{T} = models.CharField(max_length=64, unique=True)",
        "PRIMARY KEY (user_id, session_key)",
        f"optional string {T} = {{n}};",
        f"required: [user, {P}]",
        f"CREATE INDEX idx_{T} ON sessions ({T});",
    ),
    "translations": _text(
        f'"{P}": "Passwort"',
        f'"{P}.forgot": "Mot de passe oublié ?"',
        f'placeholder="Enter {P}"',
        f"label.{P} = Kennwort",
        f'<label for="{P}">Contraseña</label>',
        f"{P}Label: 'New {P}'",
    ),
    "names of secrets": _text(
        "secretName: {w}-tls-credentials",
        "kubectl get secret {w}-registry-credentials",
        "existingSecret: {w}-postgresql",
        "arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/{w}-AbCdEf",
        "imagePullSecrets: [{name: {w}-pull}]",
        "secret_id = 'projects/{w}/secrets/{w}/versions/latest'",
        "vault kv get secret/{w}/prod",
        "key_name: {w}-deploy-2026",
    ),
    "other keys": _text(
        'key="user_settings_{w}"',
        "sort_key = lambda item: item.{w}",
        "cache_key: {w}:{n}:{w}",
        "primary_key=True",
        "KeyError: '{w}_{w}'",
        "keyboard: us-intl",
        "foreign_key='{w}.id'",
        "partition_key = '/{w}/{w}'",
        "key: {w}-${{ runner.os }}-${{ hashFiles('**/package-lock.json') }}",
        "hotkey = ctrl+shift+{n}",
    ),
    "booleans": _text(
        f"{P}: null",
        f"{T} = None",
        f"use_{T}: true",
        f"has_{P}=False",
        f"require_{P} = yes",
        f"{P}_length: 16",
        f"{T}_ttl: {{n}}",
        "secret: false",
        f"{P}_attempts={{n}}",
        "api_key_required: true",
    ),
    "urls": _text(
        "https://example.com/auth/reset-password?user={n}&lang=en",
        "git@github.com:team/{w}.git",
        "https://{w}@dev.example.com/team/_git/x",
        "ssh://git@git.example.com:2222/team/{w}.git",
        "postgres://localhost:5432/{w}",
        "http://user@example.com:8080/",
        "redis://cache-{n}:6379/0",
        "https://example.com/docs/api-keys#rotate-{w}-token",
    ),
    "addresses": _text(
        "mail {w}.{w}@example.com",
        "2001:db8:85a3::8a2e:370:7334",
        "ether 02:42:ac:11:00:02",
        "eui64 021122fffe334455",
        "tel +49 30 901820-{n}",
        "IBAN DE02120300000000202051",
    ),
    "numbers": _text(
        "loss 2.{n} at step {n}",
        "1790000000{n}",
        "0x7fff5fbff{n}",
        "0.123456789012345678{n}",
        "x = [0.1827364554, -0.9182736455, {n}]",
        "[{n}, {n}, {n}, {n}]",
    ),
    "stack trace": _text(
        '  File "/usr/lib/python3.12/site-packages/django/contrib/auth/tokens.py", line {n}, in make_token',
        "\tat com.example.auth.PasswordEncoder.matches(PasswordEncoder.java:{n})",
        "    at TokenService.verify (/app/dist/token.service.js:{n}:17)",
        "goroutine {n} [running]:\nmain.loadSecrets(0xc0000b2000, 0x2a)",
        f"KeyError: '{P}'",
        f"TypeError: login() missing 1 required argument: '{P}'",
    ),
    "lock files": lambda draw: draw.of(
        (
            'resolved "https://registry.yarnpkg.com/x/-/x-1.2.3.tgz#{}"',
            "go.sum: example.com/x v1.2.3/go.mod h1:{}=",
            'checksum = "{}"',
            '"shasum": "{}"',
        )
    ).format(draw.some(HEX, 40)),
    "versions": _text(
        "torch==2.6.0+cu124",
        "linux-image-6.8.0-{n}-generic",
        "cpython-312-x86_64-linux-gnu.so",
        "rustc 1.83.0 (90b35a623 2024-11-26)",
        "vllm-0.11.{n}.dev1+g0123abcd.d20261101",
        "buildkit-v0.17.{n}",
    ),
    "encoded text": lambda draw: draw.of(
        (
            "echo {} | base64 -d",
            "Content-Transfer-Encoding: base64\n\n{}",
            '{{"body":"{}","isBase64Encoded":true}}',
            "cursor={}",
            'filename="=?UTF-8?B?{}?="',
            "thinking signature {}",
        )
    ).format(draw.base64(draw.number(20, 90))),
    "signatures of thought": _drawn(
        BASE64,
        300,
        '{"type":"thinking","thinking":"so","signature":"{v}"}',
        '"encrypted_content":"{v}"',
        '"thought_signature": "{v}"',
        '"signature":"{v}=="',
    ),
    "digits": lambda draw: draw.of(("order {}", "epoch_ns={}", "pid {}", '"at_ns": {}', "bytes: {}", "zip {}")).format(
        draw.some(DIGITS, 16)
    ),
    "css and html": _text(
        f'<input type="{P}" name="{P}" id="id_{P}" autocomplete="current-{P}">',
        f".{P}-field__toggle--visible {{ display: none }}",
        f"#login-{P}:focus-visible {{ outline: 0 }}",
        '<meta name="csrf-param" content="authenticity_token">',
        "<svg viewBox='0 0 24 24'><path d='M12 2a5 5 0 0 0-5 5v3H6'/></svg>",
        f"aria-label='show {P}'",
    ),
    "settings of kinds": _text(
        f"auth: {T}",
        f"auth_method = {P}",
        "credential_helper = osxkeychain",
        "credentials: include",
        "secret_backend: vault",
        "api_key_header: X-Api-Key",
        "PasswordAuthentication no",
        f"PermitRootLogin without-{P}",
        "pwd: /home/me/work/{w}",
        "PWD=/srv/{w}/releases/{n}",
        "passwd: files systemd",
        "secrets: inherit",
        f"{T}_endpoint: https://auth.example.com/oauth/{T}",
        "key_algorithm: ed25519",
    ),
}
