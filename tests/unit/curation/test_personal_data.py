"""Personal data goes where `[redaction] personal` asks for it, and nothing that looks like it."""

import re
from collections.abc import Iterator

import pytest

from apollod.curation import redaction
from apollod.curation.redaction import iban, luhn
from benchmarks.redaction.measure import count
from benchmarks.redaction.personal import sample


@pytest.fixture
def personal() -> Iterator[None]:
    redaction.use(personal=True)
    yield
    redaction.use(personal=False)


def masked(text: str) -> str:
    return re.sub(r" [0-9a-f]{4}\]", "]", redaction.redact_text(text))


TEXT = "Jo <jo.doe@web.de>, +49 30 2345678, DE89 3704 0044 0532 0130 00, 4716 1234 5678 9012"


def test_it_is_off_by_default() -> None:
    assert redaction.redact(TEXT.encode()) == (TEXT.encode(), {})


@pytest.mark.usefixtures("personal")
def test_each_kind_has_its_placeholder_the_same_for_the_same_address() -> None:
    assert masked(TEXT) == "Jo <[redacted email]>, [redacted phone], [redacted iban], [redacted payment-card]"
    one, other, again = redaction.redact_text("a.b@web.de, c.d@web.de and a.b@web.de").replace(" and", ",").split(", ")
    assert one == again != other
    assert redaction.redact_text(once := redaction.redact_text(TEXT)) == once


@pytest.mark.usefixtures("personal")
def test_a_credential_is_still_what_it_was() -> None:
    key = "ghp_" + "aB3dE5fG7h" * 3 + "q1W2e3"
    assert masked(f"{key} of jo@web.de") == "[redacted github-pat] of [redacted email]"
    assert masked("postgres://jo:s3cr3tPassw0rd@db.corp.io/x") == "postgres://jo:[redacted secret]@db.corp.io/x"


@pytest.mark.usefixtures("personal")
@pytest.mark.parametrize(
    "text",
    [
        "git@github.com:a/b.git", "ssh://git@host.com/a", "https://jo@bitbucket.org/a/b.git",
        "scp x jo@web.corp.com:/srv",
        "icon@2x.png", "@app.get('/x')", "@types/node@20.1.0", "getty@tty1.service", "jo@example.com", "a@b.invalid",
        "Claude <noreply@anthropic.com>", "2026-11-23 10:11:12", "1700000000000", "+1700000000", "12.345.678,90",
        "16a00bc4-0064-4633-a72d-d26b141f4e94", "00 01 02 03 04 05 06 07", "phone: null", "call 9999 times",
        "DE89 3704 0044 0532 0130 01", "4716 1234 5678 9010", "4242 4242 4242 4242", "id 4716123456789012",
        "10.0.19041.1", "415-555-0123",
    ],
)  # fmt: skip
def test_what_looks_like_it_stays(text: str) -> None:
    assert redaction.redact_text(text) == text


def test_checksums_are_those_of_the_standards() -> None:
    assert luhn(b"79927398713") and not luhn(b"79927398710")
    assert luhn(b"3782 822463 10005") and not luhn(b"3782 822463 10006")
    assert iban(b"GB82 WEST 1234 5698 7654 32") and not iban(b"GB83 WEST 1234 5698 7654 32")


@pytest.mark.usefixtures("personal")
def test_the_half_that_nobody_looked_at() -> None:
    counted = count(sample(14, 1, each=20), redaction.redact)
    assert counted.recall.value > 0.85 and counted.precision.value > 0.93 and counted.specificity.value > 0.93
