"""A labelled sample of personal data in texts of agents' logs, and of harmless text that looks like it.

Written before the rules (apollod/data/secrets/personal.toml). Its two halves share kinds, but no provider, country,
carrier or template where there are four or more of these.
"""

from collections.abc import Callable, Iterator, Sequence

from benchmarks.redaction.draw import DIGITS, HEX, LOWER, UPPER, WORD, Draw, Sample
from benchmarks.redaction.sample import line

EACH = 60
"""samples of each kind in each half"""

Labelled = tuple[str, tuple[str, ...]]

_FIRST = ("anna", "jose", "li.wei", "marie-claire", "o.brien", "Sven", "priya", "yuki", "Fatima", "tom", "j", "kwame")
_LAST = ("mueller", "garcia", "Wang", "dupont", "smith", "Jensen", "kumar", "tanaka", "haddad", "Rossi", "k", "mensah")
_HOSTS = (
    "gmail.com", "outlook.com", "web.de", "yahoo.co.uk", "posteo.net", "proton.me", "uni-muenchen.de", "icloud.com",
    "mail.ru", "qq.com", "cs.washington.edu", "orange.fr", "acme-corp.io", "fastmail.fm", "db.health.gov.au",
    "xn--bcher-kva.ch", "startup.ai", "libero.it", "company.museum", "naver.com", "dev.team.agency", "hey.com",
)  # fmt: skip


def _local(draw: Draw) -> str:
    one, two, number = draw.of(_FIRST), draw.of(_LAST), draw.number(1, 99)
    ways = (
        f"{one}.{two}", f"{one}{number}", f"{one}_{two}", f"{one}.{two}+{draw.some(LOWER, 4)}", one[0] + two,
        f"{two}-{number}", f"{number}{two}", f"{one}{two}",
    )  # fmt: skip
    return draw.of(ways)


def _email(draw: Draw) -> str:
    return f"{_local(draw)}@{draw.of(_HOSTS)}"


def _in(carriers: Sequence[str], make: Callable[[Draw], str]) -> Callable[[Draw], Labelled]:
    """`make`'s value in one of this half's carriers; `{n}` is a name, `{d}` a number."""

    def labelled(draw: Draw) -> Labelled:
        value = make(draw)
        name = f"{draw.of(_FIRST)} {draw.of(_LAST)}"
        text = draw.of(carriers).replace("{n}", name).replace("{d}", str(draw.number(1, 9999)))
        return text.replace("{}", value), (value,)

    return labelled


_EMAILS = (
    "Write to {} if the build breaks.", "Author: {n} <{}>", "Co-authored-by: {n} <{}>", '"email": "{}",',
    "git config user.email {}", "{d},{n},{},active", "mailto:{}", "EMAIL={}", "<a href='mailto:{}'>contact</a>",
    "INSERT INTO users VALUES ({d}, '{}', 1);", "login failed for {} from 10.0.0.3", "To: {}\nSubject: order {d}",
    "Signed-off-by: {n} <{}>", "user={}; retries={d}", "please add me ({}) to the list", "cc {}, thanks",
    "assertEqual(user.email, '{}')", "| {d} | {n} | {} |", "GET /users?email={}&page={d}", "contact {}.",
    "maintainer: {n} [{}]", "ping {}: the job is red",
)  # fmt: skip

# National number plans: `x` is any digit, `z` one of 2 to 9.
_PLUS = (
    "+49 30 zxxxxxx", "+1 415 zxx-xxxx", "+49 (0)89 zxxxxx", "+44 20 7xxx xxxx", "+49151zxxxxxxx", "+33 6 xx xx xx xx",
    "+1-212-zxx-xxxx", "+34 6xx xxx xxx", "+41 44 zxx xx xx", "+43 664 zxxxxxx", "+1 (312) zxx-xxxx",
    "+39 06 zxxx xxxx",
    "+31 6 zxxxxxxx", "+46 70-zxx xx xx", "+447911zxxxxx", "+48 60z xxx xxx", "+7 (495) zxx-xx-xx", "+420 60z xxx xxx",
    "+81 3-zxxx-xxxx", "+82 10-zxxx-xxxx", "+86 138 zxxx xxxx", "+91 98zxx xxxxx", "+55 11 9zxxx-xxxx",
    "+52 55 zxxx xxxx",
    "+61 4zx xxx xxx", "+27 82 zxx xxxx", "+90 532 zxx xx xx", "+972-52-zxx-xxxx", "+65 6zxx xxxx", "+353 87 zxx xxxx",
    "0049 171 zxxxxxx", "0033 1 zx xx xx xx", "+1.650.zxx.xxxx", "+49/30/zxxxxxx", "+358 40 zxxxxxx",
    "+234 803 zxx xxxx",
)  # fmt: skip
_CLEAR = (
    "(415) zxx-xxxx", "212-zxx-xxxx", "(0)30 zxxxxxx", "1-800-zxx-xxxx", "06 zx xx xx xx", "01 zx xx xx xx",
    "650.zxx.xxxx", "(020) 7xxx xxxx", "(11) 9zxxx-xxxx", "303-zxx-xxxx", "(030) zxxxxxx", "(617)zxx-xxxx",
)  # fmt: skip
_NATIONAL = (
    "030 zxxxxxx", "0171 zxxxxxx", "0171/zxxxxxx", "07911 zxxxxx", "020 7xxx xxxx", "138 zxxx xxxx", "98zxxxxxxx",
    "415zxxxxxx", "089-zxxxxxx", "044 zxx xx xx", "0664zxxxxxxx", "6zx xxx xxx", "090-zxxx-xxxx", "010-zxxx-xxxx",
    "070-zxx xx xx", "04zx xxx xxx", "06zxxxxxxx", "202 zxx xxxx", "8 (916) zxx-xx-xx", "138zxxxxxxx",
)  # fmt: skip
_TELLING = (
    "phone: {}", "Tel.: {}", "Telefon {}", "mobile: {}", '"phoneNumber": "{}"', "call me at {}", "Handy: {}",
    "téléphone : {}", "PHONE={}", "my cell is {}", "móvil: {}", "fax {}", "電話: {}", "WhatsApp {}",
    "reach me on {} after {d}", "telephone number {}", "'mobile_phone': '{}',", "Mobil: {}", "T: {}", "电话：{}",
    "contact_number = '{}'", "My number is {}.",
)  # fmt: skip
_PLAIN = (
    "{n}, {}", "{n}\n{}\nBerlin", "{d},{n},{},yes", "ask {n} ({})", "tel:{}", "- {n}: {}", '["{n}", "{}"]',
    "{n} | {} | room {d}", "the pager of {n} is {}", "to: {}, body: 'your code is {d}'",
)  # fmt: skip


def _number(plans: Sequence[str]) -> Callable[[Draw], str]:
    def make(draw: Draw) -> str:
        return "".join(
            draw.some(DIGITS, 1) if c == "x" else draw.some("2346789", 1) if c == "z" else c for c in draw.of(plans)
        )

    return make


_ACCOUNTS = (
    ("DE", "dddddddddddddddddd"), ("FR", "ddddddddddddddddddddddd"), ("GB", "uuuudddddddddddddd"), ("NL",
    "uuuudddddddddd"),
    ("ES", "dddddddddddddddddddd"), ("IT", "udddddddddddddddddddddd"), ("AT", "dddddddddddddddd"), ("CH",
    "ddddddddddddddddd"),
    ("BE", "dddddddddddd"), ("PL", "dddddddddddddddddddddddd"), ("NO", "ddddddddddd"), ("SE", "dddddddddddddddddddd"),
)  # fmt: skip


def _iban(draw: Draw) -> str:
    country, plan = draw.of(_ACCOUNTS)
    account = "".join(draw.some(DIGITS if c == "d" else UPPER, 1) for c in plan)
    rest = int("".join(str(int(c, 36)) for c in account + country + "00")) % 97
    whole = f"{country}{98 - rest:02}{account}"
    return draw.rng.choice((whole, " ".join(whole[n : n + 4] for n in range(0, len(whole), 4))))


_IBANS = (
    "IBAN: {}", "pay {d} EUR to {}", '"iban": "{}"', "{n};{};{d}", "account {} is closed", "Kontoverbindung {}",
    "iban={}", "from {} on Monday",
)  # fmt: skip


def _card(draw: Draw) -> str:
    prefix, count = draw.of((("4", 16), ("51", 16), ("37", 15), ("55", 16), ("6011", 16), ("2221", 16), ("34", 15)))
    digits = prefix + draw.some(DIGITS, count - 1 - len(prefix))
    double = [int(c) * 2 for c in digits[::-1][::2]]
    total = sum(n - 9 if n > 9 else n for n in double) + sum(int(c) for c in digits[::-1][1::2])
    digits += str(-total % 10)
    if count == 15:
        return draw.rng.choice((digits, f"{digits[:4]} {digits[4:10]} {digits[10:]}"))
    mark = draw.rng.choice(("", " ", "-"))
    return mark.join(digits[n : n + 4] for n in range(0, 16, 4))


_CARDS = (
    "card number: {}", "Visa {} exp 04/29", '"cardNumber": "{}"', "credit card {}", "card={}",
    "charged {} today (card)",
    "my Mastercard is {}", "Kreditkarte: {}",
)  # fmt: skip

PERSONAL: dict[str, Callable[[Draw], Labelled]] = {
    "email": _in(_EMAILS, _email),
    "phone, international": _in(_TELLING + _PLAIN, _number(_PLUS)),
    "phone, of a clear shape": _in(_TELLING + _PLAIN, _number(_CLEAR)),
    "phone, beside a word": _in(_TELLING, _number(_NATIONAL)),
    "phone, of any shape beside a name": _in(_PLAIN, _number(_NATIONAL)),
    "iban": _in(_IBANS, _iban),
    "card": _in(_CARDS, _card),
}


def _digits(text: str) -> str:
    """With `9` for any digit and `#h` for a hexadecimal one."""
    return text.replace("9", "\\9").replace("#h", "\\h")


def _texts(*templates: str) -> Callable[[Draw], str]:
    r"""One of these templates, with `\9` as any digit, `\h` as a hexadecimal one, and `{w}` as a word."""

    def make(draw: Draw) -> str:
        text = draw.of(templates).replace("{w}", draw.some(LOWER, 5)).replace("{W}", draw.some(WORD, 12))
        pieces = text.split("\\")
        return pieces[0] + "".join(
            (draw.some(DIGITS, 1) if piece[:1] == "9" else draw.some(HEX, 1)) + piece[1:] for piece in pieces[1:]
        )

    return make


LIKE_PERSONAL: dict[str, Callable[[Draw], str]] = {
    "git remotes and hosts": _texts(
        "git@github.com:{w}/{w}.git", "ssh://git@gitlab.com/{w}/{w}.git", "git clone git@ssh.dev.azure.com:v3/{w}/{w}",
        "https://{w}@bitbucket.org/{w}/{w}.git", "scp a.txt deploy@web1.{w}.com:/srv/{w}", "root@{w}:~# ls",
        "{w}@ip-10-0-0-1:~$ make", "{w}@laptop.local", "rsync -a {w}@{w}.example.com:/x .", "{w}@10.0.3.4",
    ),
    "files, packages, units": _texts(
        "icons/{w}@2x.png", "{w}@3x.jpeg", "lodash@4.17.21", "@types/node@20.1.0", "npm i @{w}/{w}@latest",
        "@{w}/{w}.js",
        "uses: actions/checkout@v4.1.0", "golang.org/x/net@v0.17.0", "getty@tty1.service", "user@1000.service",
        "wg-quick@wg0.service", "react-dom@18.2.0_react@18.2.0", _digits("image: {w}@sha256:" + "#h" * 12),
        "pip install {w}@git+https://github.com/{w}/{w}.git", "node_modules/.pnpm/{w}@1.2.3/node_modules",
    ),
    "code": _texts(
        "@app.route('/{w}')", "@pytest.fixture", "w = a @ b.T", "y = x@w.T + b", "this@MainActivity.finish()",
        "return@forEach", "@dataclass(frozen=True)", "SELECT @row.id", "n @ 1..=5 => {w}", "@{w}.setter",
        "v-on @click.prevent",
        "handle @{w} on Mastodon: @{w}@hachyderm.io", "printf('%s@%s.%s')", "re.compile('[a-z.]+@[a-z.]+')",
    ),
    "addresses of nobody": _texts(
        "user@example.com", "alice@example.org", "a@b.invalid", "{w}@{w}.test",
        "Co-Authored-By: Claude <noreply@anthropic.com>",
        "john@mail.example.net", "no-reply@{w}.com", "{w}@localhost.localdomain", "bob@host.example", "you@example.com",
    ),
    "times and dates": _texts(
        *map(_digits, ("2026-11-23 10:11:9", "2026-11-23T10:11:12.999Z", "170999999", "1709999999999",
            "23.11.2026 14:05",
        "11-23-2026", "20261123-101159", "Mon, 23 Nov 2026 10:11:12 +0100", "16:99:9.999999 up 9 days",
        "2026 11 23 10 11 12")),
    ),
    "ids and hashes": _texts(
        *map(_digits, ("call_9999999999", "id: 9999999999",
            "#h#h#h#h#h#h#h#h-#h#h#h#h-4#h#h#h-a#h#h#h-#h#h#h#h#h#h#h#h#h#h#h#h",
        "commit #h#h#h#h#h#h#h#h#h#h#h#h", "order 99-99999-99999", "ISBN 978-3-16-149999-9", "run 1999999999 attempt 2",
        "pid 99999 tid 9999999999", "issue-999-999-9999", "\"session\": 9999999999999999",
        "DE99 is a chapter, DE12 3456 too",
        "0x99999999", "sku 4999 9999 9999 999")),
    ),
    "numbers": _texts(
        *map(_digits, ("1 299 999 EUR", "$1,299.99", "9,999,999 bytes", "+9999999 lines", "@@ -199,99 +299,99 @@",
            "+48.8999999, -2.2999999",
        "x+4999999999", "1.999.999,00 €", "loss 0.999999 lr 9.9e-05", "[01, 12, 99, 99, 99]", "00 01 02 03 04 05 06 07",
        "v1.99.999.9999", "10.0.99.99", "192.168.9.99", "a[100-200-300]", "06 12 34 56 78 90 12 34", "+99 -99",
        "1e+99999999",
        "255-255-255", "lines 999-9999", "3.14159999999", "12 345 678 rows", "99.9% of 4159999999")),
    ),
    "words beside other numbers": _texts(
        *map(_digits, ("iPhone 15 Pro Max 256", "phone: null", "phone_number: str = ''", "cell 9999999 in notebook",
            "call 9999 times",
        "mobile 1920x1080", "phone VARCHAR(20)", "\\\\d{3}-\\\\d{3}-\\\\d{4}".replace("\\\\d", "[0-9]"),
        "XXX-XXX-XXXX", "fax machine 9", "tel: TBD",
        "telemetry 9999999999", "phone_id=999", "hotel 9999", "card 9 of 52", "credit card: none", "number is 99999")),
    ),
}  # fmt: skip


def sample(seed: int, half: int, each: int = EACH) -> Iterator[Sample]:
    """Texts with personal data, and others; the same ones for the same seed and half."""
    draw = Draw(seed, half)
    for kind, make in PERSONAL.items():
        for _ in range(each):
            text, values = make(draw)
            yield Sample(kind, line(text, draw), values)
    for kind, harmless in LIKE_PERSONAL.items():
        for _ in range(each):
            yield Sample(kind, line(harmless(draw), draw))
