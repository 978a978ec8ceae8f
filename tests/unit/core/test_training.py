"""What recovery compares before steps are run again (transcripts/training.txt has what steps do)."""

import msgspec

from apollod.core.fixed_bits import BITS_DEPEND_ON
from apollod.core.settings import OptimizerSettings


def test_every_setting_that_the_optimizer_is_given_is_compared_before_steps_are_run_again():
    assert set(BITS_DEPEND_ON) == {field.name for field in msgspec.structs.fields(OptimizerSettings)}
