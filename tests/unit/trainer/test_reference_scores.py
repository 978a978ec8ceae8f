"""How likely answers are, in blocks, is what the whole logits say."""

import pytest
import torch
from support.small_models import VOCABULARY, small_model

from apollod.errors import RecordRefused
from apollod.trainer import scoring
from apollod.trainer.scoring import POSITIONS, mean_logprob


@pytest.mark.parametrize("vocabulary", [VOCABULARY, 300])
@pytest.mark.parametrize(("start", "length"), [(1, 2), (1, 40), (39, 40), (5, 2 * POSITIONS + 7)])
def test_the_mean_of_the_tokens_from_the_start_on(vocabulary: int, start: int, length: int) -> None:
    """A large head, whose logits never exist whole, and one that is small."""
    model = small_model(vocabulary=vocabulary)
    ids = torch.randint(0, vocabulary, (length,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logprobs = model(input_ids=ids[None]).logits[0, :-1].float().log_softmax(-1)
    expected = logprobs.gather(1, ids[1:, None])[start - 1 :].double().mean().item()
    assert mean_logprob(model, tuple(ids.tolist()), start) == pytest.approx(expected, abs=1e-4)


def test_no_more_logits_exist_at_once_than_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[int]()

    def sum_(logits: torch.Tensor, targets: torch.Tensor) -> float:
        seen.append(len(logits))
        return float(len(targets))

    monkeypatch.setattr(scoring, "_sum", sum_)
    ids = tuple(range(2 * POSITIONS + 3))
    assert mean_logprob(small_model(), ids, 1) == 1.0
    assert seen == [POSITIONS, POSITIONS, 2]


@pytest.mark.parametrize(("ids", "start"), [((), 0), ((1, 2), 0), ((1, 2), 2), ((1, VOCABULARY), 1)])
def test_what_is_no_answer_of_this_model_is_refused(ids: tuple[int, ...], start: int) -> None:
    with pytest.raises(RecordRefused, match="are no answer of a model"):
        mean_logprob(small_model(), ids, start)
