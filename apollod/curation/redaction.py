"""Credentials become placeholders before anything of a log is kept: journal, quarantine, messages to people.

Works on the bytes of a record as they stand in the file, JSON escapes and all, so that there is one place for it. Known
shapes of keys come from detect-secrets (Apache-2.0), which is maintained, and from the table here, which has what that
one lacks; beside them a value of high entropy next to a telling name, and lines of `.env` files.

A placeholder says the kind and 16 bits of a hash: the same secret is the same placeholder everywhere, two different
ones are told apart in a conversation, and nobody can find out a password by trying.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from hashlib import blake2b
from itertools import repeat
from typing import Any, NamedTuple

from apollod.curation.sieve import Sieve

ENTROPY_MIN = 3.0  # bits a character, of a value beside a telling name
LENGTH_MIN = 12


class _Rule(NamedTuple):
    """A shape. `group`: of the pattern, which is the secret. `words`: one of them stands in every text in which the
    pattern can match, those without capitals in any case; looking for them is what most texts cost (`Sieve`)."""

    kind: str
    words: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    group: int = 0
    refused: Callable[[bytes], bool] | None = None
    """what matches and is no secret"""


def redact(data: bytes) -> tuple[bytes, Mapping[str, int]]:
    """The bytes with a placeholder for each secret, and how many of each kind were there."""
    sieve, of_words = _known()
    words = sieve.found(data)
    if not words:
        return data, _NONE
    counts = Counter[str]()
    for number in sorted({number for word in words for number in of_words[word]}):
        rule = _rules()[number]
        spans = [match.span(rule.group) for match in rule.pattern.finditer(data)]
        data, found = _without(rule.kind, data, spans, rule.refused)
        if found:
            counts[rule.kind] += found
    names = words.intersection(_NAMES)
    places = _places(names, data) if names else ()
    for kind, pattern, refused in _BESIDE_NAMES if names else ():
        spans = [match.span(1) for match in map(pattern.match, repeat(data), places) if match]
        data, found = _without(kind, data, spans, refused)
        if found:
            counts[kind] += found
            places = _places(names, data)
    return data, counts


def redact_text(text: str) -> str:
    """The text with a placeholder for each secret; what is no UTF-8, such as half a surrogate pair, becomes `?`."""
    return redact(text.encode("utf-8", "replace"))[0].decode()


_NONE: Mapping[str, int] = {}


def _without(
    kind: str, data: bytes, spans: Iterable[tuple[int, int]], refused: Callable[[bytes], bool] | None
) -> tuple[bytes, int]:
    pieces, at, found = list[bytes](), 0, 0
    for begin, end in spans:
        secret = data[begin:end]
        if begin < at or b"[redacted" in secret or (refused is not None and refused(secret)):
            continue
        pieces += [data[at:begin], placeholder(kind, secret)]
        at, found = end, found + 1
    return (b"".join([*pieces, data[at:]]), found) if found else (data, 0)


def _places(names: Iterable[bytes], data: bytes) -> list[int]:
    """Where these of `_NAMES` stand, in any case, in order."""
    lower, found = data.lower(), list[int]()
    for word in names:
        at = lower.find(word)
        while at >= 0:
            found.append(at)
            at = lower.find(word, at + 1)
    return sorted(found)


def placeholder(kind: str, secret: bytes) -> bytes:
    """What stands for a secret; it needs no escaping in JSON."""
    return b"[redacted %s %s]" % (kind.encode(), blake2b(secret, digest_size=2).hexdigest().encode())


def entropy(value: bytes) -> float:
    """Shannon entropy, bits a byte."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values()) if value else 0.0


# --- shapes -------------------------------------------------------------------------------------------------------

_DUMMIES = re.compile(
    rb"(?i)^(?:<.*|\$.*|\{.*|%.*|x{4,}.*|\*{3,}.*|\.{3,}|your[_-].*|my[_-].*|changeme.*|example.*|dummy.*|placeholder.*|"
    rb"none|null|true|false|undefined|test|password|secret|process\.env.*|os\.environ.*|.*_here)$"
)
_NAMES = (b"secret", b"token", b"pass", b"pwd", b"key", b"credential")
"""words in the names of secrets, at which the patterns of `_BESIDE_NAMES` begin"""


def _is_dummy(value: bytes) -> bool:
    return bool(_DUMMIES.match(value)) or len(set(value)) <= 3


def _is_plain(value: bytes) -> bool:
    """Words, paths, identifiers: what stands beside a telling name in code and prose."""
    return (
        _is_dummy(value)
        or value.startswith((b"~/", b"./", b"../"))
        or len(value) < LENGTH_MIN
        or entropy(value) < ENTROPY_MIN
        or not (re.search(rb"[0-9]", value) and re.search(rb"[A-Za-z]", value))
        or bool(re.fullmatch(rb"[a-z0-9]+(?:[._/-][a-z0-9]+)+|v?[0-9.]+|[a-z_]+[0-9]{0,4}", value))
    )


def _is_weak(value: bytes) -> bool:
    """No password either: those that people make are shorter than keys, and hold words."""
    return (
        _is_dummy(value)
        or value.startswith((b"~/", b"./", b"../", b"/", b"--"))
        or not (re.search(rb"[0-9]", value) and re.search(rb"[A-Za-z]", value))
        or bool(re.fullmatch(rb"[a-z0-9]+(?:[._/-][a-z0-9]+)+|v?[0-9.]+|[a-z_]+[0-9]{0,4}|%[0-9A-F]{2}.*", value))
    )


def _is_word(value: bytes) -> bool:
    """What stands for the credentials of a header."""
    return _is_dummy(value) or bool(re.fullmatch(rb"[A-Za-z]?[a-z._/-]+|[A-Z_]+", value))


def _shape(kind: str, words: bytes, pattern: bytes, flags: int = 0) -> _Rule:
    return _Rule(kind, tuple(words.split(b"|")), re.compile(pattern, flags))


def _inside(kind: str, words: bytes, pattern: bytes, refused: Callable[[bytes], bool]) -> _Rule:
    """A shape of which the first group is the secret."""
    return _Rule(kind, tuple(words.split(b"|")), re.compile(pattern), 1, refused)


_FIRST = rb"(?:(?<![A-Za-z0-9_])|(?<=\\[bfnrt])|(?<=\\u[0-9a-fA-F]{4}))"
"""where a word begins; after an escape of JSON, too, the last letter of which is none of the word"""

_SPECIFIC = (
    _shape(
        "private-key",
        b"PRIVATE KEY",
        rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
        rb".*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
        re.S,
    ),
    _shape("anthropic-key", b"sk-", rb"sk-ant-[A-Za-z0-9_-]{20,}"),
    _shape("openai-key", b"sk-", _FIRST + rb"sk-(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{32,}"),
    _shape("github-token", b"github_pat_", _FIRST + rb"github_pat_[A-Za-z0-9_]{22,}"),
    _shape("github-token", b"ghp_|gho_|ghu_|ghs_|ghr_", _FIRST + rb"gh[pousr]_[A-Za-z0-9]{36,}"),
    _shape("huggingface-token", b"hf_", _FIRST + rb"hf_[A-Za-z0-9]{30,}"),
    _shape("google-key", b"AIza", _FIRST + rb"AIza[0-9A-Za-z_-]{35}"),
    _shape("google-key", b"GOCSPX-|ya29.", _FIRST + rb"(?:GOCSPX-|ya29\.)[0-9A-Za-z_-]{20,}"),
    _shape("xai-key", b"xai-", _FIRST + rb"xai-[A-Za-z0-9]{40,}"),
    _shape("groq-key", b"gsk_", _FIRST + rb"gsk_[A-Za-z0-9]{40,}"),
    _shape("npm-token", b"npm_", _FIRST + rb"npm_[A-Za-z0-9]{36}"),
    _shape("digitalocean-token", b"_v1_", _FIRST + rb"do[opr]_v1_[a-f0-9]{64}"),
    _shape("shopify-token", b"shpat_|shpca_|shppa_|shpss_", _FIRST + rb"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _shape("age-key", b"AGE-SECRET-KEY-", rb"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    _shape("json-web-token", b"eyJ", rb"eyJ[A-Za-z0-9_-]{10,}={0,2}\.eyJ[A-Za-z0-9_-]{2,}={0,2}(?:\.[A-Za-z0-9_-]+)?"),
    _shape("stripe-access-key", b"k_live_|k_test_", _FIRST + rb"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _shape("stripe-access-key", b"whsec_", _FIRST + rb"whsec_[A-Za-z0-9+/=]{20,}"),
    _shape("slack-token", b"xapp-", _FIRST + rb"xapp-[0-9A-Za-z-]{40,}"),
    _shape("gitlab-token", b"glptt-|glcbt-|glimt-", _FIRST + rb"gl(?:ptt|cbt|imt)-[A-Za-z0-9_-]{20,}"),
    _shape("webhook", b"/webhooks/", rb"(?<=/api/webhooks/)[0-9]{15,22}/[A-Za-z0-9_-]{40,}"),
    _shape("azure-client-secret", b"Q~", rb"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"),
    _shape("azure-storage-key", b"account-key", rb"(?<=account-key )[A-Za-z0-9+/]{86}=="),
    _shape("vault-token", b"hvs.|hvb.", _FIRST + rb"hv[sb]\.[A-Za-z0-9_-]{24,}"),
    _shape("terraform-token", b".atlasv1.", rb"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{40,}"),
    _shape("databricks-token", b"dapi", _FIRST + rb"dapi[0-9a-f]{32}"),
    _shape("atlassian-token", b"ATATT3", _FIRST + rb"ATATT3[A-Za-z0-9_=-]{100,}"),
    _shape("doppler-token", b"dp.pt.", _FIRST + rb"dp\.pt\.[A-Za-z0-9]{40,}"),
    _shape(
        "mailchimp-key",
        b"|".join(b"-us%d" % n for n in range(1, 10)),
        rb"(?<![0-9a-f])[0-9a-f]{32}-us[0-9]{1,2}(?![0-9a-z])",
    ),
    _shape("mailgun-key", b"key-", _FIRST + rb"key-[0-9a-f]{32}(?![0-9a-z])"),
    _shape("twilio-key", b"SK", rb"SK(?<![A-Za-z0-9]SK)[0-9a-f]{32}(?![0-9A-Za-z])"),
    *(
        _shape(f"{vendor}-token", prefix, _FIRST + prefix + alphabet)
        for vendor, prefix, alphabet in (
            ("docker", b"dckr_pat_", rb"[A-Za-z0-9_-]{27}"),
            ("figma", b"figd_", rb"[A-Za-z0-9_-]{38,}"),
            ("grafana", b"glsa_", rb"[A-Za-z0-9]{32}_[0-9a-f]{8}"),
            ("grafana", b"glc_", rb"[A-Za-z0-9+/]{32,400}={0,2}"),
            ("linear", b"lin_api_", rb"[A-Za-z0-9]{40}"),
            ("new-relic", b"NRAK-", rb"[A-Z0-9]{27}"),
            ("notion", b"ntn_", rb"[A-Za-z0-9]{40,}"),
            ("perplexity", b"pplx-", rb"[A-Za-z0-9]{40,}"),
            ("planetscale", b"pscale_tkn_", rb"[A-Za-z0-9_.=-]{32,}"),
            ("postman", b"PMAK-", rb"[0-9a-f]{24}-[0-9a-f]{34}"),
            ("pulumi", b"pul-", rb"[0-9a-f]{40}"),
            ("replicate", b"r8_", rb"[A-Za-z0-9]{37}"),
            ("rubygems", b"rubygems_", rb"[0-9a-f]{48}"),
            ("sentry", b"sntryu_", rb"[0-9a-f]{64}"),
            ("sentry", b"sntrys_", rb"[A-Za-z0-9_+/=]{40,}"),
            ("supabase", b"sbp_", rb"[0-9a-f]{40}"),
        )
    ),
)
_GENERAL = (
    _inside("url-password", b"@", rb"://[^\s:/?#@\"'\\]{0,100}:([^\s:/?@\"'\\]{3,200})@", _is_dummy),
    _inside(
        "url-token",
        b"?|&",
        rb"(?i)[?&](?:access_token|auth_token|token|api_?key|key|sig|(?:x-amz-)?signature|auth|secret|password)"
        rb"=([A-Za-z0-9%._~+/-]{12,2000})",
        _is_plain,
    ),
    _inside(
        "bearer-token",
        b"bearer |basic ",
        rb"(?i)" + _FIRST + rb"(?:bearer|basic) ([A-Za-z0-9._~+/=-]{12,4000})",
        _is_plain,
    ),
    _inside(
        "bearer-token",
        b"authorization",
        rb"(?i)authorization\\{0,3}[\"']?\s{0,3}[:=]\s{0,3}\\{0,3}[\"']?(?:[a-z]{3,10} )?([A-Za-z0-9._~+/=-]{16,4000})",
        _is_word,
    ),
    _inside(
        "cookie",
        b"cookie",
        rb"(?i)\b(?:__host-|__secure-)?(?:[a-z]{1,12}[._-]?)?(?:sess|sid|auth|token)[a-z_]{0,12}=([A-Za-z0-9%._~+/-]{16,4000})",
        _is_plain,
    ),
    _inside(
        "command-password",
        b"sshpass|mysql|mariadb|docker login",
        rb"(?:sshpass|mysql(?:dump)?|mariadb|docker login)\b[^\n\\|;&]{0,100}? -p ?[\"']?([^\s\"'\\]{6,100})",
        _is_weak,
    ),
    _inside(
        "command-password",
        b"curl",
        rb"curl\b[^\n\\|;&]{0,200}? (?:-u|--user)[ =]?[\"']?[^\s:\"'\\]{1,60}:([^\s\"'\\]{3,200})",
        _is_dummy,
    ),
)

_NAME = rb"(?i:secret|token|pwd|(?<=api)[_-]?key|(?<=[_-])(?<!public.)key|(?<=(?:api|ess|ret) )key|credential)"
_PASSWORD = rb"(?i:passw|passphrase|passcode|pass(?=[\s_\"'\\:=])|pwd)"
_GOES_ON = rb"[\w-]{0,20}(?<!_id)"
_QUOTE = rb"\\{0,3}[\"'`]?"
_SEPARATOR = (
    _QUOTE + rb"(?:\s?:\s?(?:str|string|String|&str)(?=\s?=))?\s{0,3}(?:=>|:=|[:=>]|\bis\b|"
    # as lists of settings have it: {"name": NAME, "value": VALUE}, on one line or two, which may be numbered
    rb",?(?:[\s0-9+-]|\\{1,3}n|\xe2\x86\x92|\\{1,2}u2192){0,40}\\{0,3}[\"']?value\\{0,3}[\"']?\s?[:=])"
    rb"\s{0,3}(?:!\w{1,12}\s)?" + _QUOTE
)
_VALUE = rb"([A-Za-z0-9+/=_.~!@#$%^&*-]{8,4000}+)(?![\w(\[])"

_BESIDE_NAMES: tuple[tuple[str, re.Pattern[bytes], Callable[[bytes], bool]], ...] = (
    (  # NAME_KEY=value, as in .env files: the name is in capitals
        "env-value",
        re.compile(
            rb"(?:SECRET|TOKEN|PASS(?:W|PHRASE|_|(?==))|PWD|KEY|CREDENTIAL)[A-Z0-9_]{0,20}="
            rb"(?:\\{0,3}[\"'])?([^\s\"'\\,;]{6,4000})"
        ),
        lambda value: _is_dummy(value) or value.endswith((b"(", b")")),
    ),
    ("secret-value", re.compile(b"(?:%s|%s)" % (_NAME, _PASSWORD) + _GOES_ON + _SEPARATOR + _VALUE), _is_plain),
    ("password", re.compile(_PASSWORD + _GOES_ON + _SEPARATOR + _VALUE.replace(b"{8,", b"{6,")), _is_weak),
    (  # --api-key VALUE, password VALUE, ENV API_KEY VALUE
        "secret-value",
        re.compile(
            rb"(?:(?i:(?<=-)key|(?<=-)token|(?<=-)secret)|(?<=_auth)Token|(?:KEY|TOKEN|SECRET)[A-Z_]{0,20})\s"
            + _QUOTE
            + _VALUE
        ),
        _is_plain,
    ),
    (
        "password",
        re.compile(rb"(?i:passw(?:or)?d)(?:\s|\sfor\s[\w.@-]{1,40}\sis\s)" + _QUOTE + _VALUE),
        lambda value: _is_weak(value) or len(value) < 8,
    ),
)

# Detectors of detect-secrets whose shapes are of secrets alone, and a literal that is in each of their matches.
_THEIRS: dict[str, tuple[bytes, ...]] = {
    "AWSKeyDetector": (b"AKIA", b"ASIA", b"A3T"),
    "AzureStorageKeyDetector": (b"AccountKey=",),
    "GitLabTokenDetector": (b"glpat-", b"glrt-", b"gldt-", b"glft-", b"GR1348941"),
    "NpmDetector": (b"_authToken",),
    "PypiTokenDetector": (b"pypi-",),
    "SendGridDetector": (b"SG.",),
    "SlackDetector": (b"xox", b"hooks.slack.com"),
    "SquareOAuthDetector": (b"sq0csp-",),
    "TelegramBotTokenDetector": (b":AA",),
}


@cache
def _known() -> tuple[Sieve, Mapping[bytes, tuple[int, ...]]]:
    """What finds the words of all rules and the names of secrets, and the places of the rules of each word."""
    words = [word for rule in _rules() for word in rule.words]
    sieve = Sieve((*words, *_NAMES))
    return sieve, {
        word: tuple(place for place, rule in enumerate(_rules()) if word in rule.words) for word in (*words, *_NAMES)
    }


@cache
def _rules() -> tuple[_Rule, ...]:
    """Specific shapes first: what they find has a placeholder when the general ones look."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    theirs = []
    detectors: dict[str, Any] = get_mapping_from_secret_type_to_class()
    for detector in detectors.values():
        words = _THEIRS.get(detector.__name__)
        shapes: list[re.Pattern[str]] = detector.denylist if words else []
        for shape in shapes:
            if "aws." in shape.pattern:
                continue  # a value beside a name, which is found below
            compiled = re.compile(shape.pattern.encode(), shape.flags & ~re.UNICODE)
            theirs.append(_Rule(detector.secret_type.lower().replace(" ", "-"), words or (), compiled))
    return (*_SPECIFIC, *theirs, *_GENERAL)
