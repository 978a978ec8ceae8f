"""Questions to the judge. Each has one input as its answer, also after failures."""

from collections.abc import Mapping

from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.facts.intake.events import Removed
from apollod.core.facts.judging.events import Failing, spokesman
from apollod.core.facts.judging.state import SAME
from apollod.curation.judge_question import better_record, followed_by, spoiled
from apollod.supervisor.executor.context import Context, Failure, Handler, asking, given_line

_FAILING: Mapping[str, Failing] = {"nonsense": "nonsense", "refused": "refused"}


async def _answer(context: Context, effect: fx.AskJudge) -> inp.JudgeAnswered | inp.JudgeFailed:
    judge = context.judge
    assert judge is not None
    if effect.planted:
        case, removed = await _planted(context, effect.subject)
        if case is None:
            return _failed(effect, "refused", f"there is no case {effect.subject}")
        judged = await judge.ask(case, effect.votes, effect.temperature, removed)
        return inp.JudgeAnswered(effect.subject, effect.attempt, judged)
    accepted = (await context.journal.accepted_of([effect.subject])).get(effect.subject)
    if accepted is None:
        return _failed(effect, "refused", f"the journal holds no example {effect.subject}")
    record = bytes(accepted.record)
    followed = [followed_by(one) for one in await context.journal.signals_of(effect.subject)]
    rubric = (Removed(place=0, at=-1, text=effect.rubric, why="instruction"),) if effect.rubric else ()
    shown = (*accepted.removed, *rubric)
    judged = await judge.ask(record, effect.votes, effect.temperature, shown, followed)
    told = spokesman(judged.votes)
    written = better_record(record, told.better) if told.better is not None else None
    if written is None:
        return inp.JudgeAnswered(effect.subject, effect.attempt, judged)
    line = await given_line(context, written.canonical, f"judge:{effect.subject}")
    return inp.JudgeAnswered(effect.subject, effect.attempt, judged, line)


async def _planted(context: Context, case: str) -> tuple[bytes | None, tuple[Removed, ...]]:
    """The canonical record of a case, None if there is none, and the text stripped from it."""
    assert context.judge is not None
    known = context.judge.cases.get(case)
    if known is not None:
        return known.canonical, ()
    sort, _, example = case.partition(":")
    accepted = (await context.journal.accepted_of([example])).get(example)
    if accepted is None:
        return None, ()
    record = bytes(accepted.record)
    return (record if f"{sort}:" == SAME else spoiled(record)), accepted.removed


def _failed(effect: fx.AskJudge, cause: Failing, why: str, retry_after_s: float = 0.0) -> inp.JudgeFailed:
    return inp.JudgeFailed(effect.subject, effect.attempt, cause, why, retry_after_s)


def _not_asked(effect: fx.AskJudge, failure: Failure) -> inp.JudgeFailed:
    cause, why, retry_after_s = failure
    return _failed(effect, _FAILING.get(cause, "endpoint"), why, retry_after_s)


HANDLERS: Mapping[type, Handler] = {fx.AskJudge: asking(_answer, _not_asked, "judge.call_broke", "subject")}
