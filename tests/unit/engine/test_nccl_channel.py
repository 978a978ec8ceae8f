"""A group over NCCL, as far as it goes without a GPU."""

import pytest

from apollod.engine.gateway.nccl_channel import _ToSglang
from apollod.errors import NcclFailed


def test_a_group_that_was_left_before_it_was_complete_says_so() -> None:
    """An engine may refuse to join before the thread that waits for it has begun."""
    channel = _ToSglang("127.0.0.1", 2, 1.0)
    channel.end()
    with pytest.raises(NcclFailed, match="the group was left"):
        channel.complete()
