"""The levels of the probes that ship: which of them are asked of what model, and what an upgrade changes."""

import re
from array import array
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import msgspec
import pytest
from support.llm_server import Request, serving
from support.probed_server import Model, few_shipped

from apollod.adapters.journal import blobs
from apollod.cli.control.quality import quality_report
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.facts.quality.events import NO_ROOM
from apollod.curation.probes.probe_item import Probe, digest
from apollod.curation.probes.references import Reference, read_references
from apollod.errors import ConfigError
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.executor.quality_effects import HANDLERS
from apollod.supervisor.quality.prober import level_of, probes_of, shipped
from apollod.supervisor.quality.reference_files import ReferenceFiles
from apollod.wire.teacher import Teacher

PROBES = shipped(3)
EASY, ALL = digest(shipped(1)), digest(PROBES)
HARD = sorted({probe.group for probe in PROBES if level_of(probe) > 1})
GROUPS = sorted({probe.group for probe in PROBES})
ROOM = 100_000


@pytest.fixture(autouse=True)
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All probes that come with apollod, whose files are read once for all tests."""
    few_shipped(monkeypatch, len(PROBES))


def right(probe: Probe) -> str:
    """An answer that passes, of arithmetic, programs and long texts."""
    number = re.search(r"\)(.*)\\W", str(probe.expect)) or re.search(r"\\b(.*)\\b", str(probe.expect))
    assert number is not None
    return number[1].replace(",?", "")


class Asked(Model):
    """Passes the groups `good`, and says something to all else."""

    def __init__(self, good: tuple[str, ...] = (), takes: int = 512) -> None:
        probes = [probe for probe in PROBES if probe.messages]
        super().__init__(
            {one.messages[-1]["content"]: right(one) if one.group in good else "so so" for one in probes}, version=12
        )
        self.takes = takes


def config(directory: Path, port: int = 1, *settings: str) -> Config:
    return load_config(
        None, ["model.path=/m", f"engine.port={port}", f"state.dir={directory}/state", *settings], {}
    )  # fmt: skip


def ask(
    directory: Path, model: Model, effect: fx.MeasureQuality, *settings: str, seen: list[Request] | None = None
) -> inp.ProbesAnswered:
    async def main() -> inp.Input:
        async with serving() as server:
            server.otherwise = model
            made = config(directory, server.port, *settings)
            context = cast(Any, SimpleNamespace(config=made, judge=None, leaks=None, references=ReferenceFiles()))
            found = await HANDLERS[fx.MeasureQuality].run(context, effect)
            if seen is not None:
                seen.extend(server.requests)
            return cast(inp.Input, found)

    found = anyio.run(main)
    assert isinstance(found, inp.ProbesAnswered), found
    return found


def of_group(found: inp.ProbesAnswered) -> dict[str, int]:
    return {name.removesuffix(".passed"): len(one) for name, one in found.figures.items() if name.endswith(".passed")}


def besides(*groups: str) -> tuple[str, ...]:
    """All other groups: they are left out where a test needs none of them."""
    return tuple(one for one in GROUPS if one not in groups)


BASELINE = fx.MeasureQuality(1, baseline=True, tries=True)


def test_a_model_is_asked_a_few_of_each_hard_group_and_all_of_those_that_it_passes(tmp_path: Path) -> None:
    good = ("arithmetic-2", "context-3")
    found = ask(tmp_path, Asked(good, takes=ROOM), BASELINE)
    counts = of_group(found)
    assert {group: counts[group] for group in HARD} == dict.fromkeys(HARD, 8) | dict.fromkeys(good, 180)
    assert counts["format"] == 25 and counts["refusal"] == 20, "groups that are no larger are asked at once"
    assert (found.first, found.last, found.probes, found.share) == (12, 12, ALL, 1.0)


def test_what_the_first_run_found_is_not_tried_again(tmp_path: Path) -> None:
    again = fx.MeasureQuality(2, baseline=True, without=besides("code-2", "format"))
    counts = of_group(ask(tmp_path, Asked(), again))
    assert counts == {"code-2": 180, "format": 25}


def test_what_the_engine_has_no_room_for_is_left_out_with_the_reason(tmp_path: Path) -> None:
    seen = list[Request]()
    baseline = msgspec.structs.replace(BASELINE, without=tuple(one for one in GROUPS if one not in HARD))
    found = ask(tmp_path, Asked(takes=1500), baseline, seen=seen)
    long = {id_ for id_, why in found.left_out.items() if why == NO_ROOM + "the engine takes 1500 tokens"}
    assert {id_.partition("/")[0] for id_ in long} == {"context-3"} and len(long) == len(found.left_out) > 0
    assert not long & set(found.figures["context-3.passed"])
    sizes = [sum(len(one["content"].split()) for one in request.body.get("messages", ())) for request in seen
             if request.path != "/tokenize"]  # fmt: skip
    assert max(sizes) + 128 <= 1500, "in words, which are the tokens of this engine"
    line = f"not asked, since the engine takes 1500 tokens: {len(long)} that are longer with an answer"
    assert quality_report.left_out(found.left_out) == [line]


def test_a_long_question_is_read_once_and_its_answer_kept_for_replays(tmp_path: Path) -> None:
    model, seen = Asked(("context-2",), takes=ROOM), list[Request]()
    model.prompt_tokens = 600
    baseline = msgspec.structs.replace(BASELINE, without=besides("context-2"))
    found = ask(tmp_path, model, baseline, "quality.levels=2", seen=seen)
    assert not any(len(request.body.get("prompt", ())) > 600 for request in seen), "no answer is scored"
    references = read_references((tmp_path / "state" / blobs.NAME / found.references).read_bytes())
    kept = references["context-2/001"]
    assert kept.teacher.k == 1 and list(kept.teacher.answer) == list(kept.teacher.ids) and len(kept.prompt) == 600
    assert kept.teacher.logprobs[0] == pytest.approx(-0.5)
    look = fx.MeasureQuality(3, known=found.probes, references=found.references, without=besides("context-2"))
    after = ask(tmp_path, model, look, "quality.levels=2")
    assert after.figures["context-2.passed"]["context-2/001"] == 1.0 and "context-2/001" not in after.figures.get(
        "kl", {}
    )


def test_a_reference_of_one_token_a_place_can_be_replayed() -> None:
    answer = array("I", [7, 8])
    from apollod.curation.probes.references import quality_drops

    kept = {"a": Reference((1, 2), Teacher(answer, answer, array("f", [-0.1, -0.3]), 1, 0))}
    assert quality_drops(kept, {"x.passed": ["a"]}, {("a", True): -0.2}) == {"x.passed": pytest.approx(0.0, abs=1e-6)}


# --- an upgrade -------------------------------------------------------------------------------------------------------


def test_a_baseline_of_before_the_levels_goes_on_with_its_probes(tmp_path: Path) -> None:
    found = ask(tmp_path, Asked(), fx.MeasureQuality(9, known=EASY))
    assert found.probes == EASY and not set(of_group(found)) & set(HARD)
    assert len(set().union(*found.figures.values())) == 220


def test_a_level_that_is_switched_on_joins_with_the_next_baseline(tmp_path: Path) -> None:
    found = ask(tmp_path, Asked(), fx.MeasureQuality(9, 0.05, known=digest(shipped(2))))
    assert found.probes == digest(shipped(2)) and {name[-1] for name in of_group(found) if name in HARD} == {"2"}
    assert ask(tmp_path, Asked(), msgspec.structs.replace(BASELINE, without=besides("format"))).probes == ALL


def test_one_that_is_switched_off_is_another_set_which_the_baseline_is_not_of(tmp_path: Path) -> None:
    found = ask(tmp_path, Asked(), fx.MeasureQuality(9, 0.05, known=ALL), "quality.levels=1")
    assert found.probes == EASY


def test_all_can_be_switched_off(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[quality\] probe: there is no probe") as refused:
        probes_of(config(tmp_path, 1, "quality.levels=0"))
    assert "[quality] levels = 3" in refused.value.hint
    own = tmp_path / "own.jsonl"
    own.write_text('{"kind":"exact","messages":[{"role":"user","content":"What is 2 + 2?"}],"expect":"4"}\n')
    assert Counter(
        one.group for one in probes_of(config(tmp_path, 1, "quality.levels=0", f'quality.probe=["{own}"]'))
    ) == {"exact": 1}
