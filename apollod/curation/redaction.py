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
_NAMES = (b"secret", b"token", b"passw", b"pwd", b"key", b"credential")
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


def _shape(kind: str, words: bytes, pattern: bytes, flags: int = 0) -> _Rule:
    return _Rule(kind, tuple(words.split(b"|")), re.compile(pattern, flags))


def _inside(kind: str, words: bytes, pattern: bytes, refused: Callable[[bytes], bool]) -> _Rule:
    """A shape of which the first group is the secret."""
    return _Rule(kind, tuple(words.split(b"|")), re.compile(pattern), 1, refused)


_SPECIFIC = (
    _shape(
        "private-key",
        b"PRIVATE KEY",
        rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
        rb".*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
        re.S,
    ),
    _shape("anthropic-key", b"sk-", rb"sk-ant-[A-Za-z0-9_-]{20,}"),
    _shape("openai-key", b"sk-", rb"\bsk-(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{32,}"),
    _shape("github-token", b"github_pat_", rb"\bgithub_pat_[A-Za-z0-9_]{22,}"),
    _shape("github-token", b"ghp_|gho_|ghu_|ghs_|ghr_", rb"\bgh[pousr]_[A-Za-z0-9]{36,}"),
    _shape("huggingface-token", b"hf_", rb"\bhf_[A-Za-z0-9]{30,}"),
    _shape("google-key", b"AIza", rb"\bAIza[0-9A-Za-z_-]{35}"),
    _shape("google-key", b"GOCSPX-|ya29.", rb"\b(?:GOCSPX-|ya29\.)[0-9A-Za-z_-]{20,}"),
    _shape("xai-key", b"xai-", rb"\bxai-[A-Za-z0-9]{40,}"),
    _shape("groq-key", b"gsk_", rb"\bgsk_[A-Za-z0-9]{40,}"),
    _shape("npm-token", b"npm_", rb"\bnpm_[A-Za-z0-9]{36}"),
    _shape("digitalocean-token", b"_v1_", rb"\bdo[opr]_v1_[a-f0-9]{64}"),
    _shape("shopify-token", b"shpat_|shpca_|shppa_|shpss_", rb"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _shape("age-key", b"AGE-SECRET-KEY-", rb"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
)
_GENERAL = (
    _inside("url-password", b"@", rb"://[^\s:/?#@\"'\\]{0,100}:([^\s:/?#@\"'\\]{3,200})@", _is_dummy),
    _inside(
        "url-token",
        b"?|&",
        rb"(?i)[?&](?:access_token|token|api_?key|key|sig|signature|auth|secret|password)=([A-Za-z0-9%._~+/-]{12,200})",
        _is_plain,
    ),
    _inside("bearer-token", b"bearer |basic ", rb"(?i)\b(?:bearer|basic) ([A-Za-z0-9._~+/=-]{16,500})", _is_plain),
)

_BESIDE_NAMES: tuple[tuple[str, re.Pattern[bytes], Callable[[bytes], bool]], ...] = (
    (  # NAME_KEY=value, as in .env files: the name is in capitals
        "env-value",
        re.compile(rb"(?:SECRET|TOKEN|PASSW|PWD|KEY|CREDENTIAL)[A-Z0-9_]{0,20}=(?:\\{0,3}[\"'])?([^\s\"'\\,;]{6,200})"),
        lambda value: _is_dummy(value) or value.endswith((b"(", b")")),
    ),
    (
        "secret-value",
        re.compile(
            rb"(?i)(?:secret|token|passw|pwd|(?<=api)[_-]?key|(?<=[_-])key|credential)[\w-]{0,20}\\{0,3}[\"']?\s{0,3}(?:=>|[:=]|\bis\b)"
            rb"\s{0,3}\\{0,3}[\"']?([A-Za-z0-9+/=_.~!@#$%^&*-]{8,200})(?![\w(\[])"
        ),
        _is_plain,
    ),
)

# Detectors of detect-secrets whose shapes are of secrets alone, and a literal that is in each of their matches.
_THEIRS: dict[str, tuple[bytes, ...]] = {
    "AWSKeyDetector": (b"AKIA", b"ASIA", b"A3T"),
    "AzureStorageKeyDetector": (b"AccountKey=",),
    "GitLabTokenDetector": (b"glpat-", b"glrt-", b"gldt-", b"glft-", b"GR1348941"),
    "JwtTokenDetector": (b"eyJ",),
    "NpmDetector": (b"_authToken",),
    "PypiTokenDetector": (b"pypi-",),
    "SendGridDetector": (b"SG.",),
    "SlackDetector": (b"xox", b"hooks.slack.com"),
    "SquareOAuthDetector": (b"sq0csp-",),
    "StripeDetector": (b"k_live_",),
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
