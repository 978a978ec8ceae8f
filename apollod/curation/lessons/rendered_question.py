"""Finds the question in a prompt that a chat template rendered."""

import re

_CHATML = (
    r"(?:<\|im_start\|>system\n(?P<system>.*?)<\|im_end\|>\n)?<\|im_start\|>user\n(?P<question>.*?)<\|im_end\|>\n"
    r"<\|im_start\|>assistant\n(?:<think>\s*(?:</think>\s*)?)?"
)
_LLAMA = (
    r"(?:<\|begin_of_text\|>)?(?:<\|start_header_id\|>system<\|end_header_id\|>\n\n(?P<system>.*?)<\|eot_id\|>)?"
    r"<\|start_header_id\|>user<\|end_header_id\|>\n\n(?P<question>.*?)<\|eot_id\|>"
    r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n"
)
_GEMMA = r"(?:<bos>)?<start_of_turn>user\n(?P<system>)(?P<question>.*?)<end_of_turn>\n<start_of_turn>model\n"
_MISTRAL = r"(?:<s>)?\s?\[INST\]\s?(?P<system>)(?P<question>.*?)\s?\[/INST\]"
_FORMS = tuple(re.compile(form, re.DOTALL) for form in (_CHATML, _LLAMA, _GEMMA, _MISTRAL))
_MARK = re.compile(r"<\|\w+\|>|<(?:start|end)_of_turn>|\[/?INST\]")


def question_in(prompt: str, template: str) -> str:
    """The user's question, if nothing else precedes the answer; empty for several turns, a system message, or another
    form than ChatML, Llama 3, Gemma and Mistral. A system message that is part of the `template` itself is allowed,
    since the template adds it to a bare question, too."""
    for form in _FORMS:
        if (found := form.fullmatch(prompt)) and not _MARK.search(found["question"]):
            own = not found["system"] or found["system"].strip() in template
            return found["question"].strip() if own else ""
    return ""
