"""One engine elsewhere: its routes for weights in vLLM's or SGLang's words, and which version it has.

Source: vllm/entrypoints/serve/dev and rl/online, 0.26 to 0.32; SGLang's srt/entrypoints/http_server.py, 0.5.
"""

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import msgspec

from apollod.errors import SendFailed
from apollod.wire.engine_terms import ReceiverTerms

CONNECT_S = 5.0
CONTROL_S = 60.0
"""longest wait for an answer that needs no weights"""


class Receiver:
    """An engine elsewhere. `version`: of the weights that it computes with; None: not known. `adapter`: the name of the
    adapter that has them; empty: the model itself. `running`: requests under way, by the adapter that they named."""

    def __init__(self, terms: ReceiverTerms, timeout_s: float) -> None:
        self.terms = terms
        self.url = terms.url
        self.version: int | None = None
        self.loading = False
        self.reachable = False
        self.model = terms.model
        self.adapter = ""
        self.running = Counter[str]()
        self._timeout_s = timeout_s
        headers = {"Authorization": f"Bearer {terms.api_key}"} if terms.api_key else {}
        self.client = httpx2.AsyncClient(
            base_url=terms.url,
            headers=headers,
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self.client.aclose()

    def lost(self) -> None:
        """The connection broke. It may have been restarted, and then it has other weights: it gets them again."""
        self.reachable, self.version = False, None

    @property
    def names(self) -> dict[str, str]:
        """Fields of a request that name the weights which it computes with."""
        if not self.adapter:
            return {"model": self.model}
        if self.terms.dialect == "vllm":
            return {"model": self.adapter}
        return {"model": self.model, "lora_path": self.adapter}

    def place(self, directory: Path, name: str) -> str:
        """Path of something in the directory of versions, as the receiver knows it."""
        return str(Path(self.terms.directory or directory) / name)

    async def answers(self) -> bool:
        """True if it is up: asks GET /health, and once for its name of the model."""
        try:
            with anyio.fail_after(CONNECT_S):
                if (await self.client.get("/health")).status_code != 200:
                    return False
                if not self.model:
                    listed = (await self.client.get("/v1/models")).json()
                    self.model = str(listed["data"][0]["id"])
                return True
        except (httpx2.HTTPError, httpx2.StreamError, TimeoutError, ValueError, LookupError, TypeError):
            return False

    async def up(self) -> None:
        """Wait until it answers."""
        while True:
            if await self.answers():
                return
            await anyio.sleep(0.5)

    async def load(
        self, directory: Path, name: str, version: int, loaded: Callable[[], None], load_format: str = ""
    ) -> float:
        """Hold generation, load a directory of weights, drop what was computed with the old ones, and go on whatever
        happens; returns the seconds of the hold. Raises SendFailed; the weights are then not known."""
        held = anyio.current_time()
        place = self.place(directory, name)
        try:
            if self.terms.dialect == "vllm":
                await self._vllm(place, version)
            else:
                await self._sglang(place, version, load_format)
            loaded()
        finally:
            with anyio.CancelScope(shield=True):
                await self.go_on()
        return anyio.current_time() - held

    async def _vllm(self, place: str, version: int) -> None:
        await self.post("/pause?mode=keep", None, CONTROL_S)
        await self.post(
            "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": place}}, self._timeout_s
        )
        await self.forget()
        with contextlib.suppress(SendFailed):  # 0.26 has no label of its own
            await self.post("/update_weight_version", {"new_version": str(version)}, CONTROL_S)

    async def _sglang(self, place: str, version: int, load_format: str) -> None:
        await self.post("/pause_generation", {"mode": "retract"}, CONTROL_S)
        body = {"model_path": place, "flush_cache": True, "weight_version": str(version), "abort_all_requests": False}
        told = await self.post(
            "/update_weights_from_disk", body | ({"load_format": load_format} if load_format else {}), self._timeout_s
        )
        if told.get("success") is False:
            raise SendFailed(f"{self.url}: {told.get('message', 'it did not load the weights')}", "see its log")

    async def forget(self) -> None:
        """Have a vLLM drop what it computed with older weights. Its pause keeps running requests, with blocks that hold
        their KV: these are computed again. Raises SendFailed."""
        told = await self.post("/reset_prefix_cache?reset_running_requests=true", None, CONTROL_S)
        if told.get("success") is False:
            raise SendFailed(f"{self.url} did not drop its cached prefixes", "see its log")

    async def go_on(self) -> None:
        """End the hold of generation, whatever happened in it."""
        with contextlib.suppress(SendFailed):
            path = "/resume" if self.terms.dialect == "vllm" else "/continue_generation"
            await self.post(path, {}, CONTROL_S)

    async def ask(self, path: str, body: Any, within_s: float, method: str = "POST") -> httpx2.Response:
        """The answer, whatever its status; `body` None: without one. Raises SendFailed for silence."""
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            with anyio.fail_after(within_s):
                return await self.client.request(method, path, content=content, headers=headers)
        except TimeoutError:
            raise SendFailed(f"{self.url}{path} did not answer within {within_s:g} s", "see its log") from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise SendFailed(f"{self.url}{path}: {str(error) or type(error).__name__}", "is it up?") from error

    async def post(self, path: str, body: Any, within_s: float) -> dict[str, Any]:
        """The answer; raises SendFailed for any status but 200 and for silence."""
        answer = await self.ask(path, body, within_s)
        if answer.status_code != 200:
            hint = "start that vLLM with VLLM_SERVER_DEV_MODE=1" if answer.status_code == 404 else "see its log"
            raise SendFailed(f"{self.url}{path} answered {answer.status_code}: {answer.text[:300]}", hint)
        return object_of(answer)

    async def told(self, path: str) -> dict[str, Any]:
        """The answer to a GET; empty if there is no such route. Raises SendFailed."""
        answer = await self.ask(path, None, CONTROL_S, "GET")
        return object_of(answer) if answer.status_code == 200 else {}


def object_of(answer: httpx2.Response) -> dict[str, Any]:
    """The JSON object in an answer; empty for anything else, as vLLM's plain text."""
    try:
        told = msgspec.json.decode(answer.content or b"{}")
    except msgspec.DecodeError:
        return {}
    return told if isinstance(told, dict) else {}
