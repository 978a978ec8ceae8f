"""The terms on which a step learns, shared by its intent, its record and each replay."""

from typing import Any

import msgspec


class StepTerms(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The terms on which a step learns its examples, besides its learning rate.

    `loss_limit`: a loss above it writes nothing; 0: there is no limit. `objective`: the loss, by name. `again_of`: the
    earlier step whose random numbers it takes, since it repeats that step without some of its examples; 0: its own.
    `held`: ids of anchors (`anchor.frozen`), whose mean divergence is added to the loss `hold` times. `focused`: the
    divergence of an anchor weighs each place by how far that place moved; else all places count alike. `together`: its
    examples go through the model as one batch.
    """

    loss_limit: float = 0.0
    objective: str = "sft"
    again_of: int = 0
    held: tuple[str, ...] = ()
    hold: float = 0.0
    together: bool = False
    focused: bool = False

    def terms(self) -> dict[str, Any]:
        """These fields by name, for another form of the same step."""
        return {name: getattr(self, name) for name in StepTerms.__struct_fields__}
