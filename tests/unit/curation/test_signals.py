"""Cues: what logs show about answers. Precision and recall of each are in docs/benchmarks, of the same sample."""

import json
import time
from typing import Any

import msgspec
import pytest
from support.log_samples.codex import META, event, item, said
from support.log_samples.qwen import SESSION as QWEN
from support.readings import evidence, kinds, read

from apollod.curation.conversation import Moment, Remark, Said, Session
from apollod.curation.formats import claude_code, codex, qwen
from apollod.curation.formats.reader import Cursor, Limits, Reader
from apollod.curation.formats.turns import form
from apollod.curation.moments import Rules
from apollod.curation.signals.complaints import complains, error_pasted
from apollod.curation.signals.cues import evidence_of, flags, unscored
from apollod.curation.signals.follow_ups import ERRORS_IN, correction, is_undo, own_words
from apollod.curation.signals.tool_results import check_in, command_of, outcome
from benchmarks import signals
from benchmarks.signal_sample import elsewhere

ALL = Rules(models=("*",))


def line(number: int, role: str, text: str, after: int | None = None, **more: Any) -> bytes:
    """A record of Claude Code; the first follows nothing."""
    message = {
        "role": role,
        "content": text,
        **({"id": f"m{number}", "model": "apollo"} if role == "assistant" else {}),
    }
    before = f"u{number - 1 if after is None else after}"
    return json.dumps(
        {"type": role, "uuid": f"u{number}", "parentUuid": before, "sessionId": "s", "message": message, **more}
    ).encode() + b"\n"  # fmt: skip


ASKED = line(1, "user", "Add the new library.")
ANSWERED = line(2, "assistant", "I added it with npm.")
CORRECTED = line(3, "user", "no, use pnpm")


# --- the labelled sample --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("half", ["tuning", "held_out"])
def test_the_sample_is_large_and_of_many_formats(half: str) -> None:
    moments = signals.read(half)
    assert len(moments) >= 100 and len({moment.format for moment in moments}) >= 5
    assert sum(not moment.cues for moment in moments) > len(moments) / 5, "moments that show nothing"


def test_cues_find_what_a_person_marks_and_little_else() -> None:
    """Of both halves: floors well below the figures of docs/benchmarks, so that a change of phrases has room."""
    scores = [score for half in ("tuning", "held_out") for score in signals.score(half).values()]
    found, wrong, missed = (sum(one[n] for one in scores) for n in range(3))
    assert found / (found + wrong) >= 0.9 and found / (found + missed) >= 0.85


def test_moments_elsewhere_are_many_of_many_languages_and_agents() -> None:
    """Their texts are not here; benchmarks.signals reads them where they are."""
    moments = elsewhere.marked()
    for half in ("elsewhere_tuning", "elsewhere_held_out"):
        turns = [one for one in moments if one.kind == "turn" and one.half == half and one.label != "?"]
        assert len(turns) >= 200 and sum(one.label != "-" for one in turns) >= 80
        assert len({one.language for one in turns}) >= 6 and len({one.agent for one in turns}) >= 4
    assert len({one.digest for one in moments}) == len(moments)


# --- when the evidence comes late -----------------------------------------------------------------------------------


def settled(reader: Reader, *log: bytes) -> Cursor:
    """After everything was given since nobody wrote any more; forgotten and read again, as after a restart."""
    folded = reader.fold(Cursor(), b"".join(log), False, Limits())
    cursor = reader.settle(folded.cursor).cursor
    assert cursor != folded.cursor
    return reader.recall(msgspec.structs.replace(cursor, memory=None), [b"".join(log)], Limits())


def test_a_correction_says_the_same_of_an_answer_that_a_moment_had_already() -> None:
    (at_once,) = read(claude_code.READER, ASKED, ANSWERED, CORRECTED).moments
    (later,) = claude_code.READER.fold(settled(claude_code.READER, ASKED, ANSWERED), CORRECTED, False, Limits()).items
    assert isinstance(later, Remark) and later.line == 3
    assert evidence(at_once) == evidence(later) == [("correction", "correction", "no, use pnpm")]
    (one,), (other,) = evidence_of(at_once, Rules()), evidence_of(later, Rules())
    assert one == other and one.answer and one.records == ("u2", "u3") and one.session == "s"


def test_a_follow_up_without_a_cue_is_left_for_the_model_at_once_or_late() -> None:
    quiet = line(3, "user", f"that is the port of the staging machine {'x' * 300}", 2)
    (at_once,) = read(claude_code.READER, ASKED, ANSWERED, quiet).moments
    (later,) = claude_code.READER.fold(settled(claude_code.READER, ASKED, ANSWERED), quiet, False, Limits()).items
    assert isinstance(later, Remark) and not evidence_of(at_once, Rules())
    (one,), (other,) = unscored(at_once, Rules()), unscored(later, Rules())
    assert one == other and (one.kind, one.strength, one.records) == ("rejected-by-score", 0.0, ("u2", "u3"))
    assert len(one.quote) == 200 and one.followed.endswith("x") and len(one.followed) > 300
    (corrected,) = read(claude_code.READER, ASKED, ANSWERED, CORRECTED).moments
    assert not unscored(corrected, Rules()), "a cue speaks"
    assert not unscored(at_once, Rules(models=("another",))), "it is not learned"


def test_an_interrupt_and_a_rollback_come_late_too() -> None:
    log = (META, said("user", "q1"), said("assistant", "a1"), said("user", "q2"), said("assistant", "a2"))
    stop, back = event("turn_aborted", reason="interrupted"), event("thread_rolled_back", num_turns=2)
    cursor = settled(codex.READER, *log)
    marked, taken = codex.READER.fold(cursor, stop + back, False, Limits()).items
    assert isinstance(marked, Remark) and isinstance(taken, Remark)
    assert kinds(marked, models=("*",)) == ["interrupted"]
    assert evidence(taken, models=("*",)) == [("rewound", "bad", "q1"), ("rewound", "bad", "q2")]
    again = said("user", "no, otherwise") + said("assistant", "a3")
    one_back = event("thread_rolled_back", num_turns=1)
    anew = codex.READER.fold(cursor, one_back + again, True, Limits()).items
    assert [type(one) for one in anew] == [Remark, Moment], "the next prompt is no answer to what was taken back"


def test_a_result_that_comes_after_its_call_was_given_is_about_that_call() -> None:
    call = item("function_call", name="exec_command", arguments='{"cmd": "pytest -q"}', call_id="c")
    result = item("function_call_output", call_id="c", output="Exit code: 1\n1 failed, 3 passed")
    cursor = settled(codex.READER, META, said("user", "q"), call)
    (moment,) = codex.READER.fold(cursor, result + said("assistant", "one fails"), True, Limits()).items
    assert isinstance(moment, Moment)
    (check,) = evidence_of(moment, ALL)
    (at_once,) = read(codex.READER, META, said("user", "q"), call, result, said("assistant", "one fails")).moments
    assert [one.answer for one in evidence_of(at_once, ALL)] == [check.answer]
    assert (check.kind, check.polarity) == ("check", "bad")


# --- what is no cue -------------------------------------------------------------------------------------------------


def test_what_was_compacted_forked_or_asked_otherwise_is_not_bad() -> None:
    edited = line(4, "user", "Add the old library.", after=0)
    compacted = line(5, "user", "So far: added it", isCompactSummary=True)
    moments = [
        *read(claude_code.READER, line(0, "user", "hi"), ASKED, ANSWERED, edited, line(6, "assistant", "ok")).moments,
        *read(claude_code.READER, ASKED, ANSWERED, compacted, line(6, "user", "go on")).moments,
        *read(codex.READER, META, said("user", "q"), said("assistant", "a"), item("compaction")).moments,
    ]
    assert [evidence(moment, models=("*",)) for moment in moments] == [[]] * len(moments) and len(moments) == 4


def test_answers_that_are_not_learned_here_are_nobodys_business() -> None:
    (moment,) = read(claude_code.READER, ASKED, ANSWERED, CORRECTED).moments
    assert kinds(moment, models=("other",)) == []
    side = msgspec.structs.replace(moment, session=msgspec.structs.replace(moment.session, sidechain=True))
    assert kinds(side) == [] and kinds(side, sidechains=True) == ["correction"]


def test_a_rewind_of_qwen_is_one() -> None:
    assert "rewound" in [kind for moment in read(qwen.READER, *QWEN).moments for kind in kinds(moment)]


# --- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        'Sender (untrusted metadata):\n```json\n{"name": "Xiao"}\n```\n\nno, the other one',
        "no, use pnpm", "Nope.", "That\u2019s not it", "you forgot the tests", "still failing", "it doesn't work",
        "same error", "why did you delete it?", "I meant the other file", "actually, it should be 3", "hmm, wrong one",
        "(OOC: no, she left)", "Nein, anders", "non, pas comme ça", "no, arriba",
    ],
)  # fmt: skip
def test_corrections(text: str) -> None:
    assert correction(own_words(text)) > 0 and not is_undo(own_words(text))


@pytest.mark.parametrize(
    "text",
    [
        "no problem, thanks", "No worries!", "actually that works", "nothing else, thank you", "is it done yet?",
        "also add a comment", "Nein danke", "non merci", "no, gracias", 'what does "it doesn\'t work" mean?',
        "```\nno, wrong\n```\nwhat is this?", "> you forgot it\nis that true?", "go on", "ok", "",
        "not sure, what now?", "how do I undo a commit?", "what does revert do?",
    ],
)  # fmt: skip
def test_no_corrections(text: str) -> None:
    assert correction(own_words(text)) == 0 and not is_undo(own_words(text))


@pytest.mark.parametrize(
    "text", ["revert that", "please undo your last change", "no, roll it back", "Undo.", "put it back"]
)
def test_undo(text: str) -> None:
    assert is_undo(own_words(text))


def follows(answer: str, text: str) -> list[str]:
    """What a turn says of the answer before it."""
    messages = Said(form("user", "q"), prompt=True), Said(form("assistant", answer))
    moment = Moment(1, 1, Session(), messages, 0, then=Said(form("user", text), prompt=True))
    return [flag.kind for flag in flags(moment)]


@pytest.mark.parametrize(
    "text",
    [
        "the page is blank now", "ok, but the button does nothing", "tests fail with KeyError", "I get a 404",
        "looks good, but the second tab doesn't open", "why is it so slow now?", "the issue persists",
        "when I click save I get an error", "we agreed on tabs, not spaces", "you're using the wrong file",
        "the header looks ugly", "for some reason the list is empty", "stop adding comments everywhere",
        "es fehlt der Knopf", "das geht immer noch nicht", "du hast die Tests vergessen", "da steht ein Fehler",
        "la lista sigue sin cargar", "no veo el botón", "hay algo raro con los totales", "te dije que no",
        "le bouton ne fait rien", "j'ai encore une erreur", "la page n'est plus la bonne",
        "还是不行", "没有变化", "这不是我要的", "按钮太小了", "まだ動きません", "エラーが出ます",
        "кнопка не работает", "опять ошибка", "ainda dá erro", "o botão não aparece", "non funziona",
        "> some log\n" * 200 + "still the same",
    ],
)  # fmt: skip
def test_complaints_wherever_they_stand(text: str) -> None:
    assert follows("Done, the list is loaded.", text) == ["correction"]


@pytest.mark.parametrize(
    "text",
    [
        "add error handling to the parser", "fix the failing tests in ci", "what errors can occur here?",
        "if the build fails, send a mail", "make sure that nothing breaks", "don't forget the docs",
        "we don't have time for this today, next task", "is it not better to use a set here?",
        "are there any warnings left?", "what is the difference between error and exception?",
        "it should also export csv", "when I click the button it should open a dialog", "it's not urgent",
        "write a test that should not pass", "explain the problem in the readme", "let's add a page of errors",
        "füge eine Fehlerbehandlung hinzu", "wenn das nicht geht, nimm npm", "agrega manejo de errores",
        "est-ce que tu ne peux pas ajouter un bouton ?", "如果失败就重试", "添加错误处理",
        "エラー処理を追加してください",
        "добавь обработку ошибок", "adicione tratamento de erros",
    ],
)  # fmt: skip
def test_what_only_sounds_like_a_complaint(text: str) -> None:
    assert follows("Done, the list is loaded.", text) == []


def test_an_error_that_was_pasted_is_one_unless_it_was_asked_for() -> None:
    error = "TypeError: cannot read properties of null (reading 'x')\n    at run (a.js:1)"
    assert follows("It works now.", error) == ["correction"]
    assert follows("It works now. If it fails, send me the log.", error) == ["correction"]
    assert follows("Please run it again and send me the output.", error) == []
    assert follows("It works now.", error + "\nwhat is this?") == []


def test_answers_to_what_was_asked_are_no_complaints() -> None:
    listed = "1. the highest one\n2. that is not a month\n3. no need to solve it now"
    assert follows("Which number, which month, and should I solve the rest?", listed) == []
    assert follows("All of it is done.", listed) == ["correction"]


# --- checks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "pytest", "cd x && python3 -m pytest -q | tail", "CI=1 uv run --frozen pytest", "timeout 60 make -j 4 test",
        "make", "cargo test", "npm test", "npm run lint:fix", "pnpm vitest run", "npx tsc --noEmit", "ruff check .",
        "./gradlew test", "go vet ./...", "yarn jest", "coverage run -m pytest", "./node_modules/.bin/eslint src",
        "mix test test/a_test.exs", "mix credo --strict", "mix dialyzer", "./gradlew :app:compileDebugKotlin",
        "mvn -q verify", "dotnet test", "bundle exec rspec", "vendor/bin/phpunit", "bun test a.ts", "deno test",
        "ctest --output-on-failure", "swift test", "zig build test", "npx playwright test", "biome check .",
        "golangci-lint run", "cargo clippy -- -D warnings", "pyright", "shellcheck a.sh", "terraform validate",
        "docker build -t a .", "docker compose build app", "pnpm --filter web exec eslint src", "npm run build -w a",
        "C:/a/venv/Scripts/python.exe -m pytest x", "npx tsgo -p a.json", "next build", "nx run web:test",
        "php artisan test", "cmake --build build", "cd a && npm run check 2>&1", "npm run test:unit", "deno task test",
    ],
)  # fmt: skip
def test_commands_that_check(command: str) -> None:
    assert check_in(command).name


@pytest.mark.parametrize(
    "command",
    [
        "pip install pytest", "grep -r pytest .", "cat pytest.ini", "echo 'run pytest'", "pytest --version",
        "make clean", "make install", "git commit -m \"make test; pytest\"", "which ruff", "ruff format .",
        "npm install", "ls tests", "cat > a <<END\npytest\nEND", "test -f x", "", "npm run dev", "mix deps.get",
        "git add test/a_test.exs && git push", "docker build --help", "docker run build", "terraform apply",
        "./gradlew bootRun", "jest --watch", "npx playwright install", "bd close a --reason='mix test passes'",
    ],
)  # fmt: skip
def test_commands_that_do_not(command: str) -> None:
    assert check_in(command).name == ""


def test_a_shell_inside_a_shell() -> None:
    assert command_of({"command": ["bash", "-lc", "pytest -q"]}) == "pytest -q"
    assert command_of({"cmd": 'bash -c "cd a && make check"'}) == "cd a && make check"
    assert command_of({"path": "pytest"}) == ""


@pytest.mark.parametrize(
    ("command", "hidden"),
    [
        ("pytest", False), ("cd a && pytest -q 2>&1", False), ("make lint && make test", False),
        ("pytest && git push", False), ("set -o pipefail; pytest | tail -5", False), ("npm test > out.txt 2>&1", False),
        ("pytest 2>&1 | tail -5", True), ("npm run lint || true", True), ("make test; echo done", True),
        ("pytest | tee log && make lint", True), ("npm run build &", True), ("tsc --noEmit | grep error", True),
    ],
)  # fmt: skip
def test_whose_exit_code_it_is(command: str, hidden: bool) -> None:
    check = check_in(command)
    assert check.name and check.hidden is hidden


@pytest.mark.parametrize(
    ("output", "failed", "told", "hidden", "passed"),
    [
        ("3 passed in 1s", False, False, False, True),
        ("1 failed, 3 passed", False, False, False, False),
        ("a test prints: 1 failed\n3 passed", False, True, False, True),  # the log would say it
        ("", True, True, False, False),
        ("", False, False, False, True),
        ("whatever", False, True, False, True),
        ("whatever", False, False, False, None),
        ("Exit code: 0\n2 problems (0 errors, 2 warnings)", False, False, False, True),
        ("whatever\nExit Code: 2", False, False, False, False),
        ("Found 0 errors", False, False, False, True),
        ("Command running in background with ID: b1", False, True, False, None),
        ("Command aborted", True, True, False, None),
        ("<tool_use_error>Sibling tool call errored</tool_use_error>", True, True, False, None),
        ("3 passed, 1 failed", False, True, True, False),  # in a pipe
        ("3 passed", True, True, True, True),
        ("", False, True, True, None),
        ("whatever", False, True, True, None),
        ("", True, True, True, None),  # `| grep error` ends with 1 where all is well
        ("npm error Lifecycle script `check` failed", False, True, True, False),
        ("✖ 3 problems (0 errors, 3 warnings)\n✓ built in 2s", False, True, True, True),
        ("51 pass\n29 fail\n128 expect() calls", False, False, False, False),
        ("4 pass\n0 fail\n11 expect() calls", False, False, False, True),
    ],
)
def test_outcomes(output: str, failed: bool, told: bool, hidden: bool, passed: bool | None) -> None:
    """By the exit code where it is the check's, else by words."""
    assert outcome(output, failed, told, hidden) is passed


def test_the_last_run_of_a_check_says_most() -> None:
    def run(number: int, output: str) -> tuple[bytes, bytes]:
        call = item("function_call", name="exec_command", arguments='{"cmd": "pytest"}', call_id=f"c{number}")
        return call, item("function_call_output", call_id=f"c{number}", output=output)

    (moment,) = read(codex.READER, META, said("user", "q"), *run(1, "1 failed"), *run(2, "9 passed")).moments
    found = {one.polarity: one.strength for one in evidence_of(moment, ALL)}
    assert found["good"] > found["bad"] and len(found) == 2


@pytest.mark.parametrize(
    "piece", ["no ", "hm ", "'", '"', "`", "<a>", "make -j 4 ", "a/", "timeout -k 1 ", "1 error", "^\n", "you "]
)
def test_hostile_text_costs_no_time(piece: str) -> None:
    text = piece * 50_000
    begin = time.process_time()
    own = own_words(text)
    complains(own), error_pasted(text[:ERRORS_IN], text)
    is_undo(own), correction(own), check_in(text), check_in(f"pytest {text}"), outcome(text, False, False, True)
    assert time.process_time() - begin < 1.0
