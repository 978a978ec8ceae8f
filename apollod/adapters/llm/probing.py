"""Runs probes: scores texts, has questions answered by the most likely tokens, and checks the answers.

An item that cannot be measured (an invalid answer, a check that does not end) is marked failed, which counts as not
passed, and the run goes on. An unreachable endpoint ends it: half a run is useless.
"""

import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import accumulate
from typing import NamedTuple

import anyio
from msgspec.structs import replace

from apollod.adapters.check_child import schema_validator
from apollod.adapters.checks import Kind as CheckKind
from apollod.adapters.checks import check_all
from apollod.adapters.llm.client import Llm
from apollod.adapters.llm.log_probabilities import LIKELIEST, TOKENS_MAX, Pace, teacher_from
from apollod.adapters.llm.openai_api import Choice, Sampling, Scores, Versions
from apollod.curation.probes.figures import (
    ItemFigure,
    Measurement,
    entropy,
    length_drift,
    mean,
    metrics_of,
    moved,
    repetition,
)
from apollod.curation.probes.probe_item import Probe, digest
from apollod.curation.probes.probe_kinds import KINDS, Unchecked, is_judged, kind_of
from apollod.curation.probes.references import Reference
from apollod.errors import (
    ApolloError,
    DreamCheckFailed,
    LlmError,
    LlmRefused,
    LlmUnreachable,
    ProbesBroken,
    RecordRefused,
    ScoreRefused,
)
from apollod.wire.teacher import Teacher

SHOWN = 500
"""characters of an answer that its figure keeps"""
IN_A_ROW_MAX = 3
"""consecutive failures, of kinds that are rare for a working endpoint, after which the endpoint counts as gone"""
_WHOLE_ENDPOINT = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.NOT_IMPLEMENTED)
_UNABLE = (HTTPStatus.NOT_FOUND, HTTPStatus.NOT_IMPLEMENTED)
COMPARED_MAX = 512
"""longest prompt, in tokens, whose answer is compared token by token: that would read all of it once more, past the
prefix cache, at each look"""
NO_REFERENCES: Mapping[str, Reference] = {}

Judge = Callable[[Probe, str], Awaitable[tuple[bool, str]]]
"""(probe, answer) -> (good, reason if not). An ApolloError: no verdict"""


class Terms(NamedTuple):
    """Parameters of requests of probes.

    `priority`: as vLLM takes it, larger is later; None: not sent. `share`: fraction of the time for which each of
    `concurrency` tasks may keep the engine busy; they rest in between. Requests turn thinking off.
    """

    max_tokens: int = 128
    """per answer"""
    contrast_tokens: int = 1024
    """per answer to a contrast case; an answer that is cut off there does not pass"""
    concurrency: int = 1
    priority: int | None = None
    share: float = 1.0
    top: int = LIKELIEST
    check_s: float = 2.0


def check_schemas(probes: Sequence[Probe]) -> None:
    """Raise RecordRefused for an invalid schema, naming the place. Loads jsonschema."""
    for probe in probes:
        for schema in kind_of(probe).schemas(probe):
            try:
                schema_validator(schema)
            except (ValueError, RecursionError) as error:
                raise RecordRefused(f"{probe.place} has no JSON schema: {error}", "mend it") from error


async def measure(
    llm: Llm, items: Sequence[Probe], terms: Terms, references: Mapping[str, Reference] = NO_REFERENCES,
    judge: Judge | None = None, contrast: Judge | None = None,
) -> Measurement:  # fmt: skip
    """Run the probes. Items for a judge are left out if there is none, and contrast cases if there is no `contrast`.
    Items with a reference are compared with it, which costs one more request per answer. Raises ProbesBroken; may be
    cancelled at any time."""
    return await _Run(llm, terms, references, judge, contrast, keep=False).measure(items)


def broken(error: ApolloError, measured: int, of: int) -> ProbesBroken:
    """Error for a run that the endpoint ended after `measured` of `of` items."""
    unable = isinstance(error, LlmRefused) and error.status in _UNABLE
    return ProbesBroken(measured, of, error.line(), unable)


async def measure_baseline(
    llm: Llm, items: Sequence[Probe], terms: Terms, judge: Judge | None = None, contrast: Judge | None = None
) -> tuple[Measurement, dict[str, Reference]]:
    """Run the probes at the baseline and return the references for later runs: also asks for the likeliest tokens at
    each position of the texts and of its own answers. The run is compared with these itself, so that it has all figures
    of later runs: a KL of 0 and no drift of length."""
    run = _Run(llm, terms, {}, judge, contrast, keep=True)
    measurement = await run.measure(items)
    return measurement, run.references


class _Run:
    """One run and its results so far. `references`: the given ones and, with `keep`, those made in the run."""

    def __init__(
        self, llm: Llm, terms: Terms, references: Mapping[str, Reference], judge: Judge | None,
        contrast: Judge | None, keep: bool,
    ) -> None:  # fmt: skip
        self._llm, self._terms, self._judge, self._keep = llm, terms, judge, keep
        self._deciders = {"judge": judge, "contrast": contrast}
        self.references = dict(references)
        self._figures: dict[str, ItemFigure] = {}
        self._unchecked: dict[CheckKind, list[tuple[str, Unchecked]]] = {"regex": [], "schema": []}
        self._versions: Versions | None = None
        self._prompt_tokens = self._completion_tokens = self._in_a_row = 0
        self._broken: ApolloError | None = None

    async def measure(self, items: Sequence[Probe]) -> Measurement:
        """Run all items, once."""
        asked = [probe for probe in items if self._can_tell(probe)]
        began = time.monotonic()
        todo = iter(asked)
        async with anyio.create_task_group() as tasks:
            for _ in range(self._terms.concurrency):
                tasks.start_soon(self._ask, todo, tasks.cancel_scope)
        if self._broken is not None:
            raise broken(self._broken, len(self._figures), len(asked))
        await self._check()
        figures = tuple(self._figures[probe.id] for probe in asked)
        first, last = self._versions or Versions(-1, -1)
        return Measurement(
            digest(asked), figures, metrics_of(figures), first, last, self._prompt_tokens,
            self._completion_tokens, round(time.monotonic() - began, 6), len(items) - len(asked),
        )  # fmt: skip

    def _can_tell(self, probe: Probe) -> bool:
        """True if this probe's answers can be checked: by code, by a judge where it needs one, or in contrast."""
        by = kind_of(probe).decided_by
        there = by == "code" or self._deciders[by] is not None
        return there and (not is_judged(probe) or self._judge is not None)

    async def _ask(self, todo: Iterator[Probe], whole_run: anyio.CancelScope) -> None:
        pace = Pace(self._terms.share)
        for probe in todo:
            try:
                figure = await (self._text(probe, pace) if kind_of(probe).scored else self._answer(probe, pace))
                self._in_a_row = 0
            except ApolloError as error:
                self._in_a_row += isinstance(error, LlmError) and error.retryable
                if _is_gone(error) or self._in_a_row >= IN_A_ROW_MAX:
                    self._broken = self._broken or error
                    whole_run.cancel()
                    return
                figure = _failed(probe, error)
            self._figures[probe.id] = figure

    async def _text(self, probe: Probe, pace: Pace) -> ItemFigure:
        known = self.references.get(probe.id)
        ids = known.ids if known is not None else await self._tokens(probe, pace)
        scores = await self._scores(ids, pace)
        reference = self._refer(probe, ids, 1, scores) if self._keep else known
        figure = ItemFigure(
            probe.id, probe.group, probe.kind, _minus_mean(scores.logprobs), tokens=len(ids),
            entropy=mean([entropy(place) for place in scores.top]),
        )  # fmt: skip
        return figure if reference is None else self._compared(figure, reference, scores)

    async def _answer(self, probe: Probe, pace: Pace) -> ItemFigure:
        given = await pace(self._llm.complete(list(probe.messages), _sampling(probe, self._terms)))
        self._saw(given.versions, given.prompt_tokens, given.completion_tokens)
        said = given.choices[0]
        ids, logprobs = said.token_ids or (), said.logprobs or ()
        text = said.text.strip()
        figure = ItemFigure(
            probe.id, probe.group, probe.kind, tokens=len(ids), repetition=repetition(ids),
            surprise=_minus_mean(logprobs), answer=text[:SHOWN],
        )  # fmt: skip
        prompt = given.prompt_ids or ()
        if self._keep and prompt and ids and len(prompt) <= COMPARED_MAX:
            scores = await self._scores(prompt + ids, pace)
            own = self._refer(probe, prompt + ids, len(prompt), scores, _deciding(probe, said, text))
            figure = self._compared(figure, own, scores)
        elif self._keep and prompt and len(ids) == len(logprobs) > 0:
            self._refer_to_answer(probe, prompt, said, _deciding(probe, said, text))
        elif (reference := self.references.get(probe.id)) is not None and reference.teacher.k > 1:
            figure = self._compared(figure, reference, await self._scores(reference.ids, pace))
        cut = kind_of(probe).whole and said.cut
        passed, why = await self._verdict(probe, "" if cut else text)
        return replace(figure, value=float(passed), why="" if passed else why)

    async def _verdict(self, probe: Probe, answer: str) -> tuple[bool, str]:
        """(passes, reason if not). Patterns and schemas pass here; they are checked later, all together."""
        kind = kind_of(probe)
        if (decide := self._deciders.get(kind.decided_by)) is not None:
            return await decide(probe, answer)
        found = kind.verdict(probe, answer)
        for one in found.unchecked:
            self._unchecked[one.kind].append((probe.id, one))
        return found.passed, found.why

    async def _check(self) -> None:
        for kind, asked in self._unchecked.items():
            found = await check_all(kind, [(one.expected, one.answer) for _, one in asked], self._terms.check_s)
            for (id_, _), one in zip(asked, found, strict=True):
                figure = self._figures[id_]
                if isinstance(one, DreamCheckFailed):
                    self._figures[id_] = replace(figure, value=0.0, failed=True, why=str(one))
                elif not one[0] and not figure.why:
                    self._figures[id_] = replace(figure, value=0.0, why=one[1])

    async def _tokens(self, probe: Probe, pace: Pace) -> tuple[int, ...]:
        found = await pace(self._llm.tokenise(probe.text))
        if not 2 <= len(found.tokens) < min(TOKENS_MAX, found.max_model_len):
            raise ScoreRefused(f"the text has {len(found.tokens)} tokens, which cannot be scored")
        return found.tokens

    async def _scores(self, ids: Sequence[int], pace: Pace) -> Scores:
        scores = await pace(self._llm.score(ids, self._terms.top, self._terms.priority))
        self._saw(scores.versions, len(ids), 0)
        return scores

    def _saw(self, versions: Versions | None, prompt_tokens: int, completion_tokens: int) -> None:
        self._prompt_tokens += prompt_tokens
        self._completion_tokens += completion_tokens
        if versions is not None:
            known = self._versions or versions
            self._versions = Versions(min(known.first, versions.first), max(known.last, versions.last))

    def _refer(
        self, probe: Probe, ids: Sequence[int], start: int, scores: Scores, decides: tuple[int, int] = (0, 0)
    ) -> Reference:
        """Keep the likeliest tokens at each position from `start` on."""
        teacher = teacher_from(scores, ids, start, self._terms.top)
        reference = self.references[probe.id] = Reference(tuple(ids[:start]), teacher, decides)
        return reference

    def _refer_to_answer(self, probe: Probe, prompt: Sequence[int], said: Choice, decides: tuple[int, int]) -> None:
        """Keep the answer alone: replays ask how likely it still is, and later runs compare nothing with it."""
        version = self._versions.last if self._versions is not None else -1
        answer, logprobs = array("I", said.token_ids or ()), array("f", said.logprobs or ())
        self.references[probe.id] = Reference(tuple(prompt), Teacher(answer, answer, logprobs, 1, version), decides)

    def _compared(self, figure: ItemFigure, reference: Reference, scores: Scores) -> ItemFigure:
        now = scores.top[len(reference.prompt) - 1 :]
        pairs = list(zip(reference.places(), now, strict=True))
        before = len(reference.teacher.answer)
        return replace(
            figure, entropy=mean([entropy(place) for place in now]),
            kl=mean([moved(then, place, self._terms.top) for then, place in pairs]),
            length_drift=None if KINDS[figure.kind].scored else length_drift(figure.tokens, before),
        )  # fmt: skip


def _sampling(probe: Probe, terms: Terms) -> Sampling:
    extra = {"tools": list(probe.tools), "tool_choice": "none"} if probe.tools else {}
    return Sampling(
        max_tokens=kind_of(probe).tokens(probe, terms.max_tokens, terms.contrast_tokens),
        temperature=0.0,
        logprobs=True,
        token_ids=True,
        priority=terms.priority,
        thinking="off",
        extra=extra,
    )


def _deciding(probe: Probe, said: Choice, text: str) -> tuple[int, int]:
    """The tokens, from and to, by which an answer with this text passes; (0, 0): all, or unknown."""
    first, last = kind_of(probe).deciding(probe, text)
    start = b"".join(said.pieces).find(text.encode())
    if last == first or start < 0:
        return 0, 0
    begin, end = (start + len(text[:place].encode()) for place in (first, last))
    ends = list(accumulate(map(len, said.pieces)))
    return bisect_right(ends, begin), bisect_left(ends, end) + 1


def _is_gone(error: ApolloError) -> bool:
    """True for an error of the whole endpoint, not of one item."""
    return isinstance(error, LlmUnreachable) or (isinstance(error, LlmRefused) and error.status in _WHOLE_ENDPOINT)


def _failed(probe: Probe, error: ApolloError) -> ItemFigure:
    value = None if kind_of(probe).scored else 0.0
    return ItemFigure(probe.id, probe.group, probe.kind, value, failed=True, why=str(error))


def _minus_mean(logprobs: Sequence[float]) -> float | None:
    """Negative mean of log-probabilities; None if there are none."""
    found = mean(logprobs)
    return None if found is None else -found
