"""Pieces of every format, from which tests put together logs. A reader without a row here fails its tests."""

RECORDS = (
    b'{"text": "a"}\n',
    b'{"text": "b"}\r\n',
    b'{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}\n',
    b'{"prompt": "p", "completion": "c", "tier": "direct"}\n',
    b'{"text": ""}\n',
    b"not JSON\n",
    b"\n",
    b" \r\n",
    b'{"text": NaN}\n',
    b"\xef\xbb\xbf",
    b'{"text": "\\ud800"}\n',
    b'{"text": "\xff"}\n',
    b"[" * 150 + b"\n",
    b'{"text": "' + b"x" * 150 + b'"}\n',
    b"\x00\n",
    b'{"text',
)
TOY = (
    b"> how?\n",
    b"< so\n",
    b"< again so\r\n",
    b"\n",
    b"\r\n",
    b"neither\n",
    b"> ",
    b"<\xff\n",
    b"< " + b"x" * 150 + b"\n",
    b"<\n",
)

SAMPLES: dict[str, tuple[bytes, ...]] = {"records": RECORDS, "toy": TOY}
