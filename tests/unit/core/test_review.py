"""Which share of examples is held (transcripts/review.txt has who decides about them)."""

from apollod.core.facts.review import is_held


def test_a_sample_is_the_same_every_time_and_as_large_as_it_says() -> None:
    ids = [f"{n * 2654435761 % 2**32:08x}" + "0" * 24 for n in range(10_000)]
    chosen = [one for one in ids if is_held(one, "bulk", 0.1)]
    assert 950 < len(chosen) < 1050
    assert not any(is_held(one, "direct", 0.999) for one in ids) and all(is_held(one, "direct", 1.0) for one in ids)
    assert not any(is_held(one, "bulk", 0.0) for one in ids)
