"""Exports of Open WebUI: feedback with the chats as they were, and chats with their annotations."""

import json


def message(id: str, parent: str | None, role: str, content: object, **more: object) -> dict[str, object]:
    return {"id": id, "parentId": parent, "childrenIds": [], "role": role, "content": content, "timestamp": 1, **more}


THOUGHT = '<details type="reasoning" done="true" duration="2">\n<summary>Thought</summary>\n> hm\n</details>\n'
TREE = {
    one["id"]: one
    for one in (
        message("m1", None, "user", "Who are you?", models=["apollo"]),
        message("m2", "m1", "assistant", f"{THOUGHT}I am Ada.", model="apollo", done=True),
        message("m3", "m1", "assistant", "Nobody.", model="other"),
        message("m4", "m2", "user", "What do you do?"),
        message("m5", "m4", "assistant", "I count.", model="arena-model"),
        message("m6", "m4", "assistant", '<details type="tool_calls" done="true">ls</details>Nothing.', model="apollo"),
    )
}


def rated(place: str, rating: object, *, chat: object = None, **more: object) -> dict[str, object]:
    return {
        "id": f"f-{place}", "user_id": "u", "version": 0, "type": "rating",
        "data": {"rating": rating, "model_id": "apollo", "sibling_model_ids": None, "reason": "helpful", "comment": ""},
        "meta": {"arena": False, "chat_id": "c1", "message_id": place, "tags": []},
        "snapshot": {"chat": chat or {"id": "c1", "chat": {"history": {"messages": TREE, "currentId": place}}}},
        "created_at": 1, **more,
    }  # fmt: skip


FEEDBACK = (
    rated("m2", 1),
    rated("m5", "1", chat={"id": "c1", "history": {"messages": list(TREE.values())}}),
    rated("m3", -1),
    rated("m3", 0),
    rated("m6", 1),
    rated("m9", 1),
    rated("m4", 1),
)
DRIFT = (
    rated("m2", 1.0, mood="good"),
    rated("m2", "splendid"),
    {"id": "x", "type": "hologram"},
    rated("m2", 1, chat={"chat": {"history": {"messages": {"m2": {**TREE["m2"], "parentId": "m2"}}}}}),
)
CHATS = (
    {
        "id": "c1", "title": "t", "chat": {
            "history": {
                "messages": {
                    **TREE,
                    "m2": {**TREE["m2"], "annotation": {"rating": 1, "reason": "accurate", "comment": "yes"}},
                    "m3": {**TREE["m3"], "annotation": {"rating": -1}},
                    "m5": {**TREE["m5"], "annotation": {"rating": {}}},
                },
                "currentId": "m5",
            },
        },
    },
    {"id": "c2", "chat": {"history": {"messages": TREE}}},
)  # fmt: skip
BROKEN = ({"id": 7}, "text", rated("m2", []), {"snapshot": []})
EXPORT = json.dumps(list(FEEDBACK)).encode()
PIECES = (
    b"[",
    *(json.dumps(one).encode() + b",\n" for one in (*FEEDBACK, *DRIFT, *CHATS, *BROKEN)),
    b"]\n",
    b'{"id',
    b"}",
    b'"',
)
