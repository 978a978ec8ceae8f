"""Pieces of texts and records, and which of them the next scenario is made from."""

import random
from collections import Counter

from apollod.core.facts.dreams.scenario import Surfaced
from apollod.curation.dreaming.seeds import (
    PIECE_MAX,
    SEED_MAX,
    Seed,
    choose,
    seed_of,
    seeds_of_lines,
    seeds_of_text,
    text_of_record,
    weights_of,
)

NOTES = """\
# Lessons

## Disk

On Tuesday the disk was full.
Look first.

And then write it down.

## Letters
Mara likes short ones.
"""


def test_a_text_is_cut_at_its_headings() -> None:
    seeds = list(seeds_of_text(NOTES, "notes.md"))
    assert [(seed.place, seed.text) for seed in seeds] == [
        ("notes.md:1", "# Lessons\n\n## Disk\n\nOn Tuesday the disk was full.\nLook first.\n\nAnd then write it down."),
        ("notes.md:10", "## Letters\n\nMara likes short ones."),
    ]
    assert len({seed.id for seed in seeds}) == 2 and all(len(seed.id) == 16 for seed in seeds)


def test_a_long_section_is_cut_at_empty_lines_and_a_long_line_between_words() -> None:
    paragraphs = [f"{number} " + "word " * 100 for number in range(10)]
    seeds = list(seeds_of_text("\n\n".join(paragraphs), "t"))
    assert [seed.text[0] for seed in seeds] == ["0", "2", "4", "6", "8"]
    assert [seed.place for seed in seeds] == ["t:1", "t:5", "t:9", "t:13", "t:17"]
    words = [f"word{number}" for number in range(1500)]
    pieces = [seed.text for seed in seeds_of_text(" ".join(words), "t")]
    assert " ".join(pieces).split() == words and max(map(len, pieces)) <= PIECE_MAX
    assert [len(seed.text) for seed in seeds_of_text("x" * 4000, "t")] == [PIECE_MAX, PIECE_MAX, 1000]


def test_nothing_of_a_text_is_lost() -> None:
    chance = random.Random(0)
    for _ in range(100):
        parts = ["# title", "word", "two words", "", "", "x" * 800, "long line " * 300, "- item"]
        text = "\n".join(chance.choice(parts) for _ in range(chance.randint(0, 30)))
        assert "".join("".join(seed.text.split()) for seed in seeds_of_text(text, "t")) == "".join(text.split())


def test_records_of_all_sorts_have_texts() -> None:
    turns = [{"role": "system", "content": "Greet."}, {"role": "user", "content": "Hi "},
             {"role": "assistant", "content": None},
             {"role": "assistant", "content": "Yes?"}]  # fmt: skip
    assert text_of_record({"messages": turns}) == "user: Hi\nassistant: Yes?"
    assert (
        text_of_record({"messages": [*turns, {"role": "user", "content": "x" * SEED_MAX}]}) == f"user: {'x' * SEED_MAX}"
    )
    assert text_of_record({"prompt": "a", "completion": "b", "n": 1}) == "a\nb"
    assert text_of_record("note") == "note" and text_of_record([1]) == text_of_record(None) == ""
    lines = b'{"text": "one"}\n\nprose\n{"n": 1}\n"two"\n{"text": "\xff"}\n'
    assert [one if isinstance(one, str) else (one.place, one.text) for one in seeds_of_lines(lines, "f.jsonl")] == [
        ("f.jsonl:1", "one"), "a line is no JSON", "a line holds no text", ("f.jsonl:5", "two"), "a line is no JSON",
    ]  # fmt: skip


def test_what_says_nothing_is_no_seed_and_what_says_much_is_cut() -> None:
    assert seed_of(" ---\n...", "p") is None
    long = seed_of("word " * 1000, "p")
    assert long is not None and len(long.text) <= SEED_MAX


SEEDS = [Seed(f"{number:016x}", f"text {number}", "p") for number in range(12)]


def ids(seeds: tuple[Seed, ...]) -> tuple[str, ...]:
    return tuple(seed.id for seed in seeds)


def test_the_choice_follows_from_pattern_and_number() -> None:
    first = [choose(SEEDS, number, "greet") for number in range(200)]
    assert first == [choose(SEEDS[::-1], number, "greet") for number in range(200)]
    assert [one[0] for one in first] != [choose(SEEDS, number, "caps")[0] for number in range(200)]
    assert {len(one) for one in first} == {1, 2, 3} and all(len(set(one)) == len(one) for one in first)
    assert {seed for one in first for seed in one} == set(SEEDS)


def test_no_combination_comes_twice_in_a_row_where_there_is_another() -> None:
    for many in (2, 3, 4):
        last: tuple[str, ...] = ()
        for number in range(300):
            chosen = ids(choose(SEEDS[:many], number, "greet", last))
            assert chosen and set(chosen) != set(last), (many, number)
            last = chosen
    only = ids(choose(SEEDS[:1], 1, "greet"))
    assert ids(choose(SEEDS[:1], 2, "greet", only)) == only == (SEEDS[0].id,)
    assert choose([], 1, "greet") == ()


def times_drawn(seeds: list[Seed], **surfaced: Surfaced) -> dict[str, int]:
    """How often each is among those of 2000 scenarios."""
    drawn = Counter(seed.text for number in range(2000) for seed in choose(seeds, number, "greet", (), surfaced))
    return {seed.text: drawn[seed.text] for seed in seeds}


def test_what_is_newer_surfaces_more_often() -> None:
    drawn = times_drawn([Seed(f"{n}", f"{n}", "p", at_ns=n * 10**18) for n in range(5)])
    assert sorted(drawn, key=drawn.__getitem__) == ["0", "1", "2", "3", "4"] and drawn["4"] > 1.5 * drawn["0"]
    assert drawn["0"] > 0


def test_what_surfaced_often_surfaces_less_and_what_taught_more_surfaces_more() -> None:
    seeds = [Seed(id_, id_, "p", 7) for id_ in ("often", "taught", "little", "new")]
    surfaced = {
        "often": Surfaced(times=9, learned=1, taught=1.0),
        "taught": Surfaced(times=3, learned=2, taught=6.0),
        "little": Surfaced(times=3, learned=2, taught=0.5),
    }
    drawn = times_drawn(seeds, **surfaced)
    assert drawn["often"] < drawn["little"] < drawn["taught"] < drawn["new"]
    weights = weights_of(seeds, surfaced)
    assert weights == {"often": 0.1 * 1 / (4.25 / 3), "taught": 0.25 * 2.0, "little": 0.25 * 0.5, "new": 1.0}


def test_a_seed_that_taught_nothing_yet_weighs_as_the_usual_one() -> None:
    nothing = {"a": Surfaced(times=1, learned=1, taught=0.0)}
    assert weights_of([Seed("a", "a", "p"), Seed("b", "b", "p")], nothing) == {"a": 0.5, "b": 1.0}
    assert weights_of([], {}) == {}
