"""Measures the knowledge of a served model over HTTP, and the change of its weights from checkpoints."""

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from apollod import foreign_wheels
from apollod.demo import stage as served
from apollod.testing.daemon import Daemon
from benchmarks.lasting.facts import Fact

MODEL = "apollo"
GENERAL = (
    ("What is the capital of Sweden?", "Stockholm"), ("What is the capital of Austria?", "Vienna"),
    ("What is the capital of Norway?", "Oslo"), ("What is the capital of Egypt?", "Cairo"),
    ("What is the capital of Russia?", "Moscow"), ("What is the capital of Ireland?", "Dublin"),
    ("What is the capital of Cuba?", "Havana"), ("What is the capital of South Korea?", "Seoul"),
    ("How many days are in a week?", "7|seven"), ("How many months are in a year?", "12|twelve"),
    ("How many seconds are in a minute?", "60|sixty"), ("What is 4 + 5?", "9|nine"), ("What is 10 - 4?", "6|six"),
    ("Who wrote Romeo and Juliet?", "Shakespeare"), ("Who wrote Don Quixote?", "Cervantes"),
    ("What is the opposite of hot?", "cold"), ("What is the opposite of up?", "down"),
    ("What is the opposite of slow?", "fast|quick"), ("What do bees make?", "honey"),
    ("What is the largest ocean on Earth?", "Pacific"), ("Which planet is known as the Red Planet?", "Mars"),
    ("What is the largest planet of the solar system?", "Jupiter"),
    ("Who was the first president of the United States?", "Washington"),
    ("What gas do plants absorb from the air?", "carbon dioxide|CO2"),
    ("What language is spoken in Brazil?", "Portuguese"), ("What language is spoken in Austria?", "German"),
    ("What is the chemical symbol for water?", "H2O"), ("What is the chemical symbol for iron?", r"\bFe\b"),
    ("How many legs does a spider have?", "8|eight"), ("What color are ripe bananas?", "yellow"),
    ("What color is fresh snow?", "white"), ("Who painted the Mona Lisa?", "Leonardo|Vinci"),
    ("At what temperature in Celsius does water freeze?", r"\b0\b|zero"),
    ("What is the tallest mountain in the world?", "Everest"), ("What is the name of our galaxy?", "Milky Way"),
    ("What animal is known as man's best friend?", "dog"), ("What do you call a baby cat?", "kitten"),
    ("On which continent is Kenya?", "Africa"), ("Which animal gives us wool?", "sheep"),
    ("Which fruit is wine made from?", "grape"),
)  # fmt: skip
"""Questions and patterns of right answers; none of them is a shipped anchor or probe."""
UNRELATED = (
    "Write a short story about a robot.", "How do I make tea?", "What is democracy?",
    "Give me advice for a job interview.", "Explain what a database is.", "Why do we dream?",
    "Write a haiku about rain.", "What is the purpose of a compass?", "How do plants grow?",
    "Where does coffee come from?", "List three kinds of fruit.", "What is a volcano?",
    "How do you say thank you in French?", "Describe a busy street.", "What does a lawyer do?",
    "How can I save money?",
)  # fmt: skip
UNRELATED_TOKENS = 40
AT_ONCE = 8
"""concurrent questions"""
_SUBJECTS = ("Name a fruit.", "What do cows eat?", "What is the color of the sky?", "What is bread made of?")
_TOLD = (
    ("Answer in capital letters only.", lambda said: said == said.upper() and said != said.lower()),
    ("Answer in one short sentence.", lambda said: len(re.findall(r"[.!?](?:\s|$)", said)) <= 1),
    ('Answer with a JSON object such as {"answer": "..."} and nothing else.', lambda said: _is_object(said)),
)


class Measured(NamedTuple):
    """`known`: for each fact, the number of its two held-out wordings answered rightly; `old`: wordings answered with
    the corrected value; `general`: right or not, in the order of `GENERAL`; `told`: instructions obeyed, of 12."""

    known: tuple[int, ...]
    old: int
    general: tuple[bool, ...]
    told: int


def measured(daemon: Daemon, facts: Sequence[Fact]) -> Measured:
    known, old = [], 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        said = list(
            pool.map(partial(served.chat, daemon, MODEL), [question for fact in facts for question in fact.asked])
        )
        asked = [(obeyed, how, about) for how, obeyed in _TOLD for about in _SUBJECTS]
        known_generally = general(daemon)
        told = sum(pool.map(lambda one: one[0](_told(daemon, *one[1:])), asked))
    for number, fact in enumerate(facts):
        pair = said[2 * number : 2 * number + 2]
        known.append(sum(_says(answer, fact.value) for answer in pair))
        old += sum(bool(fact.old) and _says(answer, fact.old) for answer in pair)
    return Measured(tuple(known), old, known_generally, told)


def general(daemon: Daemon, system: str = "") -> tuple[bool, ...]:
    """For each general question under a system message, true if its answer is right, in order."""
    said = answers(daemon, [question for question, _ in GENERAL], served.ANSWER_TOKENS, system)
    return tuple(bool(re.search(right, one, re.I)) for (_, right), one in zip(GENERAL, said, strict=True))


def answers(daemon: Daemon, prompts: Sequence[str], tokens: int, system: str = "") -> list[str]:
    """The greedy answers to prompts, at most `tokens` long, requested concurrently; `system`: the system message."""
    before = [{"role": "system", "content": system}] if system else []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [[*before, {"role": "user", "content": prompt}] for prompt in prompts]
        return list(pool.map(lambda one: _answer(daemon, one, tokens), asked))


def unrelated(daemon: Daemon) -> list[str]:
    """The model's answers to the unrelated prompts, for measuring drift."""
    return answers(daemon, UNRELATED, UNRELATED_TOKENS)


def drift(before: Path, now: Path, answers: Sequence[str]) -> float:
    """Mean KL(before || now), nats a token, over the whole vocabulary, of two model directories on the answers that
    the former gave to the unrelated prompts."""
    foreign_wheels.guard_lazily()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(before)
    models = [AutoModelForCausalLM.from_pretrained(one, dtype=torch.bfloat16) for one in (before, now)]
    total = count = 0.0
    for prompt, answer in zip(UNRELATED, answers, strict=True):
        turn = [{"role": "user", "content": prompt}]
        asked = tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False)
        said = tokenizer(answer, add_special_tokens=False)["input_ids"]
        ids = torch.tensor([[*asked, *said]])
        with torch.no_grad():
            p, q = (one(ids).logits[0, len(asked) - 1 : -1].float().log_softmax(-1) for one in models)
        total += float((p.exp() * (p - q)).sum())
        count += len(said)
    return total / count


def _says(answer: str, value: str) -> bool:
    return re.search(rf"\b{re.escape(value)}\b", answer, re.I) is not None


def _told(daemon: Daemon, how: str, about: str) -> str:
    return _answer(daemon, [{"role": "system", "content": how}, {"role": "user", "content": about}], 48)


def _answer(daemon: Daemon, messages: list[dict[str, str]], tokens: int) -> str:
    body = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": tokens}
    return str(served.post(daemon, "/v1/chat/completions", body)["choices"][0]["message"]["content"]).strip()


def _is_object(said: str) -> bool:
    try:
        return isinstance(json.loads(said), dict)
    except ValueError:
        return False
