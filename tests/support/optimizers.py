"""Every optimizer that a configuration can name, by its settings, and parameters that show its blocks and codes."""

import pytest
from support.gradients import SHAPES

from apollod.trainer.optim import moments
from apollod.trainer.optim.moments import QuantizerMissing

KINDS = {
    "apollo": {"rank": 8},
    "apollo-bf16": {"rank": 8, "moments": "bfloat16"},
    "apollo-mini": {"rank": 1, "scale": "tensor"},
    "adamw": {},
    "adamw-bf16": {"moments": "bfloat16"},
    "adafactor": {},
    "adamw8bit": {},
}
WIDE = SHAPES | {"wide.weight": (72, 60)}  # above 4096 elements: 8-bit moments; blocks of 1024 end inside a row


def quantizer_here() -> bool:
    try:
        moments.quantizer()
    except QuantizerMissing:
        return False
    return True


needs_bitsandbytes = pytest.mark.skipif(not quantizer_here(), reason="bitsandbytes is not installed")
every_kind = pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=needs_bitsandbytes if k == "adamw8bit" else ()) for k in KINDS]
)
