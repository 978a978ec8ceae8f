"""Which parameters are trained, told by their names."""

import pytest

from apollod.errors import SelectionRefused
from apollod.model.selection import selected

TEXT = [
    "embed_tokens.weight",
    *(f"layers.{i}.{part}" for i in range(4) for part in ("mlp.up.weight", "attn.A_log")),
    "norm.weight",
]
PLAIN = [f"model.{name}" for name in TEXT] + ["lm_head.weight"]
MULTI = [f"model.language_model.{name}" for name in TEXT] + ["lm_head.weight"]
VISION = ["model.visual.blocks.0.mlp.weight", "model.visual.patch.weight"]


def layer(*numbers: int, prefix: str = "model.") -> set[str]:
    return {f"{prefix}layers.{i}.{part}" for i in numbers for part in ("mlp.up.weight", "attn.A_log")}


def select(
    names: list[str], layers: str = "", freeze: tuple[str, ...] = (), tied: dict[str, str] | None = None
) -> set[str]:
    return selected(names, layers, freeze, [*names, *VISION], tied or {})


def test_without_a_selection_everything_is_trained() -> None:
    assert select(PLAIN) == set(PLAIN)


def test_layers_leave_out_all_that_is_outside_of_them() -> None:
    assert select(PLAIN, "1-2") == layer(1, 2)
    assert select(MULTI, "0,3") == layer(0, 3, prefix="model.language_model.")


def test_patterns_take_names_away_in_either_spelling() -> None:
    assert select(PLAIN, "0", ("*.A_log",)) == {"model.layers.0.mlp.up.weight"}
    for pattern in ("model.layers.[0-2].*", "model.language_model.layers.[0-2].*"):
        assert select(MULTI, "0-3", (pattern,)) == layer(3, prefix="model.language_model.")
    assert select(PLAIN, "", ("model.visual.*",)) == set(PLAIN), "what is not trained anyway may be named"


def test_a_tied_head_and_its_embedding_are_one() -> None:
    names = [name for name in PLAIN if name != "lm_head.weight"]
    tied = {"lm_head.weight": "model.embed_tokens.weight"}
    assert select(names, "", ("lm_head.*",), tied) == set(names) - {"model.embed_tokens.weight"}


@pytest.mark.parametrize(
    ("layers", "freeze", "words"),
    [
        ("2-5", (), ["layers 4-5", "its decoder layers are 0-3"]),
        ("9", (), ["layers 9", "0-3"]),
        ("x", (), ["names no layers"]),
        ("", ("*.A_lgo",), ["freeze = '*.A_lgo'", "model.layers.0.attn.A_log"]),
        ("", ("*.A_log", "lm_haed.*"), ["'lm_haed.*'", "lm_head.weight"]),
        ("", ("*",), ["leave nothing to train"]),
        ("1", ("*.layers.1.*",), ["leave nothing to train"]),
    ],
)
def test_what_does_not_fit_the_model_is_refused_with_what_is_near(
    layers: str, freeze: tuple[str, ...], words: list[str]
) -> None:
    with pytest.raises(SelectionRefused) as refused:
        select(PLAIN, layers, freeze)
    assert all(word in refused.value.line() for word in words)
