"""English verbs by their forms, for statements and questions about facts."""

from typing import NamedTuple

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
