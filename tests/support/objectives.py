"""Objectives that live in tests only, to hold the seam of `apollod.trainer.objectives` to what it promises: one whose
gradient depends on the log-probabilities and on columns, and one that couples two sequences."""

from array import array
from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from apollod.trainer.objectives.encoding import tokenise
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.comparisons import LearnedRecord
from apollod.wire.records import CompletionRecord


class ClippedRatio:
    """The clipped surrogate of PPO (arXiv:1707.06347), with the sampler's log-probabilities as a column and advantage
    1:

    L = -mean_t min(rho_t, clip(rho_t, 0.8, 1.2))        rho = exp(logp - mu)
    """

    name = "clipped-ratio"
    token_mean = False

    def encode(self, tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int) -> Tokens:
        tokens = tokenise(tokenizer, record, max_tokens)
        learned = [token for token, mask in zip(tokens.ids, tokens.mask, strict=True) if mask]
        mu = array(
            "f", [-6.7 - (7 * token % 11) / 40 for token in learned]
        )  # about what a random model of 896 tokens says
        return Tokens(tokens.ids, tokens.mask, tokens.cut, {"mu": mu})

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        ratio = (logps - columns["mu"]).clamp(-20, 20).exp()
        return -torch.minimum(ratio, ratio.clamp(0.8, 1.2)).mean()

    def weight(self, tokens: Tokens) -> float:
        return 1.0  # a sequence counts as one, whatever its length

    def metrics(self, logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
        return {"ratio": (logps - columns["mu"]).exp().mean().item()}


class Preference:
    """DPO (arXiv:2305.18290) of "GOOD|BAD" completions: two sequences, one loss.

    L = -log s(b sum_t sign_t (logp_t - ref_t))        b 0.1, sign 1 for the chosen answer, -1 for the other
    """

    name = "preference"
    token_mean = False

    def encode(self, tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int) -> Tokens:
        assert isinstance(record, CompletionRecord)
        good, bad = (
            tokenise(tokenizer, CompletionRecord(record.prompt, answer), max_tokens)
            for answer in record.completion.split("|")
        )
        columns = {
            "sign": array("q", [1] * good.targets + [-1] * bad.targets),
            "ref": array("f", [-5.0] * (good.targets + bad.targets)),
        }
        return Tokens(good.ids + bad.ids, good.mask + bad.mask, 0, columns, (0, len(good.ids)))

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        return -torch.nn.functional.logsigmoid(0.1 * (columns["sign"] * (logps - columns["ref"])).sum())

    def weight(self, tokens: Tokens) -> float:
        return 1.0

    def metrics(self, logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
        return {}
