"""English in the forms of statements and questions about facts: verbs by their forms, stems of words, a statement split
into subject, verb and the rest, and a question reordered.
"""

import re
from typing import NamedTuple

# --- verbs ------------------------------------------------------------------------------------------------------------

BE = frozenset("is are was were am".split())
MODALS = frozenset("can could will would shall should may might must".split())
_REGULAR = """
accept accompany add advertise aim air allow answer appear apply approve arrive ask attend award back bake base
belong border bottle burn call carry cause celebrate chair change charge check claim close collect combine command
compete compile complete compose concern conduct connect consist contain continue contribute control cook cost cover
create cross dance date deal debut deliver depend describe design destroy develop die direct discover display divide
double earn edit educate elect employ enable end enter equal erase establish examine exist expire export express
face fail feature finish fire fish float flow follow form found gain govern graduate guard handle happen head help
hire honor host house identify import improve include incorporate increase influence inhabit inherit inspire install
introduce invade invent invest involve issue join jump kill land last laugh launch learn lecture like limit link
list listen live load locate look love maintain manage manufacture marry match mean measure mention mentor migrate
mix move name need occupy offer open operate order organize originate own paint park pass pay perform phone pitch
plan plant play portray prefer premiere present preserve press prevent print produce promote protect prove publish
purchase raise reach receive record refer register reign relate release rely remain remove rent repair replace
report represent require research reside respect respond rest result retire return review rotate rule sail save
score serve share ship sign sound sponsor star start stay steer stop store study succeed supply support surround
switch talk target taste tend test touch tow trade train transfer translate travel treat turn use value visit vote
wait walk want warn wash watch weigh work worship yield
"""
_IRREGULAR = """
be:was become:became begin:began bite:bit blow:blew break:broke bring:brought build:built buy:bought catch:caught
choose:chose come:came cut:cut do:did draw:drew drink:drank drive:drove eat:ate fall:fell feed:fed feel:felt
fight:fought find:found fly:flew forbid:forbade forget:forgot get:got give:gave go:went grow:grew hang:hung have:had
hear:heard hide:hid hit:hit hold:held keep:kept know:knew lay:laid lead:led leave:left lend:lent let:let lie:lay
lose:lost make:made mean:meant meet:met put:put read:read ride:rode ring:rang rise:rose run:ran say:said see:saw
seek:sought sell:sold send:sent set:set shoot:shot show:showed shut:shut sing:sang sink:sank sit:sat sleep:slept
speak:spoke spend:spent spread:spread stand:stood steal:stole swim:swam take:took teach:taught tell:told think:thought
throw:threw understand:understood wear:wore win:won write:wrote
"""


class Verb(NamedTuple):
    """`do`: the auxiliary that makes questions with the base form."""

    base: str
    do: str


def stem(word: str) -> str:
    """The word without a common inflection: the same for "greet", "greets" and "greeting"."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            return word.removesuffix(ending)
    return word


def third(base: str) -> str:
    """The third person singular: "carry" becomes "carries"."""
    if base in ("have", "be"):
        return {"have": "has", "be": "is"}[base]
    if base.endswith(("s", "x", "ch", "sh", "o", "z")):
        return base + "es"
    return base[:-1] + "ies" if base.endswith("y") and base[-2] not in "aeiou" else base + "s"


def _past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    doubled = base in ("ship", "stop", "star", "plan", "control", "transfer", "refer", "prefer", "chat")
    return base + base[-1] + "ed" if doubled else base + "ed"


PASTS = {base: _past(base) for base in _REGULAR.split()} | dict(one.split(":") for one in _IRREGULAR.split())
"""Past forms by base."""
BASES = frozenset(PASTS)
FORMS = (
    {base: Verb(base, "do") for base in PASTS}
    | {past: Verb(base, "did") for base, past in PASTS.items()}
    | {third(base): Verb(base, "does") for base in PASTS}
)
"""Verbs by each of their forms."""


# --- statements -------------------------------------------------------------------------------------------------------

WORDS_MAX, _SUBJECT_MAX = 60, 14
_SMALL = frozenset(
    "the a an my our your his her its their this that these those all every each no some most many we you they he "
    "she it".split()
)
_PARTICIPLE = re.compile(r"\w+(?:ed|en)|made|built|held|sold|led|run|known|sung|won|found")
_ARTICLES = frozenset("the a an".split())
_NOUN_BEFORE = frozenset("of the a an for his her its their my our your in".split())
_JOINS = frozenset("and which that who".split())
_ORDERS = frozenset("always please do don't never let let's use make write answer speak say".split())
_CONTRACTED = ((r"\b([Cc])an(?:no|['’])t\b", r"\1an not"), (r"\b([Ww])on['’]t\b", r"\1ill not"), (r"n['’]t\b", " not"))


class Clause(NamedTuple):
    """`base`: "be" for all its forms. `do`: the auxiliary for a question: does, do or did; "is" and "can" are their
    own."""

    subject: str
    verb: str
    base: str
    do: str
    rest: str


def clause_in(sentence: str) -> Clause | None:
    """The clause of a sentence without its full stop; None where no verb is known."""
    for contracted, written in _CONTRACTED:
        sentence = re.sub(contracted, written, sentence)
    words = sentence.split()
    if not 2 < len(words) <= WORDS_MAX or words[0].lower() in _ORDERS:
        return None
    words, behind = _fronted(words)
    if (at := _verb_at(words)) is None:
        return _beside(words)
    subject = re.sub(r",? (?:that|which|who)$", "", _begun(words[:at]))
    if subject.endswith(","):  # "Quillon, made by Marlow"
        return Clause(subject[:-1] + behind, "is", "be", "is", " ".join(words[at:]))
    base, do = _known(words[at])
    return Clause(subject + behind, words[at], base, do, " ".join(words[at + 1 :]))


def _begun(words: list[str]) -> str:
    """The words as part of a sentence: an article or pronoun at the beginning loses its capital."""
    return " ".join([words[0].lower() if words[0].lower() in _SMALL else words[0], *words[1:]])


def _beside(words: list[str]) -> Clause | None:
    """ "Orland's capital, Velmar" as a clause with "is"."""
    before, comma, after = _begun(words).partition(", ")
    owned = comma and re.search(r"['’]s? [a-z]+$", before)
    return Clause(before, "is", "be", "is", after) if owned else None


def _fronted(words: list[str]) -> tuple[list[str], str]:
    """The words without a fronted place, and that place: "In Joensuu, the language is Finnish" is read as "the language
    in Joensuu is Finnish"."""
    if words[0] in ("In", "At", "On"):
        for at, word in enumerate(words[:6]):
            if word.endswith(",") and len(words) > at + 3:
                return words[at + 1 :], " ".join(["", words[0].lower(), *words[1:at], word.rstrip(",")])
    return words, ""


def _verb_at(words: list[str]) -> int | None:
    """Index of the first verb, or of a later form of "be" if the first is a participle or looks like a noun."""
    places = [at for at in range(1, min(len(words), _SUBJECT_MAX)) if _is_verb(words[at], words[at - 1])]
    if not places:
        return None
    first = places[0]
    of_subject = _PARTICIPLE.fullmatch(words[first]) or FORMS.get(words[first], Verb("", "")).do == "do"
    for at in places[1:] if of_subject or words[first - 1] in _NOUN_BEFORE else ():
        if words[at] in BE and not (words[at - 1].endswith(",") or words[at - 1] in _JOINS):
            return at
    return first


def _is_verb(word: str, before: str) -> bool:
    if before.lower() in _ARTICLES:  # "the house", "a cook"
        return False
    if word == "am":  # "3 am"
        return before == "I"
    return word in BE or word in MODALS or word in FORMS


def _known(verb: str) -> Verb:
    if verb in BE:
        return Verb("be", verb)
    return Verb(verb, verb) if verb in MODALS else FORMS[verb]


# --- questions --------------------------------------------------------------------------------------------------------

_ASKS = re.compile(
    r"(?:(?:at|by|for|from|in|of|on|to|under|with|until|since)\s)?(?:who|whom|whose|what|which|when|where|why|how)\b",
    re.I,
)
_AUXILIARIES = BE | MODALS | {"does", "do", "did", "has", "have", "had"}
_PARTICIPLES = frozenset(
    "born made built held known found written sung spoken drawn sold won led taught worn run set based".split()
)
_PREPOSITIONS = frozenset("from in on at by to of for with about like under behind".split())
_OPENERS = frozenset(
    "the a an my our your his her its their this that these those it he she they we i you there first second".split()
)
_WORD_MAX = 40
_KIND = 5
"""most words of the question phrase: "how many of the old legs" """


class Embedded(NamedTuple):
    """Words of a question in the order of a statement: `asked` (question phrase, "in which city"), `subject`, `verb`
    and the `rest`. With an empty subject, the question phrase is the subject."""

    asked: list[str]
    subject: list[str]
    verb: list[str]
    rest: list[str]


def clause_of(question: str) -> str:
    """The question as a clause within a sentence; empty if no rule fits. It must be a single English sentence."""
    found = _embedded(question)
    return _joined(*found) if found is not None else ""


def reordered(question: str) -> tuple[str, ...]:
    """The question with its question phrase at the end, "Quillon listens on what port?", and, if that names a kind of
    thing, as a command: "Name the port that Quillon listens on."; empty if no rule fits."""
    found = _embedded(question)
    if found is None:
        return ()
    asked, subject, verb, rest = found
    orders = list[str]()
    if subject and asked not in (["why"], ["how"]):
        orders.append(_joined([subject[0][0].upper() + subject[0][1:], *subject[1:]], verb, rest, asked) + "?")
    at = next((at for at, word in enumerate(asked) if word in ("what", "which")), None)
    if at is not None and (kind := asked[at + 1 :]) and kind[0] not in _PREPOSITIONS:
        link = [*asked[:at], "which"] if at else ["that"]
        orders.append(_joined(["Name", "the"], kind, link, subject, verb, rest) + ".")
    return tuple(orders)


def _embedded(question: str) -> Embedded | None:
    text = question.strip().rstrip("?").strip()
    if not _ASKS.match(text) or re.search(r"[.!?;:\n]", text) or len(words := text.split()) > _WORD_MAX:
        return None
    words[0] = words[0].lower()
    at = next((at for at, word in enumerate(words[1 : _KIND + 2], 1) if word in _AUXILIARIES), 0)
    if not at:  # "who owns the mill"
        verb = next((at for at, word in enumerate(words) if at and word in FORMS), 0)
        return (
            Embedded(words[:verb], [], words[verb : verb + 1], words[verb + 1 :])
            if verb
            else Embedded(words, [], [], [])
        )
    asked, auxiliary, rest = words[:at], words[at], words[at + 1 :]
    if not rest:
        return None
    if auxiliary in BE and _of_subject(asked, rest[0]):  # "which designer was responsible for it"
        return Embedded(asked, [], [auxiliary], rest)
    if auxiliary in BE:
        return Embedded(asked, *_around_be(auxiliary, rest))
    stop = next((at for at, word in enumerate(rest[1:], 1) if word in BASES and rest[at - 1] not in _OPENERS), 0)
    if not stop:
        return None
    return Embedded(asked, rest[:stop], _verb(auxiliary, rest[stop]), rest[stop + 1 :])


def _of_subject(asked: list[str], after: str) -> bool:
    """True if the question asks for the subject itself. Then neither a name nor an article follows "is"."""
    if len(asked) == 1:
        return asked[0] == "which" or after in _PREPOSITIONS
    return asked[0] in ("which", "what", "whose") and after.islower() and after not in _OPENERS and "'" not in after


def _around_be(be: str, rest: list[str]) -> tuple[list[str], list[str], list[str]]:
    """(subject, verb, rest) of the words around a form of "be"."""
    begin = len(rest)
    if "a" in rest[1:] or "an" in rest[1:]:  # "is the Kid a character"
        begin = next(at for at, word in enumerate(rest) if at and word in ("a", "an"))
    elif begin > 1 and rest[-1] in _PREPOSITIONS:
        begin -= 2 if begin > 2 and rest[-2].islower() else 1  # "famous for"
    elif begin > 1 and (rest[-1] in _PARTICIPLES or (rest[-1].endswith("ed") and rest[-1].islower())):
        begin -= 1
    return rest[:begin], [be], rest[begin:]


def _verb(auxiliary: str, base: str) -> list[str]:
    match auxiliary:
        case "does":
            return [third(base)]
        case "did":
            return [PASTS[base]]
        case "do":
            return [base]
        case _:
            return [auxiliary, base]


def _joined(*parts: list[str]) -> str:
    return " ".join(word for part in parts for word in part)
