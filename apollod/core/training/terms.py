"""Parameters of a step, shared by its intent, its record and each replay."""

from typing import Any

import msgspec


class StepTerms(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Parameters of a step besides its learning rate.

    `loss_limit`: a loss above it writes nothing; 0: no limit. `objective`: the loss, by name. `again_of`: the earlier
    step that it repeats without some examples, with the same random numbers; 0: none. `held`: ids of anchors
    (`anchor.frozen`), whose mean divergence is added to the loss `hold` times. `together`: its examples go through the
    model as one batch.
    """

    loss_limit: float = 0.0
    objective: str = "sft"
    again_of: int = 0
    held: tuple[str, ...] = ()
    hold: float = 0.0
    together: bool = False

    def terms(self) -> dict[str, Any]:
        """These fields by name, to build another form of the same step."""
        return {name: getattr(self, name) for name in StepTerms.__struct_fields__}
