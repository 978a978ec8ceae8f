"""What a child was asked and has not answered: the sign of one that hangs, which no exit ever tells."""

import anyio


class Owed:
    """Open questions, one of a kind, and when the child was last heard. All methods belong to one event loop."""

    def __init__(self) -> None:
        self._questions: dict[str, str] = {}
        self._since = 0.0
        self._asked = anyio.Event()

    def ask(self, kind: str, question: str) -> None:
        """The child was asked; `question` is how a person would call it."""
        if not self._questions:
            self._since = anyio.current_time()
        self._questions[kind] = question
        self._asked.set()

    def answer(self, kind: str) -> None:
        """The child answered: whatever else it still owes, it is at work."""
        self._questions.pop(kind, None)
        self._since = anyio.current_time()

    async def overdue(self, limit_s: float) -> str:
        """The oldest open question, once the child owed an answer and gave none for `limit_s` seconds."""
        while True:
            if not self._questions:
                self._asked = anyio.Event()
                await self._asked.wait()
            left = self._since + limit_s - anyio.current_time()
            if left <= 0:
                return next(iter(self._questions.values()))
            await anyio.sleep(left)
