"""The weights before the first step, as a second model in host memory: the reference of an objective that holds answers
near it (`kl`). Only a daemon that learns by such an objective loads them, as much memory as the files take."""

from collections.abc import Sequence
from pathlib import Path

from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from apollod.errors import ApolloError, RecordRefused
from apollod.trainer.bind.live_weights import ModelDir, Weights


class Untrained:
    """Finds them in the first of `directories` whose weights have this `fingerprint`."""

    def __init__(self, directories: Sequence[str], fingerprint: str) -> None:
        self.directories, self.fingerprint = tuple(directories), fingerprint
        self._model: PreTrainedModel | None = None

    def model(self) -> PreTrainedModel:
        """The model, loaded at the first call. Raises RecordRefused where no directory has these weights."""
        if self._model is None:
            self._model = _loaded(self._directory())
        return self._model

    def _directory(self) -> str:
        for directory in self.directories:
            try:
                if Weights(ModelDir.open(Path(directory)), {}, {}).fingerprint() == self.fingerprint:
                    return directory
            except (ApolloError, OSError):  # it is not there, or half a copy
                continue
        places = " nor in ".join(self.directories) or "any directory"
        raise RecordRefused(
            f"kl holds answers near the weights before the first step, which are not in {places}",
            'set [checkpoint] keep_base = "auto" for a new journal, or kl = 0',
        )


UNKNOWN = Untrained((), "")
"""no directory was named"""


def _loaded(directory: str) -> PreTrainedModel:
    disable_progress_bar()  # type: ignore[no-untyped-call]
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        directory, dtype="auto", attn_implementation="sdpa", local_files_only=True
    )
    model.requires_grad_(False)
    model.eval()  # type: ignore[no-untyped-call]
    return model
