"""Counts the known follow-up cases that a model classifies correctly: `python -m benchmarks.follow_ups --model DIR
--json`.

The question, the cases and the rule are those of the product; the model runs in transformers, without an engine.
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from apollod.core.facts.followups import Known, counted, measured, shortfall
from apollod.curation.signals.follow_up_question import LIKELIEST, follow_up_question, log_odds, shipped_cases
from apollod.foreign_wheels import guard


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="directory of a model with a chat template")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    told = list(answers(args.model))
    found, at_zero = measured(told), counted(told, 0.0)
    figures = {
        "cases": found.cases, "right": found.right, "rejecting": found.rejecting, "flagged": found.flagged,
        "hits": found.hits, "used": not shortfall(found), "reason": shortfall(found), "right_at_0": at_zero.right,
        "flagged_at_0": at_zero.flagged,
    }  # fmt: skip
    print(json.dumps(figures) if args.json else "\n".join(f"{name}: {value}" for name, value in figures.items()))


def answers(model_dir: str) -> Iterator[Known]:
    """The answers to all cases, in the order of their file."""
    guard()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
    model: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16).eval()
    for case in shipped_cases():
        asked = tokenizer.apply_chat_template(
            follow_up_question(case.asked, case.answer, case.reply), add_generation_prompt=True, return_tensors="pt",
            return_dict=True, enable_thinking=False,
        )  # fmt: skip
        with torch.no_grad():
            logprobs = torch.log_softmax(model(asked["input_ids"]).logits[0, -1].float(), -1)
        values, ids = logprobs.topk(LIKELIEST)
        pairs = zip(ids.tolist(), values.tolist(), strict=True)
        likeliest = [(tokenizer.decode([token]), value) for token, value in pairs]
        yield Known(log_odds(likeliest), case.rejects)


if __name__ == "__main__":
    main()
