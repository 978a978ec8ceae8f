"""The trainer's half of a comparison: as many tokens as were asked for, and no longer than until somebody waits."""

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from apollod.adapters.ipc.channel import Link
from apollod.core.facts.alignment import TOKENS
from apollod.trainer.scoring import probe
from apollod.wire import messages as m


@pytest.fixture(scope="module")
def made(tiny_model: Path) -> tuple[Any, Any]:
    """A model and its tokenizer."""
    return AutoModelForCausalLM.from_pretrained(tiny_model, dtype="auto"), AutoTokenizer.from_pretrained(tiny_model)


def asked(made: tuple[Any, Any], message: m.ProbeTrainer, wanted: Any = lambda: False) -> m.Probed:
    return probe(cast(Any, SimpleNamespace(model=made[0])), made[1], 4096, message, wanted)


@pytest.mark.parametrize(("tokens", "compared"), [(0, TOKENS), (22, 22), (300, 300)])
def test_as_many_tokens_as_were_asked_for(
    made: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, tokens: int, compared: int
) -> None:
    monkeypatch.setattr("apollod.trainer.scoring.score", lambda _, ids: (-1.0,) * (len(ids) - 1))
    answer = asked(made, m.ProbeTrainer(3, 7, tokens))
    assert (answer.step, answer.number, len(answer.ids)) == (3, 7, compared)
    assert answer.ids == asked(made, m.ProbeTrainer(3, 8, 4096)).ids[:compared], (
        "a shorter one is a beginning of the longer"
    )


def test_it_ends_in_the_middle_of_a_forward_pass_where_somebody_waits_and_leaves_nothing_behind(
    made: tuple[Any, Any],
) -> None:
    before, looked, ran = asked(made, m.ProbeTrainer(1, 1, 16)), 0, 0

    def wanted() -> bool:
        nonlocal looked
        looked += 1
        return looked > 20

    def count(*_: object) -> None:
        nonlocal ran
        ran += 1

    head = made[0].lm_head.register_forward_hook(count)
    answer = asked(made, m.ProbeTrainer(1, 2, 16, gives_way=True), wanted)
    assert (answer.gave_way, answer.number, answer.ids, ran) == (True, 2, (), 0)
    after = asked(made, m.ProbeTrainer(1, 3, 16), lambda: pytest.fail("this one does not give way"))
    assert after.logprobs == before.logprobs and ran == 1
    head.remove()


def test_a_message_waits_from_its_first_byte_until_it_is_received() -> None:
    ours, theirs = socket.socketpair()
    link, supervisor = Link(ours), Link(theirs)
    assert not link.waiting()
    supervisor.send(m.Quit())
    supervisor.send(m.Quit())
    for _ in range(2):  # both come with the first read
        assert link.waiting()
        link.receive()
    assert not link.waiting()
    supervisor.close()
    assert link.waiting(), "the end is news, too"
    link.close()
