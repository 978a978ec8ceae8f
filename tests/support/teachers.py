"""Teachers that are made up, for answers whose tokens are given."""

import math
import random
from array import array
from collections.abc import Sequence

from apollod.wire.teacher import GivenTeacher, Teacher, digest_of, write_teacher


def made_up(answer: Sequence[int], vocabulary: int, k: int = 4, seed: int = 0, inside: float = 0.9) -> Teacher:
    """Who gives `k` of the tokens, the answer's own the first of them, together the probability `inside`."""
    chance = random.Random(seed)
    ids, logprobs = array("I"), array("f")
    for token in answer:
        others = chance.sample([one for one in range(vocabulary) if one != token], k - 1)
        shares = sorted((chance.random() + 0.1 for _ in range(k)), reverse=True)
        ids.extend([token, *others])
        logprobs.extend(math.log(inside * share / sum(shares)) for share in shares)
    return Teacher(array("I", answer), ids, logprobs, k, 7)


def given(teacher: Teacher) -> GivenTeacher:
    """As it stands in a record."""
    blob = write_teacher(teacher)
    return GivenTeacher(digest_of(blob), blob)
