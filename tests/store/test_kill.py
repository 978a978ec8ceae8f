"""SIGKILL at random moments of real syncs of 32 MiB in two shards: in the first, second or third of a process.
APOLLOD_SYNC_KILLS kills (12), seed APOLLOD_CRASH_SEED. In memory but for the long run: what a process wrote outlasts
it on any file system."""

import os
import random
import time
from collections import Counter

import numpy as np
import pytest
from support import in_memory, sync_victim
from support import sharded_model as model
from support.effort import LONG
from support.fork_server import fork_server
from support.invariants import say

from apollod.store import sync
from apollod.store.access import REDO
from apollod.store.model_files import INDEX, read_files

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("APOLLOD_SYNC_KILLS", "12"))
SEED = int(os.environ.get("APOLLOD_CRASH_SEED", "1"))
SHARD_BYTES = 16 << 20

if not LONG:
    tmp_path = in_memory.tmp_path


def _fresh(directory):
    chance, files = np.random.default_rng(SEED), {}
    for number in (1, 2):
        head = model.header_of([(f"w{number}", "BF16", (SHARD_BYTES // 2,), SHARD_BYTES)])
        files[f"model-{number:05}-of-00002.safetensors"] = head + chance.bytes(SHARD_BYTES)
    index = '{"weight_map": {"w1": "model-00001-of-00002.safetensors", "w2": "model-00002-of-00002.safetensors"}}'
    return model.write(directory, files | {INDEX: index.encode()})


def _weights(directory):
    return np.concatenate(
        [np.fromfile(directory / f.name, np.uint8, offset=len(f.header)) for f in read_files(directory)]
    )


@pytest.mark.timeout(3600)
def test_a_kill_at_any_moment_leaves_one_whole_generation(tmp_path):
    directory, chance = _fresh(tmp_path / "m"), random.Random(SEED)
    weights, held, seen = _weights(directory), 0, Counter()
    pace = 0.0  # seconds that a generation took last: machines are busy now and then
    for number in range(KILLS):
        reading, writing = os.pipe()
        victim = fork_server().start(
            ["-m", sync_victim.__name__, str(directory), str(held)], os.environ, (0, writing, 2)
        )
        os.close(writing)
        with open(reading) as said:
            assert said.readline() == "ready\n"
            started, whole = time.monotonic(), chance.randrange(3) if pace else 2
            first = [said.readline() for _ in range(whole)]
            assert all(first), f"kill {number} (seed {SEED}): it ended by itself"
            pace = (time.monotonic() - started) / whole if whole else pace
            time.sleep(chance.uniform(0, 1.5 * pace))
            victim.kill()
            victim.wait(60)
            acked = [line.split() for line in (*first, *said)]
        seen.update(how for _, *hows in acked for how in hows)
        seen["redo found"] += (directory / REDO).exists()
        sync.recover(directory)
        for _ in acked:
            held += 1
            weights = sync_victim.after(weights, held)
        found = _weights(directory)
        if not np.array_equal(found, weights):  # the one that was not acknowledged
            held += 1
            weights = sync_victim.after(weights, held)
            seen["committed, not acknowledged"] += 1
        assert np.array_equal(found, weights), (
            f"kill {number} (seed {SEED}): {(found != weights).sum()} bytes are of no generation {held}"
        )
        assert sorted(path.name for path in (directory / ".apollod").iterdir() if path.name != "blocks.bin") == [
            "weights.lock"
        ]
    say(f"{KILLS} kills, {held} generations: {dict(seen)}")
    assert held > KILLS // 4, "the kills came before anything could happen"
