"""Rows of data sets in every shape, one list a shape; the last ones of each are broken."""

import json


def row(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def turn(role: str, value: object, **more: object) -> dict[str, object]:
    return {"from": role, "value": value, **more}


def said(role: str, content: str) -> dict[str, object]:
    return {"role": role, "content": content}


Q, A, B = said("user", "q"), said("assistant", "a"), said("assistant", "b")
TOOL = {"name": "ls", "description": "list", "parameters": {"type": "object"}}
ALPACA = (
    row(instruction="Add", input="1 2", output="3"),
    row(instruction="Say", output="So", input=None, system="Be brief", history=[["q", "a"]], id=7),
    row(instruction="Say", output=""),
    row(instruction=["Say"], output="So"),
    row(instruction="Say", output="So", history="none"),
)
SHAREGPT = (
    row(conversations=[turn("system", "s"), turn("human", "q"), turn("gpt", "a")]),
    row(
        conversations=[
            turn("human", "q"),
            turn("function_call", '{"name": "ls", "arguments": {"of": "."}}'),
            turn("observation", "a.py"),
            turn("gpt", "a", weight=0),
            turn("gpt", "b", loss=1),
        ],
        system="s",
        tools=json.dumps([TOOL]),
    ),
    row(conversations=[Q, A]),
    row(conversations=[turn("oracle", "q"), turn("gpt", "a")]),
    row(conversations=[turn("human", "q"), turn("function_call", "ls()")]),
    row(conversations="q a"),
)
SYSTEM = (
    "You are a function calling AI model. You are provided with function signatures within <tools> </tools> XML tags. "
    f"Here are the available tools:\n<tools>\n{json.dumps([TOOL])}\n</tools>\nUse <tool_call> </tool_call>."
)
RUN = [
    turn("system", SYSTEM),
    turn("human", "q"),
    turn(
        "gpt",
        '<think>\nhm\n</think>\nI look.\n<tool_call>\n{"name": "ls", "arguments": {"of": "."}}\n</tool_call>\n'
        '<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>',
    ),
    turn(
        "tool",
        '<tool_response>\n{"tool_call_id": "c1", "name": "ls", "content": {"files": ["a.py"]}}\n</tool_response>\n'
        '<tool_response>\n{"tool_call_id": "c2", "name": "ls", "content": "none"}\n</tool_response>',
    ),
    turn("gpt", "<think>\n</think>\nDone."),
]
HERMES = (
    row(conversations=RUN, timestamp="2026-03-30T14:22:31", model="a/b", completed=True),
    row(conversations=RUN, prompt_index=42, completed=True, partial=False, tool_stats={"ls": {"count": 2}}),
    row(conversations=RUN, completed=False),
    row(conversations=RUN, completed=True, partial=True),
    row(conversations=[*RUN[:2], turn("gpt", "plain")], id="of a data set in this manner"),
    row(conversations=[turn("human", "q"), turn("gpt", "<tool_call>\nls()\n</tool_call>")], completed=True),
    row(conversations=[turn("human", "q"), turn("gpt", None)], completed=True),
    row(conversations=[turn("system", "<tools>[</tools>"), turn("gpt", "a")], completed=True),
)
PREFERENCE = (
    row(prompt="q", chosen="a", rejected="b"),
    row(prompt=[Q], chosen=[A], rejected=[B], tier="direct"),
    row(chosen=[Q, A, Q, A], rejected=[Q, A, Q, B], score_chosen=9),
    row(chosen="Human: q Assistant: a", rejected="Human: q Assistant: b"),
    row(prompt="q", chosen=[Q, A], rejected=[Q, B]),
    row(system="s", question="q", chosen="a", rejected="b"),
    row(instruction="q", input="", chosen="a", rejected="b"),
    row(conversations=[turn("human", "q")], chosen=turn("gpt", "a"), rejected=turn("gpt", "b")),
    row(chosen=7, rejected="b"),
    row(prompt="q", chosen=[], rejected=[B]),
)
KTO = (
    row(prompt="q", completion="a", label=True),
    row(prompt=[Q], completion=[B], label=False),
    row(messages=[Q, A], kto_tag=True),
    row(instruction="q", output="b", kto_tag=False),
    row(instruction="q", output="a", kto_tag=True, tier="direct"),
    row(prompt="q", completion=["a"], label=True),
)
OPENAI_DPO = (
    row(
        input={"messages": [Q], "tools": [{"type": "function", "function": TOOL}], "parallel_tool_calls": True},
        preferred_output=[A],
        non_preferred_output=[B],
    ),
    row(input={"messages": [Q, A, Q]}, preferred_output=[B], non_preferred_output=[A]),
    row(input="q", preferred_output=[A]),
    row(input={"messages": "q"}, preferred_output=[A]),
)
SHAPES = {
    "openai-dpo": OPENAI_DPO,
    "preference": PREFERENCE,
    "kto": KTO,
    "hermes-trajectories": HERMES,
    "sharegpt": SHAREGPT,
    "alpaca": ALPACA,
}
ARRAY_PIECES = (
    b"[",
    *(one.rstrip(b"\n") + b",\n" for shape in SHAPES.values() for one in shape[:2]),
    b'{"text": "t"},',
    b'{"text": ""}]',
    b"]",
    b'{"a',
    b"}",
    b" \n",
)
