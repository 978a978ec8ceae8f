"""Trainers of your own against a daemon with vLLM, at the address that `[control] listen` names: the programs of
`examples/` that need nobody's package, and a sender whose tensors are sharded over two processes."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import VLLM, Daemon, free_port

from apollod.supervisor.config import load_config

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
PROGRAM_S = 300.0


@pytest.fixture(scope="module")
def daemon(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon whose weights may be written at another address than the engine's."""
    control = f'[control]\nenabled = true\nreceive_s = 60\nlisten = "127.0.0.1:{free_port()}"\n'
    made = Daemon(tmp_path_factory.mktemp("d"), tiny_model, control, VLLM)
    with made.serving():
        yield made


def control_url(daemon: Daemon) -> str:
    return f"http://{load_config(str(daemon.config)).control.listen}"


def said(program: Path, *arguments: str, ranks: int, directory: Path) -> list[str]:
    """What each rank of a program wrote. They are started as people do it, with what `torchrun` sets."""
    port, outputs, running = str(free_port()), [], []
    for rank in range(ranks):
        place = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        path = directory / f"{program.stem}.{rank}.log"
        with open(path, "wb") as log:
            environment = {**os.environ, **place, "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}
            command = [sys.executable, str(program), *arguments]
            running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        outputs.append(path)
    deadline = time.monotonic() + PROGRAM_S
    try:
        codes = [one.wait(max(1.0, deadline - time.monotonic())) for one in running]
    finally:
        for one in running:
            one.kill()
    told = [path.read_text() for path in outputs]
    assert codes == [0] * ranks, "\n".join(told)
    return told


def score(daemon: Daemon, text: str) -> float:
    """Mean log-probability of a text's tokens."""
    status, answer = daemon.post("/score", {"text": [text]})
    assert status == 200, answer
    (one,) = answer["scores"]
    return one["sum"] / len(one["logprobs"])


def test_a_loop_of_your_own_is_served_after_each_step(daemon: Daemon, tmp_path: Path) -> None:
    steps = daemon.status()["step"]
    (text,) = said(
        ROOT / "examples" / "own_loop.py", control_url(daemon), str(daemon.model), ranks=1, directory=tmp_path
    )
    lines = [line for line in text.splitlines() if line.startswith("step ")]
    assert len(lines) == 12 and daemon.status()["step"] == steps + 12
    assert all(line.endswith(f" step-{number}") for number, line in enumerate(lines)), text
    assert "The owl counts the boats" in lines[-1] and "The owl counts the boats" not in text.splitlines()[0], text
    assert daemon.post("/start_weight_update", {})[0] == 404, "not at the engine's port"


def test_a_model_that_is_sharded_over_two_processes_is_served(daemon: Daemon, tmp_path: Path) -> None:
    """The program of `examples/` trains the model of the directory, so that its first loss is known beforehand."""
    sentence = "The owl counts the boats before it sleeps."
    first, second = said(
        ROOT / "examples" / "fsdp.py", control_url(daemon), str(daemon.model), ranks=2, directory=tmp_path
    )
    losses = [float(each) for each in re.findall(r"loss (\S+), served", first)]
    assert len(losses) == 3 and losses == sorted(losses, reverse=True) and "served" not in second
    assert -score(daemon, sentence) < losses[-1] + 0.02, "the weights after the last step are served"
    status, info = Daemon.get(daemon, "/apollod/status")
    assert status == 200 and info["step"] >= 3


def test_what_is_sharded_arrives_bit_by_bit_and_a_refusal_leaves_no_rank_waiting(
    daemon: Daemon, tmp_path: Path
) -> None:
    answer = tmp_path / "told"
    program = ROOT / "tests" / "support" / "sharded_sender.py"
    said(program, control_url(daemon), str(daemon.model), str(answer), ranks=2, directory=tmp_path)
    first, second = (json.loads(answer.with_name(f"told.{rank}").read_text()) for rank in (0, 1))
    assert [one["sent"] for one in first] == [one["sent"] for one in second]
    errors = [one["error"] for one in first]
    assert errors[0] == errors[4] == "" and "nobody.weight" in errors[1] and "NaN" in errors[2], errors
    assert "init_weight_transfer_engine" in errors[3]
    assert all(one["all"] for one in (*first, *second)), "every rank has gathered all tensors of every version"
    assert daemon.status()["weights"]["fingerprint"] == first[4]["sent"]
