"""The sequential test that decides whether a lesson is known or a behaviour is shown, with an error bound that holdsfor
any number of rounds.

The wordings of a lesson, or the held-out scenarios of a behaviour, are asked in cycles, at temperature 1 from the
nucleus of 0.9 of the probability. The process

    E_0 = 1,    E_n = E_(n-1) * (0.9 / 0.7 where answer n passes, 0.1 / 0.3 where it fails)

is the likelihood ratio of "90 of 100 answers pass" to "70 of 100 pass". For a model of which at most SHOWN of the
answers pass, on average over the wordings, the mean of E after each whole cycle is at most its value before: the factor
of a wording that passes with probability p has the mean p * 0.9 / 0.7 + (1 - p) * 0.1 / 0.3, which is linear in p and 1
at p = 0.7, and a product of means is at most their average to its power (arithmetic and geometric mean). So E, looked
at after whole cycles, is a supermartingale from 1 and exceeds 1 / a ever with probability at most a (Ville 1939). Round
r may spend a_r = ALPHA / (r * (r + 1)), and the sum over all rounds is ALPHA: with probability 1 - ALPHA a model that
shows less than SHOWN is called known in no round. Such tests may stop at any time and look as often as they like:
Shafer, Shen, Vereshchagin and Vovk 2011 (arXiv:0912.4269), Ramdas, Gruenwald, Vovk and Shafer 2023 (arXiv:2210.01948).
"""

from collections.abc import Sequence
from math import ceil, log

ALPHA = 0.05
"""largest probability that a lesson or behaviour shown in less than SHOWN of the answers is ever called known"""
SHOWN = 0.7
KNOWN = 0.9
"""share of passes for which the test is fastest: a small model that knows an answer gives another one in one of ten,
and more practice changes other answers without improving that"""
NUCLEUS = 0.9
"""nucleus of each token's probability from which answers are sampled (arXiv:1904.09751). The tail of a small model is
noise: one of ten of its answers begins with a word that nothing taught, however well it knows the rest, and practice
does not change that"""
TOLD_MIN = 0.5
"""share of held-out wordings or scenarios that the told model has to pass; below it there is nothing to learn from
it"""
ROOM = 36
"""answers of a round beyond those needed if all passed: enough for six that fail"""

_PASS, _MISS = log(KNOWN / SHOWN), log((1.0 - KNOWN) / (1.0 - SHOWN))


def bound(round_: int) -> float:
    """Natural logarithm of the value that E has to reach in this round, from 1."""
    return log(round_ * (round_ + 1) / ALPHA)


def evidence(passed: Sequence[bool]) -> float:
    """Natural logarithm of E after these answers."""
    passes = sum(passed)
    return passes * _PASS + (len(passed) - passes) * _MISS


def needed(passed: Sequence[bool], round_: int, cycle: int) -> int:
    """Further answers, in whole cycles, after which the lesson is known if all of them pass; 0: it is known."""
    missing = bound(round_) - evidence(passed)
    return max(0, ceil(ceil(missing / _PASS - 1e-9) / cycle)) * cycle


def most(round_: int, cycle: int) -> int:
    """Largest number of answers in one round."""
    return ceil((ceil(bound(round_) / _PASS) + ROOM) / cycle) * cycle


def decided(passed: Sequence[bool], round_: int, cycle: int) -> bool | None:
    """True if the lesson is known after these answers of a round, False if the rest of the round cannot show it, None
    while it can. `passed`: whole cycles, one answer to each of the `cycle` wordings in turn."""
    if not (left := needed(passed, round_, cycle)):
        return True
    return None if len(passed) + left <= most(round_, cycle) else False
