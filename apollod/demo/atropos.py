"""Atropos for the demo: the run-api of its package and an environment, as processes that a user would start."""

import importlib.util
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from apollod.errors import ApolloError
from apollod.testing.daemon import free_port

PACKAGES = {
    "atroposlib": "atroposlib==0.4.0", "pydantic_cli": "pydantic-cli", "tenacity": "tenacity",
    "jsonlines": "jsonlines", "markdown": "markdown", "wandb": "wandb", "xxhash": "xxhash",
}  # fmt: skip
"""Modules that its environments import beside those that vLLM brings, and their names at the package index"""
START_S, END_S = 60.0, 10.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled"}
NO_KEY = "none"
"""its client of OpenAI's API needs one; the engine needs none of a process of the daemon's user"""


class Atropos:
    """`with Atropos(root) as service:` has the run-api at `service.url`, until the end. Logs are below `root`."""

    def __init__(self, root: Path) -> None:
        """Raises ApolloError where the package cannot be imported."""
        if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
            raise ApolloError(
                f"Atropos cannot be started: there is no {', '.join(missing)}",
                f"{sys.executable} -m pip install --no-deps {' '.join(PACKAGES[name] for name in missing)}",
            )
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self._root = root
        self._processes = dict[str, subprocess.Popen[bytes]]()
        self._service = ("atroposlib.cli.run_api", "--host", "127.0.0.1", "--port", str(port))

    def __enter__(self) -> "Atropos":
        self.start_service()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for name in list(self._processes):
            self.end(name)

    def start_service(self) -> None:
        """Start the run-api, and wait until it answers. Raises ApolloError."""
        self._start("service", *self._service)
        deadline = time.monotonic() + START_S
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/info", timeout=START_S).close()
                return
            except OSError as error:
                self.check()
                if time.monotonic() > deadline:
                    raise ApolloError(
                        f"the run-api of Atropos does not answer: {error}", self._hint("service")
                    ) from error
            time.sleep(0.1)

    def start_environment(self, engine: str, model: Path, name: str, *settings: str) -> None:
        """Start the environment, which samples from the engine at this URL once a trainer has registered. `model`: its
        directory; `name`: by which it is served."""
        self._start(
            "environment", "apollod.demo.naming_atropos", "serve", "--env.rollout_server_url", self.url,
            "--env.tokenizer_name", str(model), "--openai.base_url", f"{engine}/v1", "--openai.api_key", NO_KEY,
            "--openai.model_name", name, "--openai.tokenizer_name", str(model), *settings,
        )  # fmt: skip

    def end(self, name: str) -> None:
        """End one of the processes."""
        process = self._processes.pop(name)
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def check(self) -> None:
        """Raise ApolloError if one of them has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise ApolloError(f"Atropos's {name} left with {process.returncode}", self._hint(name))

    def _start(self, name: str, *arguments: str, env: Mapping[str, str] = OFFLINE) -> None:
        with open(self._log(name), "ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", *arguments], stdout=log, stderr=log, env={**os.environ, **env}
            )

    def _log(self, name: str) -> Path:
        return self._root / f"atropos-{name}.log"

    def _hint(self, name: str) -> str:
        last = self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
        return f"its last line is: {''.join(last)[:300]}"
