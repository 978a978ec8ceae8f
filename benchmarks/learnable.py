"""Counts the answers of real logs that can be learned under the chat templates of real models: `python -m
benchmarks.learnable PATH... --json`.

Reads logs like `source test --model '*' --sidechains`, gives the tokenizer of a model directory one template after the
other, and encodes each example like the trainer at the default `max_tokens`. An answer counts if all of its parts can
be learned; the trainer refuses one whose text is missing from the learned tokens. The caller names the template files
(llama.cpp keeps those of models in models/templates); their marks are made tokens of the tokenizer, as in their models.
"""

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from apollod import foreign_wheels

foreign_wheels.guard()

from transformers import PreTrainedTokenizerBase  # noqa: E402

from apollod.adapters.sources.source_files import Terms  # noqa: E402
from apollod.adapters.sources.trial import Trial  # noqa: E402
from apollod.core.settings import OptimizerSettings  # noqa: E402
from apollod.curation.moments import Learned, Rules  # noqa: E402
from apollod.errors import RecordRefused  # noqa: E402
from apollod.trainer.objectives.encoding import load_tokenizer, tokenise  # noqa: E402
from apollod.wire.records import decode_record  # noqa: E402

OWN = "of the model directory"
_MARKS = re.compile(r"<\|[a-z_]+\|>|<(?:start|end)_of_turn>|\[/?[A-Z_]{4,}\]|</?s>")


def read(paths: Iterable[str], max_tokens: int) -> tuple[list[Learned], dict[str, Any]]:
    """The examples of all logs, and statistics about them."""
    rules = Rules(models=("*",), sidechains=True, context_tokens=max_tokens)
    begin, learned, found, why, size = time.process_time(), list[Learned](), 0, Counter[str](), 0
    for path in paths:
        trial = Trial(Terms(rules))
        learned += [tried.learned for tried in trial.read(Path(path)) if tried.learned is not None]
        for reasons in trial.answers.values():
            found += reasons.total()
            why.update({reason: count for reason, count in reasons.items() if reason != "learned"})
    size = sum(len(one.record.canonical) for one in learned)
    facts = {
        "found": found, "examples": len(learned), "not_examples": dict(why), "read_cpu_s": time.process_time() - begin,
        "record_bytes_mean": size // max(1, len(learned)),
    }  # fmt: skip
    return learned, facts


def score(tokenizer: PreTrainedTokenizerBase, examples: list[Learned], max_tokens: int) -> dict[str, Any]:
    """Statistics of examples under the tokenizer's template."""
    refused, changes, lost = Counter[str](), Counter[str](), set[int]()
    targets, cut, longest, begin = 0, 0, 0, time.process_time()
    answers: dict[int, int] = {}
    number = -1
    for one in examples:
        number += 0 if one.taught.responses and one.taught.responses[0].part else 1
        answers[number] = max(1, len(one.taught.responses))
        try:
            tokens = tokenise(tokenizer, decode_record(one.record.canonical), max_tokens)
        except RecordRefused as error:
            refused[error.args[0]] += 1
            lost.add(number)
            continue
        targets, cut, longest = targets + tokens.targets, cut + (tokens.cut > 0), max(longest, len(tokens.ids))
        changes.update(dict.fromkeys(tokens.changes, 1))
    whole = sum(count for n, count in answers.items() if n not in lost)
    return {
        "answers": sum(answers.values()), "learnable": whole, "cut": cut, "targets": targets, "longest": longest,
        "refused": dict(refused), "changes": dict(changes.most_common()),
        "cpu_ms_an_example": 1000 * (time.process_time() - begin) / max(1, len(examples)),
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", help="logs, or directories of them")
    parser.add_argument("--model-dir", required=True, help="whose tokenizer it is")
    parser.add_argument("--template", action="append", default=[], help="file of a chat template; may be repeated")
    parser.add_argument("--max-tokens", type=int, default=OptimizerSettings().max_tokens)
    parser.add_argument("--every", type=int, default=1, help="only each N-th example")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    examples, facts = read(args.paths, args.max_tokens)
    result: dict[str, Any] = {"max_tokens": args.max_tokens, "every": args.every, **facts, "templates": {}}
    for name in ["", *args.template]:
        tokenizer = load_tokenizer(args.model_dir)
        if name:
            tokenizer.chat_template = template = Path(name).read_text(encoding="utf-8")
            tokenizer.add_special_tokens({"additional_special_tokens": sorted(set(_MARKS.findall(template)))})
        result["templates"][Path(name).stem or OWN] = score(tokenizer, examples[:: args.every], args.max_tokens)
    if args.json:
        print(json.dumps(result))
        return
    print(f"{facts['found']} answers found, {facts['examples']} examples; not examples: {facts['not_examples']}")
    for name, one in result["templates"].items():
        print(f"{one['learnable']:>6} of {one['answers']} {name}: {one['refused'] or ''} {one['changes']}")


if __name__ == "__main__":
    main()
