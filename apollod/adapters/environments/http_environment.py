"""An environment of kind `http`: a server that is asked by POST below its URL.

/prompt  {"number": 7}                                        {"messages": [...]} or {"prompt": "text"}
/score   {"number": 7, "messages": [...], "answers": ["x"]}   {"scores": [0.5]}, null for an answer without a score
"""

from collections.abc import Sequence
from typing import Any

from apollod.adapters.environments.environment_interface import (
    REPLY_BYTES_MAX,
    WHY_MAX,
    Messages,
    Score,
    messages_of,
    object_of,
    score_of,
    shown,
)
from apollod.adapters.llm.client import Connections
from apollod.adapters.llm.endpoint import Endpoint
from apollod.errors import EnvironmentFailed, LlmError, LlmNonsense, LlmRefused, LlmTimedOut

ANSWER_S = 60.0

_SPEAKS = "let it answer POST /prompt and POST /score with JSON objects"
_HINTS = {401: "check its API key", 403: "check its API key", 404: _SPEAKS, 405: _SPEAKS}


_SAYS_NOTHING = (401, 403, 404, 405, 429, 502, 503, 504)
"""statuses of a server that was not asked about this prompt: a wrong key or URL, or too much to do"""


class HttpEnvironment:
    """An environment that answers over HTTP. Redirects are not followed, and nothing is asked a second time: retries
    are the core's decision."""

    def __init__(self, url: str, timeout_s: float = ANSWER_S, api_key: str = "") -> None:
        """`timeout_s`: limit for a prompt, and for the scores of all answers to it; `api_key`: sent as a bearer token.
        Raises ConfigError for a URL or a key that cannot be used."""
        self._url = url
        self._connections = Connections(
            Endpoint(url, "", api_key, attempts=1, try_s=timeout_s, total_s=timeout_s, answer_bytes_max=REPLY_BYTES_MAX)
        )

    async def prompt(self, number: int) -> Messages:
        """Return the messages of a prompt. Raises EnvironmentFailed."""
        reply = await self._post("/prompt", {"number": number})
        found = next((reply[key] for key in ("messages", "prompt") if reply.get(key) is not None), None)
        if found is None:
            raise EnvironmentFailed(self._url, f"gave no prompt {number}", 'answer {"messages": [...]} to POST /prompt')
        return messages_of(found, self._url, number)

    async def score(self, number: int, messages: Sequence[dict[str, Any]], answers: Sequence[str]) -> list[Score]:
        """Return the scores of the answers, asked for in one request. Raises EnvironmentFailed, also for another number
        of scores."""
        reply = await self._post("/score", {"number": number, "messages": list(messages), "answers": list(answers)})
        scores, hint = reply.get("scores"), "answer one number or null for each answer, in their order"
        if not isinstance(scores, list):
            raise EnvironmentFailed(self._url, "answered POST /score without a list of scores", hint)
        if len(scores) != len(answers):
            raise EnvironmentFailed(self._url, f"gave {len(scores)} scores for {len(answers)} answers", hint)
        return [score_of(score) for score in scores]

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = (await self._connections.post(path, body)).body
        except LlmError as error:
            raise self._failure(error) from error
        if (reply := object_of(answer)) is None:
            raise EnvironmentFailed(self._url, f"answered POST {path} with no JSON object: {shown(answer)}", _SPEAKS)
        return reply

    def _failure(self, error: LlmError) -> EnvironmentFailed:
        happened = str(error).removeprefix(self._url).strip()[:WHY_MAX]  # all but LlmNonsense begin with the URL
        match error:
            case LlmRefused() if 300 <= error.status < 400:
                happened += ", and redirects are not followed"
                return EnvironmentFailed(self._url, happened, "give the URL that it leads to")
            case LlmRefused():
                hint, outside = _HINTS.get(error.status, "look at what it logs"), error.status in _SAYS_NOTHING
                return EnvironmentFailed(self._url, happened, hint, outside)
            case LlmTimedOut():
                return EnvironmentFailed(self._url, happened, "make it faster, or allow it more time")
            case LlmNonsense():
                happened = f"sent more than {REPLY_BYTES_MAX} bytes"
                return EnvironmentFailed(self._url, happened, "shorten what it answers")
            case _:
                return EnvironmentFailed(self._url, happened, "look whether it runs, and at its URL", outside=True)
