"""Sends concurrent requests to an endpoint."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from apollod.errors import ApolloError

T = TypeVar("T")


async def side_by_side(questions: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Return the answers in the order of the questions; `Endpoint.concurrency` limits how many are asked at a time. A
    question that fails with an ApolloError or OSError cancels the others, and its error is raised, not in a group."""
    answers: dict[int, T] = {}
    failures: list[ApolloError | OSError] = []
    async with anyio.create_task_group() as tasks:

        async def ask(number: int, question: Callable[[], Awaitable[T]]) -> None:
            try:
                answers[number] = await question()
            except (ApolloError, OSError) as error:
                failures.append(error)
                tasks.cancel_scope.cancel()

        for number, question in enumerate(questions):
            tasks.start_soon(ask, number, question)
    if failures:
        raise failures[0]
    return [answers[number] for number in range(len(questions))]
