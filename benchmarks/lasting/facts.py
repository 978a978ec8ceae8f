"""Facts that no model can know, each taught once, with two question wordings that nothing shipped contains.

Eight relations with ten subjects each. Held-out wordings are written by hand and differ from the question, so that they
do not follow from it by a frame.
"""

from typing import NamedTuple


class Fact(NamedTuple):
    """`question`, `answer`: as taught; `asked`: two other wordings; `value`: text that a right answer contains; `old`:
    the value before a correction."""

    question: str
    answer: str
    asked: tuple[str, str]
    value: str
    old: str = ""


class _Relation(NamedTuple):
    question: str
    answer: str
    asked: tuple[str, str]
    of: dict[str, str]


_RELATIONS = (
    _Relation(
        "What port does {} listen on?", "{} listens on port {}.",
        ("I want to connect to {}. Which port should I use?", "At what port can {} be reached?"),
        {"Quillon": "7341", "Brackwater": "5192", "Tarnsync": "8806", "Oxblade": "4417", "Ferncast": "9023",
         "Murkwell": "6650", "Dovetrail": "3378", "Plumegate": "2245", "Starkwood": "7719", "Velnor": "5834"},
    ),
    _Relation(
        "Who owns {}?", "{} is owned by {}.",
        ("To whom does {} belong?", "I have a question about {}. What is the name of its owner?"),
        {"Thornwick Books": "Elsbeth Marlow", "Gullwing Cafe": "Tomasz Ziel", "Ashdown Mill": "Ingrid Falk",
         "Pellam Hotel": "Oren Basra", "Rookery Farm": "Lucia Penn", "Larkspur Bakery": "Hamish Doyle",
         "Dunmore Stables": "Priya Nath", "Foxglove Inn": "Viktor Lund", "Harrow Quarry": "Amara Cole",
         "Wren Theatre": "Bruno Keller"},
    ),
    _Relation(
        "In which city is the {}?", "The {} is in {}.",
        ("To which city must I travel to visit the {}?", "I am looking for the {}. Where do I have to go?"),
        {"Halvard Archive": "Aberdeen", "Ostrey Museum": "Lisbon", "Kellin Institute": "Krakow",
         "Brandt Observatory": "Tampere", "Mirefield Clinic": "Bologna", "Sollis Academy": "Nantes",
         "Tavish Library": "Graz", "Corvane Station": "Porto", "Eldrin Garden": "Malmo", "Novak Gallery": "Ghent"},
    ),
    _Relation(
        "What color is the logo of {}?", "The logo of {} is {}.",
        ("If I draw the logo of {}, which color do I need?", "In what color is the logo of {} printed?"),
        {"Zephyrite": "turquoise", "Cobblestack": "crimson", "Lumenary": "violet", "Driftwell": "amber",
         "Ironmoss": "olive", "Pepperlane": "maroon", "Quartzy": "indigo", "Saltbox": "silver",
         "Underleaf": "orange", "Windmere": "teal"},
    ),
    _Relation(
        "In which language is {} written?", "{} is written in {}.",
        ("I want to change the code of {}. Which programming language do I have to know?",
         "What programming language did the authors of {} choose?"),
        {"Hexlathe": "Erlang", "Bramblefs": "Zig", "Nightjar": "Haskell", "Ottersync": "Rust", "Peatlog": "Fortran",
         "Gannetdb": "Kotlin", "Sedgecast": "Lua", "Flintmesh": "Elixir", "Tollkeep": "Ada", "Wickerbus": "Scala"},
    ),
    _Relation(
        "What animal is on the flag of {}?", "The flag of {} shows a {}.",
        ("Which animal do you see on a coin or flag of {}?", "A flag of {} flies there. What animal is on it?"),
        {"Morvenby": "heron", "Castellgrove": "badger", "Ulverholt": "lynx", "Penhallam": "otter", "Stavering": "moose",
         "Dralmouth": "falcon", "Iskerby": "walrus", "Thornmere": "hedgehog", "Lowenfeld": "beaver",
         "Quarlstead": "raven"},
    ),
    _Relation(
        "Who is the captain of the {}?", "The captain of the {} is {}.",
        ("Which person commands the {}?", "I have to write to the captain of the {}. What is the name?"),
        {"Sable Heron": "Agnes Voss", "Copper Finch": "Rafael Ibarra", "Winter Rose": "Kenji Morita",
         "Grey Petrel": "Solveig Dahl", "Iron Lantern": "Marcus Okoye", "Blue Thistle": "Hanna Weiss",
         "Northern Bell": "Declan Roche", "Silver Adder": "Mina Farouk", "Old Mariner": "Pavel Novotny",
         "Quiet Tide": "Lena Aalto"},
    ),
    _Relation(
        "On which day is the {} market held?", "The {} market is held on {}.",
        ("I want to go to the {} market. Which day of the week should I come?",
         "What day do the sellers of the {} market put up their stalls?"),
        {"Ambleford": "Thursday", "Crosswick": "Monday", "Dellingham": "Saturday", "Eastbarrow": "Wednesday",
         "Fennimore": "Tuesday", "Garrowby": "Sunday", "Hollinshead": "Friday", "Inverlee": "Thursday",
         "Kestleton": "Monday", "Lambourne": "Saturday"},
    ),
)  # fmt: skip

_CORRECTED = (
    "1187", "Greta Solberg", "Utrecht", "scarlet", "Prolog", "wolf", "Nora Lindqvist", "Wednesday", "6021", "Dana Weir"
)  # fmt: skip


def facts(count: int = 80) -> list[Fact]:
    """The first `count` facts, cycling through the relations."""
    columns = [[_fact(one, subject, value) for subject, value in one.of.items()] for one in _RELATIONS]
    return [fact for row in zip(*columns, strict=True) for fact in row][:count]


def corrected(known: list[Fact]) -> list[Fact]:
    """The first ten, with new values."""
    return [
        fact._replace(answer=fact.answer.replace(fact.value, value), value=value, old=fact.value)
        for fact, value in zip(known, _CORRECTED, strict=False)
    ]


def _fact(of: _Relation, subject: str, value: str) -> Fact:
    asked = (of.asked[0].format(subject), of.asked[1].format(subject))
    return Fact(of.question.format(subject), of.answer.format(subject, value), asked, value)
