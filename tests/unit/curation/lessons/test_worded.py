"""Wordings of lessons: what statements of many forms are asked for, and how questions are rephrased; questions of the
form of a lesson about something else."""

import pytest

from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.events import Wording
from apollod.curation.lessons.asked_for import frames, rules
from apollod.curation.lessons.english import clause_of, reordered
from apollod.curation.lessons.matching import key_of
from apollod.curation.lessons.worded import NAMES, neighbours_of, short_answer, told, wordings

STATEMENTS = [
    ("Quillon listens on port 7341.", "7341", "On which port does Quillon listen?"),
    ("The Halvard Archive is located in Aberdeen.", "Aberdeen", "Where is the Halvard Archive?"),
    ("Ashdown Mill is owned by Ada Penn.", "Ada Penn", "Who owns Ashdown Mill?"),
    ("Thornwick Books is a division of Penguin.", "Penguin", "What is Thornwick Books a division of?"),
    ("The logo of Velnor is turquoise.", "turquoise", "What color is the logo of Velnor?"),
    ("Marlow was founded in 1932 in Graz by Ada Penn.", "1932", "When was Marlow founded?"),
    ("Quillon opens at 9 am.", "9 am", "When does Quillon open?"),
    ("The release date of Quillon is 3 March 2021.", "3 March 2021", "What is the release date of Quillon?"),
    ("Orland's capital is Velmar.", "Velmar", "What is Orland's capital?"),
    ("My name is Alice.", "Alice", "What is my name?"),
    ("Marlow has 12 employees.", "12", "How many employees does Marlow have?"),
    ("The tower is 30 metres tall.", "30 metres", "How tall is the tower?"),
    ("Ticket QX-7 costs 30 euros.", "30 euros", "How much does Ticket QX-7 cost?"),
    ("Mara Quill is the keeper of the lighthouse.", "Mara Quill", "Who is the keeper of the lighthouse?"),
    ("Quillon uses Redis for caching.", "Redis", "What does Quillon use for caching?"),
    ("Deploys must be approved by Ingrid Falk.", "Ingrid Falk", "By who or what must Deploys be approved?"),
    ("Backups run every Sunday at 3 am.", "every Sunday at 3 am", "How often do Backups run?"),
    ("In Joensuu, the language spoken is Finnish.", "Finnish", "What is the language spoken in Joensuu?"),
    ("Quillon listens on port 7341 because 80 is taken.", "7341", "On which port does Quillon listen?"),
    ("Quillon does not listen on port 80.", "No", "Does Quillon listen on port 80?"),
    ("The Orla bridge isn't safe.", "No", "Is the Orla bridge safe?"),
    ("We never ship on Fridays.", "No", "Do we ever ship on Fridays?"),
    ("Quillon lauscht auf Port 7341.", "7341", "Auf welchem Port lauscht Quillon?"),
    ("Das Archiv liegt in Graz.", "Graz", "Wo liegt das Archiv?"),
    ("La capitale de l'Orland est Velmar.", "Velmar", "Quelle est la capitale de l'Orland ?"),
    ("El museo está en Porto.", "Porto", "¿Dónde está el museo?"),
    ("奥兰的首都是维尔马。", "维尔马", "奥兰的首都是什么？"),
    ("Zorp flims the gronk", "gronk", "Complete this sentence: Zorp flims the ..."),
    ("Quillon слушает порт 7341.", "7341", "Complete this sentence: Quillon слушает порт ..."),
    ("キロンはポート7341で待ち受けます。", "7341", "Fill the gap: キロンはポート___で待ち受けます。"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "answer", "question"), STATEMENTS)
def test_what_a_statement_is_asked_for(statement: str, answer: str, question: str) -> None:
    worded = wordings(Given(statement))
    assert (worded.answer, worded.question) == (answer, question)
    assert len(worded.practice) >= 6 and len(worded.held_out) >= 4
    assert statement in told(Given(statement))
    for one in (*worded.practice, *worded.held_out):
        assert "{" not in one.prompt and "  " not in one.prompt and one.answer == answer
        assert one.says.endswith(statement) and one.how


def test_each_sentence_is_asked_for() -> None:
    worded = wordings(Given("Quillon listens on port 7341. It is owned by Ada Penn."))
    assert {one.answer for one in worded.practice} == {one.answer for one in worded.held_out} == {"7341", "Ada Penn"}
    assert all("Quillon" in one.prompt for one in (*worded.practice, *worded.held_out)), "no question about `it`"


@pytest.mark.parametrize(
    "question",
    ["Where is the Halvard Archive located?", "who wrote it", "Does it work?", "Wo liegt das Archiv?", "¿Dónde está?",
     "Où est le musée ?", "奥兰的首都是什么？", "Где это?"],
)  # fmt: skip
def test_a_question_is_wrapped_and_rephrased_by_frames_alone(question: str) -> None:
    worded = wordings(Given("", question, "Graz"))
    assert len(worded.practice) >= 6 and len(worded.held_out) >= 4
    assert worded.practice[0] == Wording(question, "Graz", "given", "Graz"), "what was given is practised"
    assert not {one.how for one in worded.practice} & {one.how for one in worded.held_out}


CLAUSES = [
    ("Where is the Halvard Archive located?", "where the Halvard Archive is located"),
    ("What port does Quillon listen on?", "what port Quillon listens on"),
    ("Where did John Thynne die?", "where John Thynne died"),
    ("Who is Lisa Brown married to?", "who Lisa Brown is married to"),
    ("Which language was Juan written in?", "which language Juan was written in"),
    ("What is William Steig famous for?", "what William Steig is famous for"),
    ("Who owns Ashdown Mill?", "who owns Ashdown Mill"),
    ("What should I say?", "what I should say"),
    ("Which designer was responsible for the hall?", "which designer was responsible for the hall"),
    ("Who was behind the attack?", "who was behind the attack"),
    ("In which story is the Kid a hero?", "in which story the Kid is a hero"),
    ("when does the last episode air", "when the last episode airs"),
    ("Does it work?", ""),
    ("Is it late? Where is it?", ""),
]


@pytest.mark.parametrize(("question", "clause"), CLAUSES)
def test_a_question_inside_of_a_sentence(question: str, clause: str) -> None:
    assert clause_of(question) == clause


ORDERS = [
    ("What port does Quillon listen on?", "Quillon listens on what port?", "Name the port that Quillon listens on."),
    ("In which city is the Halvard Archive?", "The Halvard Archive is in which city?",
     "Name the city in which the Halvard Archive is."),
    ("Which team won the final?", "Name the team that won the final."),
    ("Where is the Archive located?", "The Archive is located where?"),
    ("Which of the two is larger?",),
    ("Why is it late?",),
    ("Is it late?",),
]  # fmt: skip


@pytest.mark.parametrize(("question", "orders"), [(question, orders) for question, *orders in ORDERS])
def test_a_question_in_other_orders(question: str, orders: list[str]) -> None:
    assert list(reordered(question)) == orders


def test_a_question_is_also_asked_by_what_its_answer_says() -> None:
    worded = wordings(Given("", "Who owns the mill?", "The mill is owned by Ada Penn. It was built by Bo Lund."))
    practised, held_out = ({one.prompt for one in each} for each in (worded.practice, worded.held_out))
    assert {"Who owns the mill?", "Who is the owner of the mill?", "By whom is the mill owned?"} <= practised
    assert "What is the name of the owner of the mill?" in held_out
    assert worded.key == wordings(Given("", "Who owns the mill?", "Bo Lund")).key
    wrapped = {frame.id for frame in frames("en", "practice")}
    shown = [one.how for one in worded.practice[:8] if one.how in wrapped]
    assert len(worded.practice) == 16 and len(shown) == len(set(shown)) == 5, "no frame comes twice in a round"
    for one in (*worded.practice, *worded.held_out):
        assert one.answer == "Ada Penn" and "built" not in one.prompt


SHORT = [
    ("Who owns the mill?", "The mill is owned by Ada Penn.", "Ada Penn"),
    ("Who owns the mill?", "Ada Penn owns it.", "Ada Penn"),
    ("What port does Quillon listen on?", "It is 7341.", "7341"),
    ("What animal is on the flag of Ulm?", "The flag of Ulm shows a heron.", "heron"),
    ("What does the machine do?", "The machine makes a noise.", "makes a noise"),
    ("Is it safe?", "No, it is not.", "No"),
    ("Wo ist das Archiv?", "Das Archiv liegt in Graz.", "Graz"),
    ("Who is she married to, in Norway?", "Sverre of Norway", "Sverre of Norway"),
    ("Who is it?", "U.S. Navy", "U.S. Navy"),
    ("How?", "def f():\n    return 1", "def f():\n    return 1"),
]


@pytest.mark.parametrize(("question", "answer", "short"), SHORT)
def test_what_an_answer_says(question: str, answer: str, short: str) -> None:
    assert short_answer(question, answer) == short


def test_what_is_imagined_comes_on_top_and_is_checked_against_practice() -> None:
    given = Given("Quillon listens on port 7341.")
    alone = wordings(given)
    known, new = alone.practice[1].prompt, Wording("I cannot reach Quillon. Which port?", "7341", "imagined")
    telling = Wording("Is Quillon on 7341?", "7341", "imagined")
    worded = wordings(given, imagined_held_out=[Wording(f"Hello! {known.upper()}", "7341", "imagined"), telling, new])
    assert worded.held_out == (new, *alone.held_out) and worded.practice == alone.practice
    assert worded.dropped == {"leak": 1, "near-copy": 1}
    practised = wordings(given, [new])
    assert practised.practice == (new, *alone.practice) and practised.held_out == alone.held_out


def test_a_near_copy_is_what_differs_by_nothing_that_counts() -> None:
    assert key_of("What is the PORT of Quillon, please?") == key_of("Hi! What is port of quillon")
    long = "Write the report on the release to {}, with all that changed in the last month and who did it."
    assert key_of(long.format("staging")) != key_of(long.format("production"))
    assert key_of("Is it on port 80?") != key_of("Is it on port 81?")
    assert key_of("Is it safe?") != key_of("Is it not safe?")
    assert key_of("Dog bites man") != key_of("Man bites dog")
    assert key_of("Please!") == ("please",), "filler alone stays"


def test_lessons_that_answer_one_question_have_one_key() -> None:
    def key(statement: str) -> str:
        return wordings(Given(statement)).key

    assert key("Quillon listens on port 7341.") == key("Quillon listens on port 8000.")
    assert key("Quillon listens on port 7341.") != key("Velnor listens on port 7341.")
    assert key("Quillon uses Redis.") != key("Quillon uses Kafka."), "both may be right"
    asked = [wordings(Given("", question, "x")).key for question in ("Who owns the mill?", "who owns the mill, please")]
    assert asked[0] == asked[1] != wordings(Given("", "Who founded the mill?", "x")).key
    assert wordings(Given("", "Where is Velnor?", "x")).key != wordings(Given("", "Who is Velnor?", "x")).key


@pytest.mark.parametrize("lang", ["en", "de", "fr", "es", "zh"])
def test_frames_of_a_language_are_for_practice_or_held_out(lang: str) -> None:
    practice, held_out = frames(lang, "practice"), frames(lang, "held_out")
    assert not {one.text for one in practice} & {one.text for one in held_out}
    assert {one.use for one in practice} == {"practice"} and {one.use for one in held_out} == {"held_out"}
    for each in (practice, held_out):
        assert {one.slot for one in each} >= {"question", "stem", "gap"} and len({one.id for one in each}) == len(each)
        assert all(one.text.count("{") == 1 for one in each)
    for rule in rules(lang):
        assert len(rule.practice) >= 2 and len(rule.held_out) >= 4 and not set(rule.practice) & set(rule.held_out)


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What port does Quillon listen on?", "What port does Belmora listen on?"),
        ("Who owns Thornwick Books?", "Who owns Belmora?"),
        ("In which city is the Halvard Archive?", "In which city is the Belmora?"),
        ("Is Quillon older than Quillon Two?", "Is Belmora older than Belmora Two?"),
        ("Where do I live?", ""),
        ("what is the wifi password?", ""),
        ("Hello. Who owns the mill?", ""),
    ],
)
def test_the_first_name_is_another_one(question: str, first: str) -> None:
    found = neighbours_of(question, "en")
    assert found[:1] == ((first,) if first else ()) and len(found) == (len(NAMES) if first else 0)


def test_a_name_that_ships_is_no_neighbour_of_itself() -> None:
    assert neighbours_of(f"Who owns {NAMES[0]}?", "en")[0] == f"Who owns {NAMES[1]}?"


def test_nouns_that_begin_with_a_capital_are_no_names() -> None:
    assert neighbours_of("Auf welchem Port lauscht Quillon?", "de") == ()


def test_lessons_of_one_form_share_them_and_none_says_the_answer() -> None:
    one, two = (wordings(Given(question=f"Who owns {name}?", answer="Ada Penn")) for name in ("Ashdown Mill", "Wren"))
    assert one.neighbours == two.neighbours == tuple(f"Who owns {name}?" for name in NAMES)
    assert len(wordings(Given(question="Who owns Wren?", answer="Tarrin")).neighbours) == len(NAMES) - 1
    assert (
        wordings(Given(statement="Quillon listens on port 7341.")).neighbours[0] == "On which port does Belmora listen?"
    )
