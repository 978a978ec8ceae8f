"""The labelled sample of redaction, and what is counted over it."""

import pytest

from apollod.curation.redaction import redact
from benchmarks.redaction.draw import Sample
from benchmarks.redaction.measure import Share, count, taken_out
from benchmarks.redaction.sample import sample


def test_the_sample_is_large_varied_and_the_same_for_a_seed() -> None:
    seen, held_out = list(sample(14, 0)), list(sample(14, 1))
    for half in (seen, held_out):
        assert sum(bool(one.secrets) for one in half) >= 300
        assert len({one.kind for one in half if one.secrets}) >= 25
        assert sum(not one.secrets for one in half) >= 300
    assert seen == list(sample(14, 0))
    assert not {one.text for one in seen} & {one.text for one in held_out}


def test_every_secret_stands_in_its_text_as_it_is_labelled() -> None:
    assert all(secret in one.text for half in (0, 1) for one in sample(14, half) for secret in one.secrets)


def test_a_secret_counts_as_found_only_if_no_eight_characters_of_it_are_left() -> None:
    one = Sample("k", "its name: abcdefghijklmnop, and so on", ("abcdefghijklmnop",))

    def without(taken: bytes) -> tuple[bool, int, int]:
        counted = count([one], lambda data: (data.replace(taken, b"[redacted k 00]"), {}))
        return counted.found["k"][0], counted.right, counted.wrong

    assert without(b"abcdefghijklmnop") == (True, 1, 0)
    assert without(b"abcdefghij") == (True, 1, 0), "six are left"
    assert without(b"abcdefgh") == (False, 1, 0), "eight are left"
    assert without(b"and so on") == (False, 0, 1)
    assert without(b"nothing of it") == (False, 0, 0)


def test_a_harmless_text_counts_as_kept_only_if_nothing_of_it_changed() -> None:
    counted = count([Sample("k", "a"), Sample("k", "b")], lambda data: (data.replace(b"b", b"[redacted k 00]"), {}))
    assert counted.kept == {"k": [True, False]} and counted.precision == Share(0, 1)


def test_what_was_taken_out_is_told_from_what_is_left() -> None:
    assert taken_out(b"a one b two c", b"a [redacted k 00] b [redacted k 11] c") == [b"one", b"two"]
    with pytest.raises(ValueError, match="changed more"):
        taken_out(b"a one b", b"x [redacted k 00] b")


def test_an_interval_is_the_one_of_wilsons_paper() -> None:
    low, high = Share(81, 263).interval()  # E. B. Wilson, 1927; figures of R. Newcombe, 1998, table I
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert Share(0, 20).interval()[0] == 0.0 and round(Share(0, 20).interval()[1], 4) == 0.1611


def test_redaction_finds_most_of_the_half_that_nobody_looked_at_and_little_else() -> None:
    counted = count(sample(14, 1, each=6), redact)
    assert counted.recall.value > 0.9 and counted.precision.value > 0.97 and counted.specificity.value > 0.97
