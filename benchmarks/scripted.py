"""A scripted model that answers at once, over real HTTP in another process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SERVER = r"""
import asyncio, json, re, sys
sys.path.insert(0, ".")
async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
            asked = json.loads(await reader.readexactly(size))
            said, more = answer(asked)
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}, **more}
            usage = {"prompt_tokens": 500, "completion_tokens": 50}
            body = json.dumps({"id": "c", "model": "m", "usage": usage, "choices": [choice]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
"""


@contextmanager
def scripted(answer: str) -> Iterator[int]:
    """Yields the port. `answer`: source of `def answer(asked)`, from the body of a chat completion to the text of the
    answer and additional fields of the choice."""
    program = f"{_SERVER}{answer}\nasyncio.run(main())\n"
    server = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield int(server.stdout.readline())
    finally:
        server.terminate()
        server.wait()
