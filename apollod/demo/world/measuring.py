"""Measures a served model from outside, over HTTP, independently of its training."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import anyio

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.openai_api import Sampling
from apollod.core.surroundings import NOTHING
from apollod.demo.world import exam, instructions, reading
from apollod.demo.world.exam import ANSWER_TOKENS, Case, Rate
from apollod.demo.world.instructions import Instruction

AT_ONCE = 32  # requests
PROBES = 10
"""cases of each way and kind whose right answer is scored"""

Group = tuple[str, str]
"""(way, kind) of a case"""


class Measured(NamedTuple):
    """`rates` by (way, kind), ("facts", "") and ("talk", ""); `loss`: mean negative log-probability of the right
    answers' tokens, in nats a token, over told, opposite and cancelled cases."""

    rates: dict[Group, Rate]
    loss: float


def asked(patterns: Sequence[Instruction], count: int, seed: int = 0, around: int = 0) -> list[Case]:
    """The questions: for each pattern `count` held-out scenarios, each told, untold, under the opposite and cancelled,
    the opposite in wordings outside of practice; `around` of each of these in surroundings of every kind; for each
    other kind only told; every fact and all small talk untold."""
    own = {one.kind: one for one in patterns}
    made: list[Case] = []
    for case in exam.cases(count, seed, unpractised=True):
        way, kind = case.group
        if way == "plain" or (kind not in own and way != "told"):
            continue
        made.append(_about(own[kind], case) if kind in own else case)
    about = [case for case in made if case.group[1] in own]
    return made + exam.surrounded(about, around) + exam.kept()


def _about(one: Instruction, case: Case) -> Case:
    """The case with the word or command of a pattern, in the same wordings."""
    if case.looked_for is not None:
        return replace(case, looked_for=one)
    said = tuple(one.opposite if old.negated else one for old in case.said)
    texts, rest = [], case.system or ""
    for old, new in zip(case.said, said, strict=True):
        wording = next(number for number, text in enumerate(old.texts) if rest.startswith(text))
        rest = rest[len(old.texts[wording]) :].lstrip()
        texts.append(new.texts[wording])
    return replace(case, said=said, system=" ".join(texts))


def passed(case: Case, text: str) -> bool:
    """True if an answer follows its instructions, or shows the behaviour looked for. Behaviours without an instruction
    are free, so that a model may show others that it has learned."""
    if case.looked_for is not None:
        return instructions.check(case.looked_for, case.scenario, text)
    return reading.is_right(case.said, case.scenario, text)


def rates(questions: Sequence[Case], texts: Sequence[str]) -> dict[Group, Rate]:
    """Pass rates by group, from the answers to the questions in order."""
    found: dict[Group, list[bool]] = defaultdict(list)
    for case, text in zip(questions, texts, strict=True):
        found[case.group].append(passed(case, text))
    return {group: Rate(sum(each), len(each)) for group, each in found.items()}


def measure(
    base_url: str, model: str, end: int, questions: Sequence[Case], tell: Callable[[int, int], None] = lambda *_: None
) -> Measured:
    """Ask all questions, greedily, and score right answers.

    `end`: id of the token that ends a turn. `tell` is called with the numbers of answered and of all questions. Raises
    LlmError.
    """
    return anyio.run(_measure, base_url, model, end, questions, tell)


async def _measure(
    base_url: str, model: str, end: int, questions: Sequence[Case], tell: Callable[[int, int], None]
) -> Measured:
    texts = [""] * len(questions)
    done = 0
    async with HttpLlm(Endpoint(base_url, model, concurrency=AT_ONCE)) as llm:

        async def ask(number: int, case: Case) -> None:
            nonlocal done
            answer = await llm.complete(case.messages, Sampling(max_tokens=ANSWER_TOKENS, temperature=0.0))
            texts[number] = answer.choices[0].text
            done += 1
            tell(done, len(questions))

        async with anyio.create_task_group() as tasks:
            for number, case in enumerate(questions):
                tasks.start_soon(ask, number, case)
        loss = await _loss(llm, end, probes(questions))
    return Measured(rates(questions, texts), loss)


def probes(questions: Sequence[Case]) -> list[Case]:
    """The first cases of each group with an instruction, which determines one right answer."""
    found: dict[Group, list[Case]] = defaultdict(list)
    for case in questions:
        if case.said and case.around == NOTHING and len(found[case.group]) < PROBES:
            found[case.group].append(case)
    return [case for each in found.values() for case in each]


async def _loss(llm: HttpLlm, end: int, probed: Sequence[Case]) -> float:
    scored: list[float] = []

    async def score(case: Case) -> None:
        right = {"role": "assistant", "content": instructions.answer(case.scenario, case.said)}
        prompt = (await llm.tokenise(case.messages)).tokens
        ids = (await llm.tokenise([*case.messages, right], answer=False)).tokens
        ids = ids[: len(ids) - ids[::-1].index(end)]
        scored.extend((await llm.score(ids)).logprobs[len(prompt) - 1 :])

    async with anyio.create_task_group() as tasks:
        for case in probed:
            tasks.start_soon(score, case)
    return -math.fsum(scored) / len(scored)  # independent of their order
