"""Room before an answer: who gets it."""

import pytest

from apollod.wire.context_window import Window, window


@pytest.mark.parametrize(
    ("roles", "sizes", "kept", "tight"),
    [
        (["user"], [300], (0,), (((0,), 100),)),  # nothing newer: the prompt may have all of it
        (["user", "assistant", "tool"], [300, 10, 20], (0, 1, 2), (((0,), 70),)),
        (["user", "assistant", "tool"], [300, 10, 200], (0, 1, 2), (((0,), 50), ((1, 2), 50))),
        (["system", "user"], [20, 300], (0, 1), (((1,), 80),)),
    ],
)  # fmt: skip
def test_a_long_prompt_takes_half_of_the_room_or_what_newer_messages_leave(roles, sizes, kept, tight) -> None:
    assert window(roles, roles.index("user"), sizes.__getitem__, 100) == Window(kept, tight)
