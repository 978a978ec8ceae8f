"""Stands between the client of verifiers and the engine, in the process of the environment.

That client posts token ids to `/inference/v1/generate`, which vLLM serves only where it was started with
`--enable-scale-out`; it drops the headers of an answer and sets no priority. Here each of its requests becomes one for
`/v1/completions`, which every engine of ours serves: marked as the daemon's own, after users' requests, sampled from
the plain distribution, so short that the conversation fits a step, and noted with the versions of the weights that
answered. Programs that an environment starts do not get the engine's key.

Rule for this file: it is run by its path in another Python, and imports only the standard library and aiohttp, which
verifiers requires.
"""

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, web

GENERATE, MODELS, COMPLETIONS = "/inference/v1/generate", "/v1/models", "/completions"
SESSION = "X-Session-ID"
"""header of a request: the rollout that it belongs to"""
VERSIONS = "X-Apollod-Weights-Version"
BODY_BYTES_MAX = 64 << 20
SHOWN = 300  # characters of an engine's error
PASSED = ("stop", "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens")
"""settings of sampling that the environment decides; all that change probabilities are ours"""
OF_THIS_REQUEST = (400, 413, 422)
"""statuses of an engine that rejects this request, and would another one not"""


class SamplingRelay:
    """The relay. `engine`: `url`, `headers` and `model` of the engine; `fields` of each request, as the sampler of
    other environments sends them; `max_tokens` of an answer; `room`: tokens of a conversation."""

    def __init__(self, engine: Mapping[str, Any]) -> None:
        self._engine = engine
        self.key = secrets.token_urlsafe()
        self.url = ""
        self.broken = ""
        """why the engine did not answer, since `begin`; empty: it did"""
        self._versions: dict[str, tuple[int, int]] = {}
        self._room: int | None = None
        self._session: ClientSession | None = None
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on a free port of the loopback address; `url` is its address then."""
        self._session = ClientSession(headers=self._engine["headers"], timeout=ClientTimeout(total=None))
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_post(GENERATE, self._generate)
        app.router.add_get(MODELS, self._models)
        # a client that leaves ends the request of the engine, too
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    def begin(self) -> None:
        """Forget the versions of rollouts, and why the engine did not answer."""
        self.broken = ""
        self._versions.clear()

    def versions_of(self, rollout: str) -> tuple[int, int]:
        """First and last version of the weights that answered this rollout; -1: not known."""
        return self._versions.get(rollout, (-1, -1))

    async def _models(self, request: web.Request) -> web.Response:
        if not self._is_ours(request):
            return _error(401, "no or wrong key")
        # the client refuses a longer prompt by itself
        return web.json_response({"data": [{"id": self._engine["model"], "max_model_len": await self._longest() - 1}]})

    async def _generate(self, request: web.Request) -> web.Response:
        if not self._is_ours(request):
            return _error(401, "no or wrong key")
        asked = await request.json()
        ids, given = asked["token_ids"], asked.get("sampling_params") or {}
        if (left := await self._longest() - len(ids)) < 1:
            return _error(400, f"a conversation of {len(ids)} tokens leaves no room for an answer")
        most = min(self._engine["max_tokens"], given.get("max_tokens") or left, left)
        body = {
            **{name: given[name] for name in PASSED if given.get(name) is not None}, **self._engine["fields"],
            "model": self._engine["model"], "prompt": ids, "max_tokens": most, "skip_special_tokens": False,
        }  # fmt: skip
        assert self._session is not None
        try:
            async with self._session.post(self._engine["url"] + COMPLETIONS, json=body) as answer:
                text, version = await answer.text(errors="replace"), answer.headers.get(VERSIONS, "")
        except ClientError as error:
            self.broken = f"the engine cannot be reached: {error}"
            return _error(503, self.broken)
        if answer.status != 200:
            what = f"the engine answered {answer.status}: {' '.join(text.split())[:SHOWN]}"
            if answer.status not in OF_THIS_REQUEST:
                self.broken = what
            return _error(answer.status, what)
        try:
            said = generated(json.loads(text))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            self.broken = f"the engine gave no token ids or log-probabilities ({type(error).__name__}: {error})"
            return _error(502, self.broken)
        self._note(request.headers.get(SESSION, ""), version)
        return web.json_response(said)

    async def _longest(self) -> int:
        """Tokens of a conversation: the room in a step, or the engine's context where that is less."""
        if self._room is None:
            assert self._session is not None
            room = self._engine["room"]
            try:
                async with self._session.get(self._engine["url"] + "/models") as answer:
                    found = [one.get("max_model_len") for one in (await answer.json())["data"]]
            except (ClientError, KeyError, TypeError, ValueError):
                return int(room)  # it is asked again by the next request
            self._room = min([room, *(one for one in found if isinstance(one, int))])
        return int(self._room)

    def _is_ours(self, request: web.Request) -> bool:
        """Other users of the machine reach this address, too."""
        offered = request.headers.get("Authorization", "").encode(errors="replace")
        return secrets.compare_digest(offered, f"Bearer {self.key}".encode())

    def _note(self, rollout: str, version: str) -> None:
        found = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", version)
        first = int(found[1]) if found else -1
        last = int(found[2] or found[1]) if found else -1
        before = self._versions.get(rollout, (first, last))
        unknown = -1 in (first, *before)
        self._versions[rollout] = (-1, -1) if unknown else (min(first, before[0]), max(last, before[1]))


def generated(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A completion as an answer of `/inference/v1/generate` (vLLM 0.32, scale_out/token_in_token_out/protocol.py).
    Raises KeyError, IndexError, TypeError, ValueError where token ids or log-probabilities are missing."""
    choice = answer["choices"][0]
    ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
    content = [{"token": f"token_id:{one}", "logprob": value} for one, value in zip(ids, logprobs, strict=True)]
    told = {"index": 0, "token_ids": ids, "logprobs": {"content": content}, "finish_reason": choice["finish_reason"]}
    return {"request_id": answer.get("id", ""), "choices": [told]}


def _error(status: int, what: str) -> web.Response:
    return web.json_response({"error": {"message": what, "type": "relay"}}, status=status)
