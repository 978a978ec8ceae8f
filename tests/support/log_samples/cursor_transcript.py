"""Lines of Cursor's transcripts."""

import json
from typing import Any


def line(role: str, *blocks: Any) -> bytes:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return json.dumps({"role": role, "message": {"content": content}}).encode() + b"\n"


SESSION = (
    line("user", "<open_files>a.py</open_files>\n<user_query>\nFix it\n</user_query>"),
    line("assistant", "I look.", {"type": "tool_use", "name": "Shell", "input": {"command": "ls"}}),
    line("assistant", "Done."),
    b'{"type": "turn_ended", "status": "success"}\n',
    line("user", "No, in b.py"),
    line("assistant", "Moved."),
    b'{"type": "turn_ended", "status": "aborted"}\n',
)
LINES = (
    *SESSION,
    line("narrator", "x"),
    line("user", {"type": "image"}),
    line("assistant", {"type": "tool_use"}),
    b'{"role": 7}\n',
    b"not JSON\n",
    b"\n",
    b'{"role',
)
