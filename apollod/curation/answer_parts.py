"""Merges an answer that a log writes in parts, as several records of one message. Pure."""

from apollod.wire.records import Form


def joined(first: Form, second: Form) -> Form:
    """One answer made of two parts: texts concatenated, calls in order. A part that repeats the other, extended or not,
    counts once. Keys stay in canonical order."""
    whole = {**first, **second}
    for key in ("content", "reasoning_content"):
        if key in first and key in second:
            whole[key] = second[key] if second[key].startswith(first[key]) else first[key] + second[key]
    if "tool_calls" in first and "tool_calls" in second:
        known = [call.get("id") for call in first["tool_calls"]]
        new = [call for call in second["tool_calls"] if call.get("id") is None or call.get("id") not in known]
        whole["tool_calls"] = [*first["tool_calls"], *new]
    return {key: whole[key] for key in sorted(whole)}


def added(first: Form, second: Form) -> Form | None:
    """The learnable content that the second part of an answer adds to the first; None if there is none."""
    whole = joined(first, second)
    more = dict(second)
    for key in ("content", "reasoning_content"):
        if key in first and key in second:
            more[key] = whole[key][len(first[key]) :]
    if "tool_calls" in first and "tool_calls" in second:
        more["tool_calls"] = whole["tool_calls"][len(first["tool_calls"]) :]
        if not more["tool_calls"]:
            del more["tool_calls"]
    return more if more["content"].strip() or "tool_calls" in more else None
