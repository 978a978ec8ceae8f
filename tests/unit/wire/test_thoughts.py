"""What a model thinks before it answers is told apart from the answer, wherever the endpoint puts it."""

import pytest

from apollod.wire.thoughts import Said, opens_thought, past_thought, split

SPEAKS_OF_TAGS = "Write <think> before it and </think> behind it."


@pytest.mark.parametrize(
    ("text", "parsed", "opened", "said"),
    [
        ("Port 7341.", "", False, Said("", "Port 7341.")),
        ("  indented\n", "", False, Said("", "  indented\n")),
        ("<think>\nPort 80? No.\n</think>\n\nPort 7341.", "", False, Said("Port 80? No.", "Port 7341.")),
        ("\n<think>\n\n</think>\n\nPort 7341.", "", False, Said("", "Port 7341.")),
        ("Port 80? No.\n</think>\n\nPort 7341.", "", True, Said("Port 80? No.", "Port 7341.")),
        ("Port 80? No.\n</think>\n\nPort 7341.", "", False, Said("Port 80? No.", "Port 7341.")),
        ("\n\nPort 7341.", "Port 80? No.\n", False, Said("Port 80? No.", "Port 7341.")),
        ("Port 7341.", "Port 80? No.", True, Said("Port 80? No.", "Port 7341.")),
        ("", "Port 80? Wait", True, Said("Port 80? Wait", "", True)),
        ("<think>\nPort 80? Wait", "", False, Said("Port 80? Wait", "", True)),
        ("Port 80? Wait", "", True, Said("Port 80? Wait", "", True)),
        ("", "", True, Said("", "", True)),
        ("", "", False, Said("", "")),
        ("Is it <think>?\n</think>\n\nYes.", "", True, Said("Is it <think>?", "Yes.")),
        (SPEAKS_OF_TAGS, "", False, Said("", SPEAKS_OF_TAGS)),
        (f"<think>Hm.</think>{SPEAKS_OF_TAGS}", "", False, Said("Hm.", SPEAKS_OF_TAGS)),
        (SPEAKS_OF_TAGS, "Hm.", True, Said("Hm.", SPEAKS_OF_TAGS)),
    ],
)
def test_thought_and_answer(text: str, parsed: str, opened: bool, said: Said) -> None:
    assert split(text, parsed, opened) == said


@pytest.mark.parametrize(
    ("prompt", "opens"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n", False),
    ],
)
def test_a_prompt_that_ends_within_a_thought(prompt: str, opens: bool) -> None:
    assert opens_thought(prompt) == opens


@pytest.mark.parametrize(
    ("prompt", "written", "moved"),
    [
        ("a\n", "<think>\n\n</think>\n\nYes.", ("a\n<think>\n\n</think>\n\n", "Yes.")),
        ("a\n<think>\n", "\n</think>\n\nYes.", ("a\n<think>\n\n</think>\n\n", "Yes.")),
        ("a\n<think>\n", "\n</think>\n\n  Yes.", ("a\n<think>\n\n</think>\n\n", "  Yes.")),
        ("a\n<think>\n\n</think>\n\n", "Yes.", None),
        ("a\n<think>\n", "Hm.\n</think>\n\nYes.", None),
        ("a\n", "<think>\nHm.\n</think>\n\nYes.", None),
        ("a\n", "</think> is how it ends.", None),
        ("a\n", "Yes.", None),
    ],
)
def test_an_empty_thought_goes_to_the_prompt_and_any_other_stays(
    prompt: str, written: str, moved: tuple[str, str] | None
) -> None:
    assert past_thought(prompt, written) == (moved or (prompt, written))


@pytest.mark.parametrize(
    ("prompt", "written"),
    [("a\n<think>\n", "Hm. (1+1)\n</think>\n\nYes."), ("a\n", "<think>\nHm. (1+1)\n</think>\n\nYes.")],
)
def test_a_thought_that_is_context_goes_to_the_prompt(prompt: str, written: str) -> None:
    assert past_thought(prompt, written, "Hm. (1+1)\n") == ("a\n<think>\nHm. (1+1)\n</think>\n\n", "Yes.")
    assert past_thought(prompt, written, "Another.") == (prompt, written)
