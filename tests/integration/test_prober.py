"""The probes of the configuration, asked over real HTTP as an effect of the core."""

import json
import math
import os
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from anyio.abc import SocketStream
from support import llm_server as behave
from support.judge_server import by_words, judging
from support.llm_server import LlmServer, Request, serving
from support.other_user import NOBODY, needs_root, open_place
from support.probed_server import Model, few_shipped

from apollod.adapters.journal import blobs
from apollod.cli.main import main
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.facts.lessons.events import Wording
from apollod.core.facts.quality.events import NO_JUDGE
from apollod.core.facts.quality.looking import LESSONS, LessonCase
from apollod.curation.probes.probe_item import digest
from apollod.curation.probes.references import read_references
from apollod.errors import ConfigError
from apollod.supervisor import app
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.executor.quality_effects import HANDLERS
from apollod.supervisor.judge import Judge
from apollod.supervisor.quality.prober import BYTES_MAX, EASY, probes_of
from apollod.supervisor.quality.reference_files import ReferenceFiles
from apollod.wire.engine_terms import OURS

TEXT = "The ferry left the quay at noon with nine goats."
SHIPPED_LINE = (files("apollod") / "data" / EASY).read_bytes().splitlines()[0]
OWN = (
    {"kind": "text", "id": "ferry", "group": "mine", "text": TEXT},
    {"kind": "exact", "id": "capital", "group": "mine", "messages": [{"role": "user", "content": "capital"}],
     "expect": "Paris"},
    {"kind": "exact", "id": "wrong", "group": "mine", "messages": [{"role": "user", "content": "wrong"}],
     "expect": "Paris"},
)  # fmt: skip


LOOK, BASELINE = fx.MeasureQuality(7), fx.MeasureQuality(1, baseline=True)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the probes that come with apollod, two of each group and kind."""
    few_shipped(monkeypatch)


def config(path: Path, port: int = 1, settings: Sequence[str] = ()) -> Config:
    """`path`: of a probe file; its directory has the daemon's state, too."""
    own = ["model.path=/m", f"engine.port={port}", f'quality.probe=["{path}"]', "quality.levels=1"]
    own.append(f"state.dir={path.parent}/state")
    return load_config(None, [*own, *settings], {})


def ask(
    path: Path, model: Any, effect: fx.MeasureQuality = LOOK, references: ReferenceFiles | None = None,
    judge: Any = None, settings: Sequence[str] = (), seen: list[Request] | None = None,
) -> inp.Input:  # fmt: skip
    """The effect, carried out against a server that answers as `model` does; `judge` answers at another one. With
    `references` it is the same life of the daemon that kept them."""

    async def main() -> inp.Input:
        async with serving() as server, serving() as other:
            server.otherwise, other.otherwise = model, judge
            judging = ["judge.mode=all", "judge.endpoint=j", "endpoint.j.model=j", f"endpoint.j.base_url={other.url}"]
            made = config(path, server.port, [*(judging if judge else []), *settings])
            context = cast(Any, SimpleNamespace(
                config=made, judge=Judge(made), leaks=None,
                references=references or ReferenceFiles(),
            ))  # fmt: skip
            found = await HANDLERS[fx.MeasureQuality].run(context, effect)
            assert all(OURS in request.headers for request in server.requests), "none of it is a user's"
            if seen is not None:
                seen.extend(server.requests)
            await context.judge.close()
            return cast(inp.Input, found)

    return anyio.run(main)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A person's file, asked besides those that come with apollod."""
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in OWN))
    return path


def model(path: Path, **answers: Any) -> Model:
    """Answers `answers` to these, and something to the probes that come with apollod."""
    shipped = {probe.messages[-1]["content"]: "so so" for probe in probes_of(config(path)) if probe.messages}
    return Model({**shipped, **answers}, certain=0.5, version=12)


def test_figures_by_metric_and_item_with_the_version_of_the_weights(own: Path) -> None:
    found = ask(own, model(own, capital="Paris", wrong="Rome"))
    assert isinstance(found, inp.ProbesAnswered), found
    assert (found.number, found.first, found.last) == (7, 12, 12)
    assert found.figures["mine.passed"] == {"capital": 1.0, "wrong": 0.0}
    assert (found.answers["capital"], found.answers["wrong"]) == ("Paris", "Rome") and "ferry" not in found.answers
    assert found.figures["mine.loss"] == {"ferry": pytest.approx(0.6931, abs=1e-3)}
    assert {"capital", "wrong"} <= found.figures["repetition"].keys() and "ferry" not in found.figures["repetition"]
    probes = probes_of(config(own))
    assert found.probes == digest(probes) and len(probes) > len(OWN), "those that come with apollod are asked, too"
    assert {one.id for one in probes} >= set().union(*found.figures.values())
    assert found.tokens > 0 and found.seconds > 0.0


def test_weights_that_change_meanwhile_are_told(own: Path) -> None:
    changing = model(own, capital="Paris", wrong="Rome")
    changing.steps = 1
    found = ask(own, changing)
    assert isinstance(found, inp.ProbesAnswered) and found.first == 12 and found.last > 12


def test_an_endpoint_that_goes_away_in_the_middle_is_a_run_that_failed(own: Path) -> None:
    found = ask(own, model(own, capital=behave.closes_at_once, wrong="Rome"))
    assert isinstance(found, inp.ProbesFailed) and found.number == 7
    assert "\n" not in found.reason and "probes" in found.reason


# --- what the baseline thought ------------------------------------------------------------------------------------


def baseline(own: Path, **more: Any) -> inp.ProbesAnswered:
    found = ask(own, model(own, capital="Paris", wrong="Rome"), BASELINE, **more)
    assert isinstance(found, inp.ProbesAnswered), found
    return found


def blob(own: Path, digest_: str) -> Path:
    return own.parent / "state" / blobs.NAME / digest_


def test_a_baseline_keeps_what_the_model_thought_of_every_token_beside_the_journal(own: Path) -> None:
    found = baseline(own)
    kept = read_references(blob(own, found.references).read_bytes())
    assert kept.keys() == {probe.id for probe in probes_of(config(own))}
    assert len(kept["ferry"].ids) == 10 and kept["capital"].prompt == (1, 2, 3)
    assert found.figures["kl"] == dict.fromkeys(kept, pytest.approx(0.0, abs=1e-6))
    assert set(found.figures["length_drift"].values()) == {0.0}
    again = baseline(own)
    assert again.references == found.references and again.figures.keys() == found.figures.keys()
    assert again.figures["kl"].keys() == found.figures["kl"].keys(), "both runs have to know the same items"


def later(own: Path, named: str, now: Model | None = None, **more: Any) -> inp.ProbesAnswered:
    found = ask(own, now or moved(own), fx.MeasureQuality(7, references=named), **more)
    assert isinstance(found, inp.ProbesAnswered), found
    return found


def moved(own: Path) -> Model:
    """It answers at greater length, and is surer of each token."""
    now = model(own, capital="Paris " * 3, wrong="Rome")
    now.certain = 0.9
    return now


@pytest.mark.parametrize("same_life", [True, False])
def test_a_later_look_is_compared_with_it_also_in_another_life(same_life: bool, own: Path) -> None:
    files = ReferenceFiles()
    before = baseline(own, references=files)
    found = later(own, before.references, references=files if same_life else None)
    k = 16
    surer = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    assert found.figures["kl"] == dict.fromkeys(before.figures["kl"], pytest.approx(surer, rel=1e-4))
    assert found.figures["length_drift"]["capital"] == pytest.approx(math.log(4 / 2))
    assert found.figures["length_drift"]["wrong"] == 0.0 and "ferry" not in found.figures["length_drift"]
    entropy = -0.9 * math.log(0.9) - 0.1 * math.log(0.1 / k)
    assert found.figures["entropy"]["wrong"] == pytest.approx(entropy, rel=1e-4)
    assert before.figures["entropy"]["wrong"] == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 * k), rel=1e-4)
    assert found.references == "" and found.probes == before.probes


def test_of_an_answer_its_beginning_is_kept_on_one_line_without_secrets(own: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    found = ask(own, model(own, capital=f"Paris\nby {secret} " + "word " * 100, wrong="Rome"))
    assert isinstance(found, inp.ProbesAnswered), found
    said = found.answers["capital"]
    assert said.startswith("Paris by ") and secret not in said and len(said) == 200 and said.endswith("...")


def test_each_answer_costs_one_request_more_and_a_text_none(own: Path) -> None:
    before, without, with_ = baseline(own), list[Request](), list[Request]()
    ask(own, moved(own), seen=without)
    later(own, before.references, seen=with_)
    answers = [probe for probe in probes_of(config(own)) if probe.kind != "text"]
    texts = len(probes_of(config(own))) - len(answers)
    assert len([r for r in without if r.path == "/tokenize"]) == texts
    assert len(with_) == len(without) - texts + len(answers), "tokens of texts are known then"


def test_a_baseline_that_breaks_off_keeps_nothing(own: Path) -> None:
    found = ask(own, model(own, capital=behave.closes_at_once, wrong="Rome"), BASELINE)
    assert isinstance(found, inp.ProbesFailed) and not blob(own, "").exists()


def test_references_that_cannot_be_kept_are_no_baseline(own: Path) -> None:
    (own.parent / "state").mkdir()
    (own.parent / "state" / blobs.NAME).write_text("in the way")
    found = ask(own, model(own, capital="Paris", wrong="Rome"), BASELINE)
    assert isinstance(found, inp.ProbesFailed) and blobs.NAME in found.reason


def test_an_engine_that_comes_back_with_other_weights_during_a_compared_look_is_told(own: Path) -> None:
    before, now = baseline(own), moved(own)
    now.steps = 1
    found = later(own, before.references, now)
    assert found.first == 12 and found.last > 12


class ScoresNoMore(Model):
    """Its engine goes away in the middle of what is compared: after so many of these requests."""

    left = 5

    async def __call__(self, server: LlmServer, stream: SocketStream, request: Request) -> None:
        if "prompt_logprobs" in request.body:
            self.left -= 1
            if self.left < 0:
                await behave.closes_at_once(server, stream, request)
                return
        await super().__call__(server, stream, request)


@pytest.mark.parametrize("kept", [True, False])
def test_an_engine_that_goes_away_while_answers_are_compared_is_a_run_that_failed(kept: bool, own: Path) -> None:
    now = ScoresNoMore(moved(own).answers, version=12)
    effect = fx.MeasureQuality(7, references=baseline(own).references) if kept else BASELINE
    blobs_before = set(blob(own, "").parent.glob("*/*"))
    found = ask(own, now, effect)
    assert isinstance(found, inp.ProbesFailed) and "\n" not in found.reason and "probes" in found.reason
    assert set(blob(own, "").parent.glob("*/*")) == blobs_before, "half of a baseline is none"


def test_without_its_file_a_look_goes_on_without_what_is_compared(own: Path) -> None:
    before = baseline(own)
    blob(own, before.references).unlink()
    found = later(own, before.references)
    assert "kl" not in found.figures and "length_drift" not in found.figures
    assert found.figures["mine.passed"] == {"capital": 0.0, "wrong": 0.0} and found.figures["mine.loss"]


def test_a_look_after_a_new_baseline_removes_what_the_old_one_kept(own: Path) -> None:
    old = baseline(own)
    new = ask(own, moved(own), BASELINE)
    assert isinstance(new, inp.ProbesAnswered) and new.references != old.references
    kept = blob(own, new.references).parent
    assert {path.name for path in kept.iterdir()} == {old.references, new.references}
    found = later(own, new.references)
    assert found.figures["kl"] and [path.name for path in kept.iterdir()] == [new.references]


# --- lessons, and what is not asked -------------------------------------------------------------------------------


def case(lesson: str, *prompts: str, not_these: tuple[str, ...] = ()) -> LessonCase:
    return LessonCase(lesson, tuple(Wording(one, "Paris", "given") for one in prompts), not_these)


def test_known_lessons_are_asked_bare_and_each_is_an_item_of_their_group(own: Path) -> None:
    seen = list[Request]()
    said = model(own, capital="Paris", wrong="Rome", a="It is Paris.", b="Paris", c="Rome", d="Paris, not Rome.", e="?")
    cases = (case("L1", "a", "b"), case("L2", "b", "c"), case("L7", "d", not_these=("Bonn",)))
    found = ask(own, said, fx.MeasureQuality(7, share=0.25, lessons=cases), seen=seen)
    assert isinstance(found, inp.ProbesAnswered) and found.figures[LESSONS] == {"L1": 1.0, "L2": 0.5, "L7": 1.0}
    asked = [r.body["messages"] for r in seen if r.body.get("messages", [{}])[-1].get("content") in ("a", "c", "d")]
    assert [len(one) for one in asked] == [1, 1, 1], "without a system message"
    assert found.probes == digest(probes_of(config(own))), "they are no part of the set"
    assert not any(item.startswith("lessons/") for name in found.figures for item in found.figures[name])


def test_an_answer_that_was_right_before_does_not_pass(own: Path) -> None:
    said = model(own, capital="Paris", wrong="Rome", d="Paris or Rome.")
    cases = (case("L1", "d", not_these=("Rome",)), case("L2", "d"))
    found = ask(own, said, fx.MeasureQuality(7, lessons=cases))
    assert isinstance(found, inp.ProbesAnswered) and found.figures[LESSONS] == {"L1": 0.0, "L2": 1.0}


def test_a_lesson_that_cannot_be_asked_is_left_out(own: Path) -> None:
    said = model(own, capital="Paris", wrong="Rome", a="Paris", b=behave.answers(b"{}", 400))
    found = ask(own, said, fx.MeasureQuality(7, lessons=(case("L1", "a", "b"), case("L2", "a"))))
    assert isinstance(found, inp.ProbesAnswered) and found.figures[LESSONS] == {"L2": 1.0}


def test_groups_that_are_left_out_are_not_asked_and_the_set_is_the_same(own: Path) -> None:
    seen = list[Request]()
    effect = fx.MeasureQuality(7, without=("facts", "instruction"))
    found = ask(own, model(own, capital="Paris", wrong="Rome"), effect, seen=seen)
    assert isinstance(found, inp.ProbesAnswered) and found.probes == digest(probes_of(config(own)))
    assert not {"facts.passed", "instruction.passed"} & found.figures.keys() and "tools.passed" in found.figures
    assert found.share == 1.0, "of what is asked"


@pytest.mark.parametrize(("status", "cause"), [(501, "unable"), (404, "unable"), (503, "engine")])
def test_an_engine_that_has_no_such_answers_is_told_from_one_that_gives_none(
    status: int, cause: str, own: Path
) -> None:
    class Refusing(Model):
        async def __call__(self, server: LlmServer, stream: SocketStream, request: Request) -> None:
            await behave.answers(b"{}", status)(server, stream, request)

    found = ask(own, Refusing({}))
    assert isinstance(found, inp.ProbesFailed) and found.cause == cause and str(status) in found.reason


# --- a share of them ----------------------------------------------------------------------------------------------


def test_a_look_at_a_share_asks_others_each_time_and_is_of_the_same_set(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    few_shipped(monkeypatch, 14)  # so many that a quarter of them is more than the least that is asked of a group
    probes, seen = probes_of(config(own)), set[str]()
    for number in (1, 2, 3, 4):
        found = ask(own, model(own, capital="Paris", wrong="Rome"), fx.MeasureQuality(number, share=0.25))
        assert isinstance(found, inp.ProbesAnswered) and found.probes == digest(probes)
        asked = {item for name, items in found.figures.items() if name.endswith((".passed", ".loss")) for item in items}
        assert len(asked) < 0.65 * len(probes) and found.share == len(asked) / len(probes)
        seen |= asked
    assert seen == {probe.id for probe in probes}


# --- probes for a judge -------------------------------------------------------------------------------------------

JUDGED = (
    {"kind": "judge", "id": "kind", "group": "manners", "expect": "It is polite.", "messages": [
        {"role": "system", "content": "You are a porter."}, {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "Well?"}, {"role": "user", "content": "a room"}]},
    {"kind": "judge", "id": "rude", "group": "manners", "expect": "It is polite.", "messages": [
        {"role": "user", "content": "a bed"}]},
    {"kind": "judge", "id": "mute", "group": "manners", "expect": "It is polite.", "messages": [
        {"role": "user", "content": "a bath"}]},
)  # fmt: skip


@pytest.fixture
def for_a_judge(own: Path) -> Path:
    own.write_text("".join(json.dumps(one) + "\n" for one in (*OWN, *JUDGED)))
    return own


def polite(path: Path) -> Model:
    answers = {"a room": "good day, of course", "a bed": "bad luck", "a bath": " "}
    return model(path, capital="Paris", wrong="Rome", **answers)


def test_where_a_judge_is_on_it_says_which_answers_pass(for_a_judge: Path) -> None:
    asked = list[str]()

    def about(judged: str) -> str:
        asked.append(judged)
        return by_words(judged)

    found = ask(for_a_judge, polite(for_a_judge), judge=judging(about))
    assert isinstance(found, inp.ProbesAnswered) and not found.left_out
    assert found.figures["manners.passed"] == {"kind": 1.0, "rude": 0.0, "mute": 0.0}
    assert sorted(set(asked)) == ["bad luck", "good day, of course"], "what is empty is no question"


def test_without_a_judge_its_probes_are_left_out_and_named(for_a_judge: Path) -> None:
    found = ask(for_a_judge, polite(for_a_judge))
    assert isinstance(found, inp.ProbesAnswered) and "manners.passed" not in found.figures
    assert found.left_out == dict.fromkeys(("kind", "rude", "mute"), NO_JUDGE)
    assert found.probes == digest(probes_of(config(for_a_judge))), "the set is the same with a judge and without"


def test_a_judge_that_is_gone_is_a_look_that_failed_and_no_answer_that_did(for_a_judge: Path) -> None:
    found = ask(for_a_judge, polite(for_a_judge), judge=behave.closes_at_once)
    assert isinstance(found, inp.ProbesFailed), found


BAD = {
    "not JSON": ("{", "mine.jsonl:1 is no probe"),
    "no answer expected": ('{"kind": "exact", "messages": [{"role": "user", "content": "x"}]}', "mine.jsonl:1"),
    "a schema that is none": (
        '{"kind": "schema", "messages": [{"role": "user", "content": "x"}], "expect": {"type": "nothing"}}', "nothing",
    ),
    "twice the same": ("\n".join([json.dumps(OWN[0])] * 2), "mine.jsonl:2 asks the same as"),
    "an id twice": (json.dumps(OWN[0]) + "\n" + json.dumps({**OWN[0], "text": TEXT * 2}), "mine.jsonl:2 has the id"),
    "no such kind": ('\n{"kind": "quiz"}', "mine.jsonl:2 is no probe: its kind is 'quiz'"),
    "not UTF-8": (b'{"kind": "text", "text": "\xff\xfe"}', "mine.jsonl:1 is no probe"),
    "UTF-16": (json.dumps(OWN[0]).encode("utf-16"), "mine.jsonl:1 is no probe"),
    "a huge line": (json.dumps(OWN[0]) + "\n" + "x" * 10_000_000, "mine.jsonl:2 is no probe: it has 10000000 bytes"),
    "empty": ("\n \n", "mine.jsonl has no probe in it"),
    "one that comes with apollod": (SHIPPED_LINE, "mine.jsonl:1 asks the same as apollod/data/probes.jsonl:1"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_a_bad_file_is_one_clear_line_also_at_a_run(text: str | bytes, said: str, own: Path) -> None:
    own.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=r"^\[quality\] probe") as refused:
        probes_of(config(own))
    assert said in str(refused.value) and "\n" not in refused.value.line() and refused.value.hint
    found = ask(own, Model({}))
    assert isinstance(found, inp.ProbesFailed) and found.reason == refused.value.line()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_large_file(path: Path) -> None:
    path.touch()
    os.truncate(path, BYTES_MAX + 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "cannot be read: No such file"),
        (Path.mkdir, "cannot be read: Is a directory"),
        (a_pipe, "is no file (its mode is p"),
        (a_large_file, "more than"),
        (lambda path: path.symlink_to(path.name), "cannot be read: "),
    ],
    ids=["missing", "directory", "pipe", "large", "circle"],
)
def test_what_is_no_file_of_probes_is_named_and_not_waited_for(
    make: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "odd.jsonl"
    make(path)
    with pytest.raises(ConfigError) as refused:
        probes_of(config(path))
    line = refused.value.line()
    assert line.startswith(f"[quality] probe {path} ") and said in line and refused.value.hint
    found = ask(path, Model({}))
    assert isinstance(found, inp.ProbesFailed) and found.reason == line


@needs_root
def test_a_file_that_one_may_not_read_is_named() -> None:
    with open_place() as place:
        path = place / "secret.jsonl"
        path.write_text(json.dumps(OWN[0]))
        path.chmod(0o600)
        os.seteuid(NOBODY)
        try:
            with pytest.raises(ConfigError, match=r"secret.jsonl cannot be read: Permission denied"):
                probes_of(config(path))
        finally:
            os.seteuid(0)


def test_a_mark_of_the_byte_order_is_no_error_and_a_file_is_named_once(own: Path) -> None:
    before = digest(probes_of(config(own)))
    own.write_bytes(b"\xef\xbb\xbf" + own.read_bytes())
    assert digest(probes_of(config(own))) == before
    twice = load_config(None, ["model.path=/m", f'quality.probe=["{own}", "{own}"]'], {})
    with pytest.raises(ConfigError, match=r"\[quality\] probe names .*mine.jsonl twice"):
        probes_of(twice)
    for name in ("a\0b", "~nobody-has-this-name/p.jsonl"):
        named = load_config(None, ["model.path=/m", f"quality.probe={json.dumps([name])}"], {})
        with pytest.raises(ConfigError, match=r"\[quality\] probe .* is no path"):
            probes_of(named)


def test_two_files_with_one_probe_are_both_named(own: Path) -> None:
    other = own.with_name("other.jsonl")
    other.write_text("\n" + json.dumps({**OWN[0], "id": "again"}))
    both = load_config(None, ["model.path=/m", f'quality.probe=["{own}", "{other}"]'], {})
    with pytest.raises(ConfigError, match=r"other.jsonl:2 asks the same as .*mine.jsonl:1"):
        probes_of(both)


def test_a_bad_file_is_found_by_the_check_and_keeps_the_daemon_from_starting(
    own: Path, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    settings = [f"model.path={tiny_model}", f"state.dir={state}", f'quality.probe=["{own}"]']
    check = ["config", "check", *(part for one in settings for part in ("--set", one))]
    assert main(check) == 0
    own.write_text("{")
    capsys.readouterr()
    assert main(check) == 1
    assert "mine.jsonl:1 is no probe" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"mine.jsonl:1 is no probe"):
        anyio.run(app.run, load_config(None, settings, {}))
    assert not state.exists()


def test_a_bug_of_ours_in_a_measurement_fails_it_and_not_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("apollod.supervisor.executor.quality_effects.probes_known", broken)
    found = ask(tmp_path / "mine.jsonl", Model({}))
    assert isinstance(found, inp.ProbesFailed) and "ZeroDivisionError" in found.reason
