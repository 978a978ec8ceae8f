"""Questions to the judge. Each is answered by one input, whatever happens on the way."""

from collections.abc import Mapping

import anyio.to_thread

from apollod.adapters.sources.given_lines import batch_of_lines
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.judging.events import Failing
from apollod.core.judging.votes import spokesman
from apollod.curation.judging.reply import better_record
from apollod.errors import ApolloError, LlmError, LlmRefused, RecordRefused, VerdictNonsense
from apollod.explain import reason
from apollod.supervisor.executor.context import Background, Context, Handler

_OF_THIS_QUESTION = (400, 413, 422)
"""HTTP statuses of an endpoint that answers, but not this question: it is too long, or asks for what it has not"""


async def _ask(context: Context, effect: fx.AskJudge) -> inp.JudgeAnswered | inp.JudgeFailed:
    try:
        return await _answer(context, effect)
    except VerdictNonsense as error:
        return _failed(effect, "nonsense", error.line())
    except LlmRefused as error:
        cause: Failing = "refused" if error.status in _OF_THIS_QUESTION else "endpoint"
        return _failed(effect, cause, error.line(), error.retry_after_s or 0.0)
    except LlmError as error:
        return _failed(effect, "endpoint", error.line())
    except RecordRefused as error:
        return _failed(effect, "refused", error.line())
    except OSError as error:
        return _failed(effect, "endpoint", reason(error))
    except ApolloError as error:  # the journal's: it says so itself
        return _failed(effect, "endpoint", error.line())


async def _answer(context: Context, effect: fx.AskJudge) -> inp.JudgeAnswered | inp.JudgeFailed:
    judge = context.judge
    if judge is None:
        return _failed(effect, "refused", "there is no judge in the configuration")
    if effect.planted:
        case = judge.cases.get(effect.subject)
        if case is None:
            return _failed(effect, "refused", f"there is no case {effect.subject}")
        judged = await judge.ask(case.canonical, effect.votes, effect.temperature)
        return inp.JudgeAnswered(effect.subject, effect.attempt, judged)
    accepted = (await context.journal.accepted_of([effect.subject])).get(effect.subject)
    if accepted is None:
        return _failed(effect, "refused", f"the journal holds no example {effect.subject}")
    record = bytes(accepted.record)
    judged = await judge.ask(record, effect.votes, effect.temperature, accepted.removed)
    told = spokesman(judged.votes)
    written = better_record(record, told.better) if told.better is not None else None
    if written is None:
        return inp.JudgeAnswered(effect.subject, effect.attempt, judged)
    kept_in, longest = context.config.state_dir / "quarantine", context.config.inbox.max_line_bytes
    source = f"judge:{effect.subject}"
    batch = await anyio.to_thread.run_sync(batch_of_lines, [written.canonical], source, kept_in, longest)
    return inp.JudgeAnswered(effect.subject, effect.attempt, judged, next(iter(batch.lines), None))


def _failed(effect: fx.AskJudge, cause: Failing, why: str, retry_after_s: float = 0.0) -> inp.JudgeFailed:
    return inp.JudgeFailed(effect.subject, effect.attempt, cause, why, retry_after_s)


HANDLERS: Mapping[type, Handler] = {fx.AskJudge: Background(_ask)}
