"""Signatures of texts agree about as much as the texts do."""

import random

from apollod.core.facts.intake.repeats import bands, similarity
from apollod.curation.signatures import signature


def words(chance: random.Random, number: int) -> list[str]:
    return [f"w{chance.randint(0, 9999)}" for _ in range(number)]


def changed(chance: random.Random, text: list[str], number: int) -> list[str]:
    new = list(text)
    for place in chance.sample(range(len(new)), number):
        new[place] = f"x{chance.randint(0, 9999)}"
    return new


def jaccard(one: list[str], other: list[str]) -> float:
    first, second = (set(zip(text, text[1:], text[2:], strict=False)) for text in (one, other))
    return len(first & second) / len(first | second)


def test_the_estimate_is_as_good_as_it_is_said_to_be() -> None:
    chance = random.Random(0)
    for size, error_max in ((60, 0.06), (400, 0.045), (4000, 0.045)):
        errors = []
        for _ in range(120):
            one = words(chance, size)
            other = changed(chance, one, chance.randint(0, size // 10))
            errors.append(similarity(signature(" ".join(one)), signature(" ".join(other))) - jaccard(one, other))
        bias = sum(errors) / len(errors)
        deviation = (sum(error**2 for error in errors) / len(errors)) ** 0.5
        assert deviation < error_max and abs(bias) < 0.01, (size, deviation, bias)


def test_texts_that_are_nearly_the_same_share_a_band_and_others_hardly_ever() -> None:
    chance = random.Random(1)
    near, far = 0, 0
    for _ in range(200):
        one = words(chance, 300)
        other = changed(chance, one, 4)  # 12 of 298 shingles: about 0.92
        near += bool(set(bands(signature(" ".join(one)))) & set(bands(signature(" ".join(other)))))
        far += bool(set(bands(signature(" ".join(one)))) & set(bands(signature(" ".join(words(chance, 300))))))
    assert near >= 199 and far == 0


def test_case_and_white_space_do_not_count_and_a_short_text_has_none() -> None:
    text = words(random.Random(2), 50)
    assert signature(" ".join(text)) == signature("\n  ".join(text).upper()) != ""
    assert similarity(signature(" ".join(text)), signature(" ".join(text))) == 1
    assert signature(" ".join(text[:39])) == ""


def test_a_signature_never_changes() -> None:
    """Those in journals are compared with new ones: another one needs another scheme."""
    text = " ".join(str(n) for n in range(60))
    assert signature(text) == (
        "w3-oph128:08zxzHEqYh82fxNxeyZ/f+DlE/wx0XthMXZOLzZwD/m0e/x7fNP+O3YJw3DM18D+0Y8FE2gFO7TRL4wxYv52Jox8MXwFNmHTcNG0BQ"
        "+M0dG94L3l8QkqNnwqD04J17Rmdh9ovR8xaMCM12j+JrTl5cNicY/gcWYvO04m8Y+9fIw="
    )


def test_signatures_of_another_scheme_resemble_nothing() -> None:
    mine = signature(" ".join(words(random.Random(3), 50)))
    assert similarity(mine, "w5-oph256:" + mine.partition(":")[2]) == 0 and not list(bands("w5-oph256:AAAA"))
