"""How well a model of this world does what it is told, and leaves undone what it is not told, on held-out scenarios."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from apollod.core.rates import wilson
from apollod.demo.corpus import Message
from apollod.demo.world import instructions, scenarios
from apollod.demo.world.instructions import KINDS, Instruction, Kind
from apollod.demo.world.pretraining_texts import conversation
from apollod.demo.world.scenarios import Scenario, Split

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ANSWER_TOKENS = 32
CASES = 60


@dataclass(frozen=True, slots=True)
class Rate:
    """`passed` of `cases`, with Wilson's 95% interval (Wilson 1927, doi:10.1080/01621459.1927.10502953)."""

    passed: int
    cases: int

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper end, within 0 and 1; (0, 1) where there is no case."""
        return wilson(self.passed, self.cases)

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return {"passed": self.passed, "cases": self.cases, "interval": [round(end, 4) for end in self.interval]}


@dataclass(frozen=True, slots=True)
class Case:
    """One question to the model.

    Attributes:
        group: (what is measured, of which kind of instruction), as in the report.
        said: the instructions of the system message, in its order; empty for no system message.
        system: that message.
        looked_for: what the answer is checked for; None: that it is the right one to the letter.
    """

    group: tuple[str, str]
    scenario: Scenario
    said: tuple[Instruction, ...]
    system: str | None
    looked_for: Instruction | None = None

    @property
    def messages(self) -> list[Message]:
        """What the model is sent."""
        return conversation(self.system, self.scenario)

    def passed(self, text: str) -> bool:
        """Whether an answer passes."""
        if self.looked_for is None:
            return text == instructions.answer(self.scenario, self.said)
        return instructions.check(self.looked_for, self.scenario, text)


def held_out(kind: Kind, rng: random.Random, count: int) -> list[Scenario]:
    """Test scenarios that can show an instruction of a kind: acts and questions for a command, half each."""
    if kind == "ask":
        return scenarios.sample(rng, "act", Split.TEST, count)
    if kind == "use":
        return scenarios.sample(rng, "how", Split.TEST, count)
    acts = scenarios.sample(rng, "act", Split.TEST, count - count // 2)
    return acts + scenarios.sample(rng, "how", Split.TEST, count // 2)


def cases(count: int = CASES, seed: int = 0, kinds: Sequence[Kind] = KINDS) -> list[Case]:
    """What `report` asks: of each kind `count` held-out scenarios, each with an instruction drawn for it.

    told       the instruction is given: the right answer to the letter
    untold     no system message: passes where the behaviour shows all the same, so it should be none
    plain      the same answers: right to the letter, as without any instruction
    opposite   "Do not greet."; cancelled  "Greet the user first. Do not greet."
    """
    made: list[Case] = []
    for kind in kinds:
        rng = random.Random(f"{seed} {kind}")
        for scenario in held_out(kind, rng, count):
            one = instructions.draw(rng, kind, scenario)
            for way, said in (("told", [one]), ("opposite", [one.opposite]), ("cancelled", [one, one.opposite])):
                system = instructions.told(said, rng)
                made.append(Case((way, kind), scenario, tuple(said), system))
            made.append(Case(("untold", kind), scenario, (), None, looked_for=one))
            made.append(Case(("plain", kind), scenario, (), None))
    return made


def kept() -> list[Case]:
    """Every fact and all small talk, without a system message: what must not be lost."""
    return [
        Case((name, ""), scenario, (), None)
        for name, kind in (("facts", "fact"), ("talk", "talk"))
        for scenario in scenarios.pool(kind, Split.TEST)
    ]


def rates(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", asked: Sequence[Case]
) -> dict[tuple[str, str], Rate]:
    """Pass rates by group."""
    texts = answers(model, tokenizer, [case.messages for case in asked])
    passed: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for case, text in zip(asked, texts, strict=True):
        passed[case.group].append(case.passed(text))
    return {group: Rate(sum(each), len(each)) for group, each in passed.items()}


def report(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", count: int = CASES, seed: int = 0
) -> dict[str, Any]:
    """Figures for JSON: {"kinds": {kind: {"told": ..., ...}}, "facts": ..., "talk": ...}; see `cases`."""
    found = rates(model, tokenizer, cases(count, seed) + kept())
    kinds: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for (way, kind), rate in found.items():
        if kind:
            kinds[kind][way] = rate.figures()
    return {"kinds": kinds, "facts": found["facts", ""].figures(), "talk": found["talk", ""].figures()}


@torch.no_grad()
def answers(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    conversations: Sequence[list[Message]],
    limit: int = ANSWER_TOKENS,
) -> list[str]:
    """Greedy answers to conversations, at most `limit` tokens each; an answer that does not end keeps what it has.

    Prompts of one length are a batch: nothing is padded, which a gated delta net would take for text. The model is
    asked as it is, so that its mode and dtype are the caller's choice.
    """
    prompts: list[list[int]] = [
        tokenizer.encode(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        for messages in conversations
    ]
    found: list[str] = [""] * len(prompts)
    lengths = defaultdict(list)
    for i, prompt in enumerate(prompts):
        lengths[len(prompt)].append(i)
    for group in lengths.values():
        rows = _continued(model, torch.tensor([prompts[i] for i in group]), tokenizer.eos_token_id, limit)
        for i, row in zip(group, rows.tolist(), strict=True):
            end = row.index(tokenizer.eos_token_id) if tokenizer.eos_token_id in row else None
            found[i] = str(tokenizer.decode(row[:end]))
    return found


def _continued(model: "PreTrainedModel", ids: Tensor, end: int, limit: int) -> Tensor:
    """The most likely tokens after `ids` [rows, tokens], until every row has ended: [rows, at most limit]."""
    made: list[Tensor] = []
    ended = torch.zeros(len(ids), dtype=torch.bool)
    past = None
    while len(made) < limit and not bool(ended.all()):
        output = model(
            input_ids=made[-1][:, None] if made else ids, past_key_values=past, use_cache=True, logits_to_keep=1
        )
        past = output.past_key_values
        made.append(output.logits[:, -1].argmax(-1))
        ended |= made[-1] == end
    return torch.stack(made, 1)
