"""The table of row shapes. To add one, write a function that converts a row to a record's JSON, and a line here."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from apollod.curation.conversation import Dropped
from apollod.curation.formats.rows import alpaca, hermes_trajectories, preferences, sharegpt

Row = dict[str, Any]
"""The JSON object of a line, without null values."""


class Shape(NamedTuple):
    """A shape of rows: how to recognise and convert it."""

    name: str
    """format name of a file that begins with such a row"""
    is_it: Callable[[Row], bool]
    convert: Callable[[Row], Row | Dropped]
    """returns the input of `wire.records.record_of`, or the reason for dropping the row. Raises RecordRefused."""


SHAPES: tuple[Shape, ...] = (
    Shape("openai-dpo", preferences.is_openai, preferences.openai),
    Shape("preference", preferences.is_pair, preferences.pair),
    Shape("kto", preferences.is_rated, preferences.rated),
    Shape("hermes-trajectories", hermes_trajectories.is_it, hermes_trajectories.convert),
    Shape("sharegpt", sharegpt.is_it, sharegpt.convert),
    Shape("alpaca", alpaca.is_it, alpaca.convert),
)
"""In order of precedence. A row that matches none of them is a record as it stands, or of unknown form."""


MEDIA = ("images", "image", "videos", "video", "audios", "audio")
"""Columns with media, which a text model cannot see"""
OF_MEDIA = Dropped("about pictures, videos or sounds, which the model is not shown")


def convert(value: Mapping[str, Any]) -> Row | Dropped:
    """A row of any shape as the input of `wire.records.record_of`; further fields, such as a tier, stay. Raises
    RecordRefused."""
    row = {key: field for key, field in value.items() if field is not None}
    if any(row.get(name) for name in MEDIA):
        return OF_MEDIA
    seen = 0
    while (shape := _shape(row)) is not None and seen < 3:  # a rating may stand around another shape
        converted = shape.convert(row)
        if isinstance(converted, Dropped):
            return converted
        row = {**converted, "tier": row["tier"]} if "tier" in row else converted
        seen += 1
    return row


def name_of(value: Mapping[str, Any]) -> str:
    """The name of a row's shape; "" for a record as it stands, or an unknown form."""
    shape = _shape({key: field for key, field in value.items() if field is not None})
    return shape.name if shape is not None else ""


def _shape(row: Row) -> Shape | None:
    return next((shape for shape in SHAPES if shape.is_it(row)), None)
