"""Logs of Inspect: samples, the document, and the archive that Inspect writes."""

import io
import json
import struct
import zipfile
import zlib
from typing import Any

import zstandard

from apollod.curation.formats.agents.inspect_log import BEGIN

SYSTEM = {"role": "system", "content": "Be brief."}
APPROVAL = {"type": "approval", "message": "no"}
LONG = "What is in the directory?"
SAMPLE: dict[str, Any] = {
    "id": "1",
    "epoch": 1,
    "input": "x",
    "target": "y",
    "uuid": "s1",
    "messages": [
        SYSTEM,
        {"id": "m1", "role": "user", "content": "attachment://a1", "source": "input"},
        {"id": "m2", "role": "assistant", "content": "An example.", "source": "input"},
        {"id": "m3", "role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image", "image": "x"}]},
        {
            "id": "m4", "role": "assistant", "source": "generate", "model": "apollo",
            "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "I look."}],
            "tool_calls": [{"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}, "type": "function"}],
        },
        {"id": "m5", "role": "tool", "content": "a.py", "tool_call_id": "c1", "function": "bash"},
        {
            "id": "m6", "role": "assistant", "content": "", "source": "generate",
            "tool_calls": [{"id": "c2", "function": "bash", "arguments": {}, "parse_error": "no JSON"}],
        },
        {"id": "m7", "role": "tool", "content": "", "tool_call_id": "c2", "error": APPROVAL},
        {"id": "m8", "role": "assistant", "content": "a.py", "source": "generate"},
    ],
    "output": {"model": "apollo", "choices": [{"stop_reason": "stop"}]},
    "scores": {"includes": {"value": "C"}, "many": {"value": {"a": 1}}, "close ness": {"value": 0.25}},
    "attachments": {"a1": LONG},
    "model_usage": {"vllm/apollo": {}},
    "events": [{"event": "model", "content": "x" * 500}],
}  # fmt: skip
FAILED = {**SAMPLE, "uuid": "s2", "error": {"message": "boom"}}
CUT = {
    "id": 3,
    "messages": [{"role": "user", "content": "Count"}, {"role": "assistant", "content": "1 2 3"}],
    "output": {"choices": [{"stop_reason": "max_tokens"}]},
    "model_usage": {"openai-api/local/apollo": {}},
}
OTHER = {**CUT, "output": {"model": "gpt"}, "scores": {"match": {"value": "I"}}}
DRIFT = {"messages": [{"role": "narrator", "content": "x"}, {"role": "user", "content": []}], "mood": 1}
SAMPLES = (SAMPLE, FAILED, CUT, OTHER, DRIFT)
EVAL = {"run_id": "r", "task": "t", "model": "vllm/apollo"}
HEADER = {"version": 2, "status": "success", "eval": EVAL, "plan": {"steps": []}, "results": {}}
DOCUMENT = json.dumps({**HEADER, "samples": SAMPLES, "reductions": []}, indent=2).encode()
LINES = (
    BEGIN,
    *(json.dumps(sample).encode() + b"\n" for sample in SAMPLES),
    b'{"messages": 7}\n',
    b'{"messages": [{"role": "assistant", "tool_calls": [{"function": ""}]}]}\n',
    b"not JSON\n",
    b"\n",
    b'{"mess',
)
PIECES = (
    b'{"version": 2, "status": "success", "eval": {"run_id": "r", "task": "t"}, "samples": [',
    *(json.dumps(sample).encode() + b",\n" for sample in SAMPLES),
    b'{"messages": 7}, ',
    b'"x"]',
    b', "reductions": []}',
    b"]",
    b"}",
    b'"',
    b" \n",
    b"tru",
)


def archive(*samples: Any, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """As Inspect writes it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as writer:
        writer.writestr("_journal/start.json", json.dumps({"version": 2, "eval": EVAL, "plan": {}}))
        for n, sample in enumerate(samples):
            content = sample if isinstance(sample, bytes) else json.dumps(sample, indent=2).encode()
            writer.writestr(f"samples/{n}_epoch_1.json", content)
        writer.writestr("header.json", json.dumps(HEADER))
    return file.getvalue()


def zstd_archive(name: str, content: bytes, claimed: int | None = None) -> bytes:
    """One member packed by zstd, which Python's zipfile does not write. `claimed`: its size by the directory."""
    packed, encoded = zstandard.ZstdCompressor().compress(content), name.encode()
    size = len(content) if claimed is None else claimed
    facts = struct.pack("<HHHHHLLLHH", 63, 0, 93, 0, 33, zlib.crc32(content), len(packed), size, len(encoded), 0)
    local = b"PK\x03\x04" + facts + encoded + packed
    entry = b"PK\x01\x02" + struct.pack("<H", 63) + facts + struct.pack("<HHHLL", 0, 0, 0, 0, 0) + encoded
    return local + entry + b"PK\x05\x06" + struct.pack("<HHHHLLH", 0, 0, 1, 1, len(entry), len(local), 0)
