"""The store of a stock trainer: `python -m support.nccl_store PORT HEX` makes vLLM's own StatelessProcessGroup as rank
0 of two, and publishes a real `ncclUniqueId` of vLLM's with these bytes, as its communicator does."""

import sys
import time

from apollod import foreign_wheels


def main() -> None:
    from apollod.adapters.system.own_process import die_with_supervisor

    die_with_supervisor()
    from vllm.distributed.device_communicators.pynccl_wrapper import ncclUniqueId
    from vllm.distributed.utils import StatelessProcessGroup

    group = StatelessProcessGroup.create("127.0.0.1", int(sys.argv[1]), 0, 2)
    group.broadcast_obj(ncclUniqueId.from_buffer_copy(bytes.fromhex(sys.argv[2])), src=0)
    time.sleep(300)  # until the test ends this process


foreign_wheels.guard_lazily()
if __name__ == "__main__":
    main()
