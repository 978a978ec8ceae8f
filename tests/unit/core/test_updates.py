"""Updates by outside trainers, beside their transcript: a person decides about the example that is to write one."""

import pytest
from support.world import World

from apollod.core import events as ev
from apollod.core import inputs as inp

EDITED = inp.EditGiven("update1", inp.Line(number=1, example="other", record=b"{}"), "me")
DECLINED = inp.DecisionsGiven((inp.Decision("update1", "decline"),), "me")


@pytest.mark.parametrize(("decided", "word"), [(EDITED, "edited"), (DECLINED, "declined")])
def test_it_ends_at_once_and_not_with_the_lease(decided: inp.Input, word: str) -> None:
    world = World()
    world.up()
    world.give(inp.UpdateOpening("vllm", "other"))
    world.give(inp.UpdateReceived(1, "gloo", "f", "n", 3, 300, 0.5))
    world.exit("trainer")  # so that it waits
    world.commit("update1")
    world.give(decided)
    assert [one.reason for one in world.of(ev.UpdateUndone)] == [f"its example was {word} by me"]
    assert world.state.updates.session is None
