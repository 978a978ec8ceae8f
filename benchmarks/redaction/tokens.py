"""Secrets recognised by their shape alone, as documented by their vendors. Prefixes are split in pieces, so that this
file itself does not seem to contain secrets."""

import base64
from collections.abc import Callable

from benchmarks.redaction.draw import BASE32, BASE64, DIGITS, HEX, LOWER, UPPER, URL64, WORD, Draw

Token = tuple[str, tuple[str, ...]]
"""a token, and its secret parts"""


def _random(prefix: str, alphabet: str, count: int, to: int = 0, suffix: str = "") -> Callable[[Draw], Token]:
    """A public prefix and random characters."""

    def make(draw: Draw) -> Token:
        secret = draw.some(alphabet, count, to)
        return prefix + secret + suffix, (secret,)

    return make


def _one_of(*ways: Callable[[Draw], Token]) -> Callable[[Draw], Token]:
    return lambda draw: draw.rng.choice(ways)(draw)


def _openai(draw: Draw) -> Token:
    a, b = draw.some(URL64, 74), draw.some(URL64, 74)
    kind = draw.rng.choice(("proj", "svcacct", "admin"))
    return f"sk-{kind}-{a}T3Blbk" + f"FJ{b}", (a, b)


def _openai_old(draw: Draw) -> Token:
    a, b = draw.some(WORD, 20), draw.some(WORD, 20)
    return f"sk-{a}T3Blbk" + f"FJ{b}", (a, b)


def _jwt(draw: Draw) -> Token:
    header = "ey" + "JhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"
    claims = f'{{"sub":"{draw.some(DIGITS, 10)}","name":"{draw.some(LOWER, 8)}","iat":{draw.number(1 << 30, 1 << 31)}}}'
    payload = base64.urlsafe_b64encode(claims.encode()).decode().rstrip("=")
    signature = draw.some(URL64, 43)
    return f"{header}.{payload}.{signature}", (payload[8:], signature)


def _sendgrid(draw: Draw) -> Token:
    a, b = draw.some(URL64, 22), draw.some(URL64, 43)
    return f"SG.{a}.{b}", (a, b)


def _github_fine(draw: Draw) -> Token:
    a, b = draw.some(WORD, 22), draw.some(WORD, 59)
    return "github_" + f"pat_{a}_{b}", (a, b)


def _slack(draw: Draw) -> Token:
    kind = draw.rng.choice("bpar")
    secret = draw.some(WORD, 24)
    return f"xox{kind}-{draw.some(DIGITS, 12)}-{draw.some(DIGITS, 13)}-{secret}", (secret,)


def _slack_app(draw: Draw) -> Token:
    secret = draw.some(HEX, 64)
    return "xa" + f"pp-1-A0{draw.some(UPPER + DIGITS, 9)}-{draw.some(DIGITS, 13)}-{secret}", (secret,)


def _slack_hook(draw: Draw) -> Token:
    secret = draw.some(WORD, 24)
    team, bot = draw.some(UPPER + DIGITS, 8), draw.some(UPPER + DIGITS, 10)
    return f"https://hooks.slack.com/services/T{team}/B{bot}/{secret}", (secret,)


def _discord(draw: Draw) -> Token:
    a, b = draw.some(URL64, 6), draw.some(URL64, 38)
    return f"{draw.rng.choice('MNO')}{draw.some(WORD, 25)}.{a}.{b}", (b,)


def _discord_hook(draw: Draw) -> Token:
    secret = draw.some(URL64, 68)
    return f"https://discord.com/api/webhooks/{draw.some(DIGITS, 18)}/{secret}", (secret,)


def _telegram(draw: Draw) -> Token:
    secret = "AA" + draw.some(URL64, 33)
    return f"{draw.number(10**9, 10**10 - 1)}:{secret}", (secret,)


def _azure_client(draw: Draw) -> Token:
    a, b = draw.some(WORD, 3), draw.some(WORD, 34)
    return f"{a}{draw.number(1, 9)}Q~{b}", (b,)


def _mailchimp(draw: Draw) -> Token:
    secret = draw.some(HEX, 32)
    return f"{secret}-us{draw.number(1, 21)}", (secret,)


def _terraform(draw: Draw) -> Token:
    a, b = draw.some(WORD, 14), draw.some(WORD, 67)
    return f"{a}.atlasv1.{b}", (b,)


TOKENS: dict[str, Callable[[Draw], Token]] = {
    "aws access key id": _one_of(_random("AKIA", BASE32, 16), _random("ASIA", BASE32, 16)),
    "google api key": _random("AIza", URL64, 35),
    "google oauth": _one_of(_random("GOCSPX-", URL64, 28), _random("ya29.a0", URL64, 160)),
    "azure client secret": _azure_client,
    "github": _one_of(*(_random(f"gh{letter}_", WORD, 36) for letter in "pousr")),
    "github fine-grained": _github_fine,
    "gitlab": _one_of(_random("glpat-", URL64, 20), _random("glptt-", HEX, 40), _random("glrt-", URL64, 20)),
    "slack": _one_of(_slack, _slack_app),
    "slack webhook": _slack_hook,
    "stripe": _one_of(_random("sk_live_", WORD, 24, 99), _random("rk_live_", WORD, 24), _random("sk_test_", WORD, 24)),
    "stripe webhook secret": _random("whsec_", WORD, 32),
    "openai": _one_of(_openai, _openai_old),
    "anthropic": _one_of(
        _random("sk-ant-api03-", URL64, 93, suffix="AA"), _random("sk-ant-oat01-", URL64, 93, suffix="AA")
    ),
    "hugging face": _random("hf_", LOWER + UPPER, 34),
    "npm": _random("npm_", WORD, 36),
    "pypi": _random("pypi-AgEIcHlwaS5vcmc", URL64, 130, 160),
    "openrouter": _random("sk-or-v1-", HEX, 64),
    "groq": _random("gsk_", WORD, 52),
    "xai": _random("xai-", WORD, 80),
    "replicate": _random("r8_", WORD, 37),
    "perplexity": _random("pplx-", WORD, 48),
    "sendgrid": _sendgrid,
    "twilio api key": _random("SK", HEX, 32),
    "discord bot": _discord,
    "discord webhook": _discord_hook,
    "telegram bot": _telegram,
    "jwt": _jwt,
    "hashicorp vault": _one_of(_random("hvs.", URL64, 90, 110), _random("hvb.", URL64, 140)),
    "terraform cloud": _terraform,
    "digitalocean": _one_of(_random("dop_v1_", HEX, 64), _random("doo_v1_", HEX, 64)),
    "databricks": _random("dapi", HEX, 32),
    "shopify": _one_of(_random("shpat_", HEX, 32), _random("shpss_", HEX, 32)),
    "linear": _random("lin_api_", WORD, 40),
    "notion": _random("ntn_", WORD, 46),
    "docker hub": _random("dckr_pat_", URL64, 27),
    "grafana": _one_of(_random("glsa_", WORD, 32, suffix="_1a2b3c4d"), _random("glc_ey", BASE64, 60, 90)),
    "sentry": _random("sntryu_", HEX, 64),
    "new relic": _random("NRAK-", UPPER + DIGITS, 27),
    "postman": _random("PMAK-", HEX, 24, suffix="-" + "0f" * 17),
    "figma": _random("figd_", URL64, 40),
    "mailchimp": _mailchimp,
    "mailgun": _random("key-", HEX, 32),
    "rubygems": _random("rubygems_", HEX, 48),
    "supabase": _random("sbp_", HEX, 40),
    "planetscale": _random("pscale_tkn_", URL64, 43),
    "pulumi": _random("pul-", HEX, 40),
    "doppler": _random("dp.pt.", WORD, 43),
    "atlassian": _random("ATATT3xFfGF0", URL64, 180, suffix="=" + "4F2A19BC"),
    "age": _random("AGE-SECRET-KEY-1", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
}

LINES = (
    "{}",
    "the key that works is {} (do not share it)",
    "Authorization: Bearer {}",
    "export TOKEN={}",
    "client = Client('{}')",
    "i put {} into the vault, is that right?",
    "curl -s -H 'X-Api-Key: {}' https://api.example.com/v1/me",
    "{} is what I copied from the dashboard.",
    "-    credential: {}",
    "error: 401 for key {}: revoked",
    "$ tool login --with {}",
    '"credentials": ["{}"],',
    "| production | {} | rotated 2026-02 |",
    "GET /v1/items?key={} HTTP/1.1",
    "got:{};expected:none",
    "<value>{}</value>",
)


def token_line(draw: Draw, make: Callable[[Draw], Token]) -> Token:
    """A token in a line of text."""
    token, secrets = make(draw)
    return draw.of(LINES).format(token), secrets
