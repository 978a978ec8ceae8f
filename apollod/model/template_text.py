"""The chat template of a model directory, as text."""

import json
from pathlib import Path


def template_text(model_dir: Path) -> str:
    """The template from `chat_template.jinja`, else from `tokenizer_config.json`; empty if neither has one.
    Blocking."""
    try:
        if (own := model_dir / "chat_template.jinja").exists():
            return own.read_text(encoding="utf-8")
        text = (model_dir / "tokenizer_config.json").read_text(encoding="utf-8")
        return str(json.loads(text).get("chat_template") or "")
    except (OSError, ValueError, AttributeError):
        return ""
