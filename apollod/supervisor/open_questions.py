"""Tracks requests that a child has not answered: the only sign of a child that hangs, since it never exits."""

import anyio


class OpenQuestions:
    """Open questions, one of a kind, and when the child last answered. All methods belong to one event loop."""

    def __init__(self) -> None:
        self._questions: dict[str, str] = {}
        self._since = 0.0
        self._asked = anyio.Event()

    def ask(self, kind: str, question: str) -> None:
        """Note a question to the child; `question`: its name for people."""
        if not self._questions:
            self._since = anyio.current_time()
        self._questions[kind] = question
        self._asked.set()

    def answer(self, kind: str) -> None:
        """Note an answer: the child is at work, whatever else is open."""
        self._questions.pop(kind, None)
        self._since = anyio.current_time()

    def at_work(self) -> None:
        """Note a sign of life during a question."""
        self._since = anyio.current_time()

    async def overdue(self, limit_s: float) -> str:
        """Wait until questions are open and none was answered for `limit_s` seconds; returns the oldest of them."""
        while True:
            if not self._questions:
                self._asked = anyio.Event()
                await self._asked.wait()
            left = self._since + limit_s - anyio.current_time()
            if left <= 0:
                return next(iter(self._questions.values()))
            await anyio.sleep(left)
