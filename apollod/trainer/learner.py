"""Everything that a step needs: the bound weights, an optimizer with its hooks in place and a tokenizer; encodes
examples."""

from array import array
from collections.abc import Sequence
from pathlib import Path

from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from apollod.core.settings import Kernels, Products
from apollod.errors import ApolloError, RecordRefused
from apollod.explain import line_of
from apollod.products import products_in
from apollod.trainer.bind.attach import Attached
from apollod.trainer.bind.live_weights import ModelDir, Weights
from apollod.trainer.environment import chosen_kernels, chosen_products, environment, without_triton
from apollod.trainer.memory import lacks_memory
from apollod.trainer.objectives.encoding import template_problem
from apollod.trainer.objectives.loss import log_probabilities
from apollod.trainer.objectives.objective import Objective
from apollod.trainer.objectives.table import encoded, objective_of, referred
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.optim.backward_updates import HookHandle
from apollod.trainer.optim.named_optimizer import NamedOptimizer
from apollod.trainer.optim.optimizers import make_optimizer
from apollod.trainer.undo.undo_ring import UndoRing
from apollod.wire import messages as m
from apollod.wire.comparisons import Compared, GroupRecord, decode_learned, needs_reference, with_reference
from apollod.wire.manifest import Manifest
from apollod.wire.teacher import GivenBlob, digest_of


class Untrained:
    """The weights before the first step, as a second model in host memory: the reference of an objective that holds
    answers near it (`kl`). Only a daemon that learns by such an objective loads them, as much memory as the files take.
    They are those of the first of `directories` whose weights have this `fingerprint`."""

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


class Learner:
    """Model, optimizer with its hooks in place, and tokenizer, from `Attach` on."""

    def __init__(
        self,
        attached: Attached,
        settings: m.OptimizerSettings,
        tokenizer: PreTrainedTokenizerBase,
        undo_bytes: int = 0,
        kernels: Kernels = "auto",
        undo_refused: str = "",
        products: Products = "auto",
    ) -> None:
        self.attached = attached
        self.settings = settings
        self.tokenizer = tokenizer
        self.undo = UndoRing(undo_bytes) if undo_bytes else None
        self._undo_refused = undo_refused or "[checkpoint] undo_bytes = 0"
        self.kernels = chosen_kernels(kernels, settings.name, attached.device)
        self.products = chosen_products(products, attached.device)
        self.optimizer, self._hooks = self._make_optimizer()
        self._warm_up(kernels)

    def _warm_up(self, wanted: Kernels) -> None:
        """Compile all kernels before the first step; if that fails and there is a choice, use others."""
        if self.kernels != "triton":
            return
        try:
            self.optimizer.warm_up()
        except Exception as error:  # whatever a compiler or driver raises
            if lacks_memory(error):
                raise
            self.kernels = without_triton(wanted, line_of(error))
            self.forget()

    def forget(self) -> None:
        """Replace the optimizer by a fresh one for the present `attached` and `settings`."""
        self._hooks.remove()
        del self.optimizer, self._hooks  # the state of both together may not fit
        self.optimizer, self._hooks = self._make_optimizer()

    def _make_optimizer(self) -> tuple[NamedOptimizer, HookHandle]:
        optimizer = make_optimizer(self.settings, self.attached.trainable, self.attached.round_to, self.kernels)
        if self.undo is not None:
            self.undo.clear()  # its steps lead to the state of another optimizer
            optimizer.undo = self.undo
        return optimizer, optimizer.attach()

    def take_back(self, step: int, fingerprint: str) -> str:
        """Undo the steps since `step`, after which the weights had this fingerprint, if memory keeps them all. Returns
        the resulting fingerprint; empty if nothing was undone."""
        if self.undo is None or (count := self.undo.leads_to(step, fingerprint)) is None:
            return ""
        self.undo.undo(count)
        found = self.attached.weights.fingerprint()
        if found != fingerprint:  # memory did not hold what the steps had left
            self.undo.clear()
        return found

    def undoable(self) -> m.Undoable:
        """Number of steps that `take_back` could undo now, and the reason if none."""
        if self.undo is None:
            return m.Undoable(0, self._undo_refused)
        return m.Undoable(len(self.undo), self.undo.given_up)

    def encode(self, record: bytes, objective: Objective, digest: str = "") -> Tokens:
        tokens = encoded(self.tokenizer, record, objective, self.settings.max_tokens, digest)
        tokens.check_vocabulary(self._vocabulary)
        return tokens

    def reference(self, record: Compared, untrained: Untrained = UNKNOWN) -> bytes:
        """The file of its reference: log-probabilities under the present weights, of a group under those before the
        first step. Raises RecordRefused."""

        def scored(tokens: Tokens) -> bytes:
            tokens.check_vocabulary(self._vocabulary)
            model = untrained.model() if isinstance(record, GroupRecord) else self.attached.model
            with products_in(self.products):
                found = log_probabilities(model, tokens)
            return array("f", found.tolist()).tobytes()

        return referred(self.tokenizer, record, self.settings.max_tokens, scored)

    @property
    def _vocabulary(self) -> int:
        return int(self.attached.model.config.get_text_config().vocab_size)


def bound(learner: Learner, manifest: Manifest) -> m.Bound:
    """Report what was bound, and everything that the bits of a step depend on besides settings, weights and example."""
    attached = learner.attached
    views = {t.name: t for t in manifest.tensors if t.status != "frozen"}
    held = {name: t.dtype for name, t in views.items() if t.dtype != t.stored_dtype}
    held |= {
        name: "frozen" for name in attached.weights.source.tensors if name not in views and name not in manifest.tied
    }
    return m.Bound(
        fingerprint=attached.weights.fingerprint(),
        parameters=len(attached.trainable),
        elements=sum(p.numel() for _, p in attached.trainable),
        versions=environment(attached.device, learner.kernels, learner.settings.name),
        held=held,
        tied=manifest.tied,
        products=learner.products,
        template=template_problem(learner.tokenizer),
    )


def checked(learner: Learner, example: m.StepExample, objective: Objective) -> Tokens:
    """The example's tokens; raises RecordRefused unless they and their columns equal the recorded ones."""
    tokens = learner.encode(example.record, objective, example.digest)
    if tokens.digest() != example.digest:
        raise RecordRefused(
            f"example {example.example} is {tokens.digest()} as tokens of {objective.name}, not {example.digest}",
            "tokenizer, chat template or max_tokens changed since it was accepted: put them back",
        )
    return tokens


def encode(
    learner: Learner, example: str, record: bytes, objective: Objective | None = None, untrained: Untrained = UNKNOWN
) -> m.Encoded:
    """The number of tokens of one example, by the record's own objective if none is given, or the reason why it cannot
    be learned; and the reference of a comparison that has none yet.

    Exceptions of templates and tokenizers become a refusal, so that an example never ends the trainer: it would do so
    again after the restart.
    """
    file, reference = b"", ""
    try:
        learned = decode_learned(record)
        if needs_reference(learned):
            file = learner.reference(learned, untrained)
            reference = digest_of(file)
            record = with_reference(record, GivenBlob(reference, file))
        elif isinstance(learned, Compared) and learned.reference is not None:
            reference = learned.reference.digest
        objective = objective or objective_of(learned)
        tokens = learner.encode(record, objective)
    except RecordRefused as error:
        return m.Encoded(example, refused=error.line())
    except Exception as error:  # noqa: BLE001 - see above
        return m.Encoded(example, refused=f"it cannot be tokenised ({line_of(error)})")
    return m.Encoded(
        example, tokens.room, tokens.targets, tokens.cut, tokens.digest(), objective=objective.name,
        changes=dict(tokens.changes), file=file, reference=reference,
        untrained=bool(file) and isinstance(learned, GroupRecord),
    )  # fmt: skip
