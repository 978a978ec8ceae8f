"""Which instructions are proposed as patterns, by what was stripped and learned."""

from apollod.core.facts.dreams.patterns import INSTRUCTION_MAX, NAME
from apollod.curation.dreaming import proposals
from apollod.curation.dreaming.proposals import Proposals, name_for, unwrapped

ASK = "Before you act, say what you are going to do and ask whether that is what is wanted. Then wait for an answer."
SHORT = "Answer in one sentence."


def of_day(day: int) -> str:
    return f"{ASK} Never guess what somebody wants, and never do more than that. Today is the {day}th of November."


def test_what_was_learned_most_comes_first_and_each_example_counts_a_text_once() -> None:
    found = Proposals()
    for n in range(4):
        found.add([("memory", SHORT), ("memory", SHORT)], learned=n < 2, session=f"s{n % 2}")
    for _ in range(3):
        found.add([("system", ASK), ("tools", "[]")], learned=True, session="one")
    told = [(one.text, one.learned, one.examples, len(one.sessions), dict(one.whys)) for one in found.most(2)]
    assert told == [(ASK, 3, 3, 1, {"system": 3}), (SHORT, 2, 4, 2, {"memory": 4})]
    assert [one.text for one in found.most(3)] == [ASK] == [one.text for one in found.most(1, limit=1)]


def test_texts_that_are_nearly_the_same_are_one_in_its_most_frequent_wording() -> None:
    found = Proposals()
    for day in [*range(10, 20), 15]:
        found.add([("system", of_day(day))], True, f"s{day}")
    found.add([("system", SHORT)], True, "s")
    first, second = found.most(1)
    assert (first.text, first.learned, len(first.wordings), second.text) == (of_day(15), 11, 10, SHORT)


def test_what_is_a_pattern_already_is_not_proposed_nor_what_none_may_say() -> None:
    found = Proposals(known=[of_day(1)])
    for text in (of_day(2), "x" * (INSTRUCTION_MAX + 1), "<memory>  </memory>"):
        found.add([("system", text)], True, "s")
    assert found.most(0) == [] and found.too_long == 1


def test_a_tag_around_all_of_a_text_is_no_part_of_it() -> None:
    assert unwrapped(" <memory>\n Be kind.\n</memory> ") == "Be kind."
    assert unwrapped("<a>one</a> and <b>two</b>") == "<a>one</a> and <b>two</b>"


def test_many_texts_take_no_more_memory_and_the_frequent_one_stays(monkeypatch) -> None:
    monkeypatch.setattr(proposals, "GROUPS_MAX", 20)
    found = Proposals()
    for n in range(200):
        found.add([("system", f"{n * 7919} {n * 104729} {n * 1299709}"), ("system", ASK)], True, f"s{n}")
    assert len(found._groups) <= 21 and len(found._exact) <= 80
    assert (found.most(1)[0].text, found.most(1)[0].learned) == (ASK, 200)


def test_names_are_names_and_no_two_are_the_same() -> None:
    texts = [ASK, ASK, "日本語で答える。", "日本語", "a" * 99]
    names: list[str] = []
    for text in texts:
        names.append(name_for(text, names))
    assert names[:4] == ["before-you-act-say-what", "before-you-act-say-what-2", "pattern", "pattern-2"]
    assert all(NAME.fullmatch(name) for name in names) and len(set(names)) == len(names)
