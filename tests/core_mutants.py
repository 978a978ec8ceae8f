"""Does the suite notice when the core is broken? Each mutant is the core with one thing wrong; its tests have to go
red.

    python tests/core_mutants.py [NAME ...]

Works on a copy of the package in a temporary directory. Exit code 1 if a mutant survives, or if one no longer applies.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TESTS = ("tests/unit/core", "tests/property")


class Mutant(NamedTuple):
    """`before` is replaced by `after` in a file of the core; it has to be there once."""

    name: str
    file: str
    before: str
    after: str


MUTANTS = (
    Mutant("a pause stops no step", "activities.py", "STOPPING, HALTED, PAUSED, ALARM,",
    "STOPPING, HALTED, ALARM,"),
    Mutant("a pause stops checkpoints", "activities.py", "STOPPING, HALTED, ROLLBACK_WANTED, ROLLBACK, NO_TRAINER,",
    "STOPPING, HALTED, PAUSED, ROLLBACK_WANTED, ROLLBACK, NO_TRAINER,"),
    Mutant("a step begins in a comparison", "activities.py", "NO_TRAINER, FENCE, ALIGNMENT, STEP, LOOK_DUE,",
    "NO_TRAINER, FENCE, STEP, LOOK_DUE,"),
    Mutant("a comparison beside a checkpoint", "activities.py", "FENCE, STEP, CHECKPOINT, COMPARISON,",
    "FENCE, STEP, COMPARISON,"),
    Mutant("a removal beside a rollback", "activities.py", "(STOPPING, ROLLBACK_WANTED, ROLLBACK, CHECKPOINT)",
    "(STOPPING, CHECKPOINT)"),
    Mutant("a rollback beside a step", "activities.py", "(STOPPING, RECOVERY, STEP, DIFFERENCE)",
    "(STOPPING, RECOVERY, DIFFERENCE)"),
    Mutant("a halt is forgotten", "activities.py", "return state.daemon.halted", 'return ""'),
    Mutant("a trainer beside no engine", "activities.py", "NO_ENGINE_PROCESS, ROLLBACK_WANTED,", "ROLLBACK_WANTED,"),
    Mutant("a lost engine leaves the trainer bound", "rules/children.py",
    '        own.trainer.phase, own.trainer.doomed = "spawned", True\n\n\ndef _trainer_spawned',
    "        pass\n\n\ndef _trainer_spawned"),
    Mutant("a distrusted trainer goes on", "rules/children.py",
    '        # Its memory cannot be trusted: ask it nothing more.\n'
    '        own.trainer.phase, own.trainer.doomed = "spawned", True', "        pass"),
    Mutant("no child is given up", "facts/children.py",
    "        self.given_up = len(self.crashes_ns) >= EXITS_MAX\n\n    def absolved", "\n    def absolved"),
    Mutant("one death too many", "rules/training.py", "running.attempts + 1 < STEP_ATTEMPTS_MAX",
    "running.attempts < STEP_ATTEMPTS_MAX"),
    Mutant("a decaying window has no end", "rules/training.py",
    'settings.schedule == "cosine" and window.examples >= window.planned', "False"),
    Mutant("tiers are mixed in a step", "rules/training.py", "one.tier != first.tier or (one.digest", "(one.digest"),
    Mutant("the parent is the last step started", "rules/training.py", "parent=state.training.version, example=first",
    "parent=state.training.step, example=first"),
    Mutant("steps that wrote nothing are counted for ever", "rules/training.py",
    "    own.unlearned = 0\n    if e.tokens:", "    if e.tokens:"),
    Mutant("a step that failed apart is lost", "rules/intake/fold.py",
    "            own.queue_of(one.tier).waiting.appendleft(one)",
    "            pass"),
    Mutant("the origin makes room", "rules/checkpoints.py", "if state.recovery.origin not in committed[1:] or",
    "if len(committed) < 2 or"),
    Mutant("a queue keeps checkpoints away", "rules/checkpoints.py",
    "return not state.intake.pending or bool(blocked(Activity.STEP, state))", "return not state.intake.pending"),
    Mutant("no checkpoint while steps go on", "rules/checkpoints.py", "if state.training.window is not None and",
    "if False and"),
    Mutant("a failed checkpoint is tried at once", "rules/checkpoints.py", "return max(retry_ns, min(times))",
    "return min(times)"),
    Mutant("what leads to the origin makes room", "rules/checkpoints.py",
    "    if state.recovery.origin not in committed[1:] or blocked(Activity.REMOVAL, state):\n        return None\n"
    "    oldest = committed[0]\n",
    "    oldest = next((c for c in committed[:-1] if c != state.recovery.origin), None)\n"
    "    if oldest is None or blocked(Activity.REMOVAL, state):\n        return None\n"),
    Mutant("a rollback to weights that nobody has", "rules/rollback.py", "or _no_origin(state, input_)\n",
    "or ''\n"),
    Mutant("a path is used twice", "rules/checkpoints.py", "if p not in taken)", "if True)"),
    Mutant("a checkpoint of other weights counts", "rules/checkpoints.py",
    'if error := error or _mismatch(state, input_.step, input_.fingerprint):', "if error:"),
    Mutant("nobody looks after an orphaned checkpoint", "rules/checkpoints.py",
    "is not None and orphaned_checkpoint(state):", "is None:"),
    Mutant("restored weights are not compared", "rules/recovery.py", "if input_.fingerprint != wanted:", "if False:"),
    Mutant("a replay of other bits goes on", "rules/recovery.py",
    "if (input_.fingerprint, input_.applied, skipped) != (done.fingerprint, done.applied, done.skipped):", "if False:"),
    Mutant("other settings for the same step", "rules/recovery.py", "if changed := _changed_settings(state):",
    "if False:"),
    Mutant("a checkpoint of steps taken back is the origin", "rules/recovery.py",
    "    if ref.step == state.training.version or any(done.step == ref.step for done in own.since):", "    if True:"),
    Mutant("a checkpoint committed on the way back changes the way", "rules/recovery.py",
    "if state.rollback.under_way is None:", "if True:"),
    Mutant("what was taken back is learned again", "rules/intake/fold.py",
    "    own.undone |= dict.fromkeys(e.examples)",
    "    for one in e.examples:\n        own.queue(one, 'bulk')"),
    Mutant("a fence is never opened", "rules/publishing.py",
    "if state.publishing.engine_paused and not _write_due(state) else []", "if False else []"),
    Mutant("a write is not fenced", "rules/publishing.py", "elif not closed and (", "elif False and ("),
    Mutant("prefixes of what was taken back stay", "rules/publishing.py",
    'drops = back and settings.cache == "keep"', "drops = False"),
    Mutant("an example twice in a batch", "facts/intake/repeats.py", "        self._examples.add(line.example)\n", ""),
    Mutant("tokens are asked for twice", "rules/intake/accepting.py",
    "if any(queue.untokenised for queue in state.intake.queues) or state", "if state"),
    Mutant("direct corrections wait behind bulk examples", "facts/intake/state.py",
    "    yield from (Pick(one) for one in intake.direct.waiting if one.example not in looks and one.example not in "
    "gathered)\n", ""),
    Mutant("bulk examples are tokenised first", "facts/intake/state.py", "        return self.direct, self.bulk",
    "        return self.bulk, self.direct"),
    Mutant("no finite difference is none", "rules/alignment.py", "aligned=mean <= bound and not nonfinite,",
    "aligned=mean <= bound,"),
    Mutant("a few tokens halt training", "rules/alignment.py", "    if not _conclusive(state):", "    if False:"),
    Mutant("an answer about another trainer counts", "rules/alignment.py",
    "return state.alignment.open is not None and state.alignment.open.number == number",
    "return state.alignment.open is not None"),
    Mutant("a step waits for the whole text", "rules/alignment.py", "and not own.differs and waited_for:",
    "and False:"),
    Mutant("a rollback leaves the engine at work", "rules/alignment.py",
    "    inp.RollbackRequested: _on_rollback,\n", ""),
    Mutant("a difference is forgotten", "rules/alignment.py", "own.doubted or e.doubted", "own.doubted"),
    Mutant("a journal takes another model", "rules/daemon.py", "if belongs_to and belongs_to != settings.model_path:",
    "if False:"),
    Mutant("a stop waits for ever", "rules/children.py", "and not (at_work and _too_long(state, now_ns))", ""),
    Mutant("serving ends first", "rules/children.py",
    'engine.phase == "ready" and trainer.phase != "absent"', "False"),
    Mutant("a shutdown does not wait for its checkpoint", "decide.py", "if begun.events and state.daemon.stopping:",
    "if False:"),
    Mutant("what is known counts as refused", "rules/training.py",
    "own.unlearned += counts and not e.known", "own.unlearned += 1"),
    Mutant("doubt asks nobody", "facts/quality/looking.py", "    if own.doubt:", "    if False:"),
    Mutant("doubt does not grow", "facts/quality/looking.py",
    "return Doubt(spoke or grown, False)", "return Doubt(spoke, False)"),
    Mutant("doubt is never cleared", "facts/quality/looking.py", "DOUBTS * max(1.0, cleared.get(name, 0.0))", "DOUBTS"),
    Mutant("a part of the probes makes weights good", "facts/quality/looking.py",
    "return Doubt(spoke or grown, False)", "return Doubt(spoke or grown, not (spoke or grown))"),
    Mutant("all probes are never asked for their time", "facts/quality/looking.py",
    "return paid or len(own.since_good)", "return len(own.since_good)"),
    Mutant("suspect weights are good", "rules/quality/fold.py", "        if good:", "        if True:"),
    Mutant("the end of a window waits for time", "facts/quality/looking.py", "(quiet or paid) else", "paid else"),
    Mutant("what nothing passed raises alarms", "facts/quality/looking.py",
    "is_rate(name) and not any(", "False and not any("),
    Mutant("what moved least is held", "facts/holding.py", "key=need, reverse=True", "key=need"),
    Mutant("what moves little is never held again", "facts/holding.py", ">= TURNS * count else", ">= 1e9 else"),
    Mutant("an answer of moving weights is frozen", "rules/holding/policy.py", "    if moving or {", "    if {"),
    Mutant("steps do not wait for what they hold", "shared/missing_anchors.py",
    "    if urgent(state) or own.pending:", "    if False:"),
    Mutant("steps wait for an engine that does not answer", "shared/missing_anchors.py",
    "or own.retry.failures or", "or"),
    Mutant("a repeated step holds nothing", "rules/training.py",
    '{"again_of": again.number}', '{"again_of": again.number, "held": ()}'),
    Mutant("a step that is run again holds nothing", "rules/recovery.py",
    "**done.terms()", '**(done.terms() | {"held": ()})'),
    Mutant("a step that is begun again holds nothing", "rules/recovery.py",
    "fx.RunStep.of(state.training.running.begun)",
    "msgspec.structs.replace(fx.RunStep.of(state.training.running.begun), held=())"),
    Mutant("what a lesson replaced is taught again by files", "rules/intake/accepting.py",
    '    if found.replaced and tier != "direct":', "    if False:"),
    Mutant("what a lesson replaced is not taught again by people", "rules/intake/accepting.py",
    "    if not (found.weak or found.replaced) and (tier", "    if (not found.weak or found.replaced) and (tier"),
    Mutant("what a lesson replaced counts as weak", "rules/rescoring.py",
    "    own.waiting.pop(e.example, None)\n    own.gains.pop(e.example, None)\n\n\nFOLDS", "    pass\n\n\nFOLDS"),
    Mutant("what a replaced line says may be said on", "rules/lessons/fold.py",
    "*filter(None, (e.answer,))", ""),
    Mutant("what contradicts a lesson is learned after it", "rules/lessons/standing.py",
    "ExampleWithdrawn(examples=waiting, by=lesson.id, reason=reason)] if waiting else", "] if waiting else"),
    Mutant("what is approved is held against a lesson", "rules/holding/fold.py",
    "    ev.LessonWorded: _lesson_worded,\n", ""),
    Mutant("a lesson in other words replaces none", "facts/lessons/events.py", "(worded.key, *worded.also) if",
    "(worded.key,) if"),
    Mutant("what is approved is held against a line", "rules/holding/fold.py",
    '    _taught(own, e.question, f"example', '    str(f"example'),
    Mutant("a disapproved answer is held on", "rules/holding/fold.py",
    "    ev.ForgetRequested: _disapproved_several,\n", ""),
    Mutant("an answer of another model is held", "rules/holding/fold.py",
    "    if any(one.answer for one in e.sampled):",
    "    if e.sampled:"),
    Mutant("steps wait for what was approved", "shared/missing_anchors.py", "next(_first(state), None)",
    "next(missing(state), None)"),
    Mutant("what a replaced lesson said is held on", "rules/holding/fold.py",
    "    ev.LessonReplaced: _lesson_falls,\n", ""),
    Mutant("what is not shown when told is practised", "facts/dreams/course.py", "if passed < TOLD_MIN * of:",
    "if passed < 0:"),
    Mutant("an instruction without effect is practised", "facts/dreams/course.py", "elif passed <= untold:",
    "elif passed < 0:"),
    Mutant("what logs taught is not tested", "rules/dreams/fold.py",
    "    ev.BootstrapCompleted: _bootstrap_completed,\n", ""),
    Mutant("what logs taught is not tested in contrast", "facts/dreams/held_out_rounds.py",
    'name == "shown" or not course.taught else', 'name == "shown" or not course.practices else'),
    Mutant("a situation is told what is wrong in it", "rules/dreams/calls.py",
    'told = behaviour if mode in ("told", "contrast") else ""', 'told = "" if mode == "bare" else behaviour'),
    Mutant("a bootstrap that goes on forgets what it had", "rules/bootstrap.py",
    "now.counts, now.waiting = before.counts, before.waiting", "now.counts = before.counts"),
    Mutant("a bootstrap does not wait for the judge", "rules/bootstrap.py", 'if e.waits_for != "judge":', "if True:"),
    Mutant("the judge of a bootstrap is not told the rubric", "rules/judging/policy.py",
    'rubric = check.rubric if check is not None else ""', 'rubric = ""'),
    Mutant("a behaviour settles by its likeliest answers alone", "facts/dreams/held_out_rounds.py",
    '    if name.startswith("recheck"):', "    if True:"),
    Mutant("all surroundings keep the bound together", "facts/dreams/held_out_rounds.py",
    'kind = "" if case.mode == "situation" else', 'kind = "" if True else'),
    Mutant("where it is not followed it has to show", "facts/dreams/held_out_rounds.py",
    "scenario.surrounding.kind in left_out", "False"),
    Mutant("where it is not followed it is practised", "facts/dreams/course.py",
    "if kind not in left_out)", "if kind)"),
    Mutant("one told answer of two is too few to practise on", "facts/dreams/held_out_rounds.py",
    "of >= FOLLOWED_OF and not told and not bare", "of >= FOLLOWED_OF and told < of"),
    Mutant("a contrast text that failed waits for its turn", "facts/dreams/course.py",
    "    if weak:\n        return weak",
    "    if False:\n        return weak"),
    Mutant("what settled in an older journal is unsettled", "rules/dreams/fold.py",
    'course.settled_at, course.due, course.failed = e.step, "", False', 'course.settled_at, course.due = e.step, ""'),
    Mutant("each round of a behaviour may spend all of the error", "rules/dreams/fold.py",
    "course.proofs += e.sample > 0 and", "course.proofs += e.sample < 0 and"),
    Mutant("what was shown before is practised in contrast", "facts/dreams/held_out_rounds.py",
    'return ("bare",) if name == "shown" or not course.taught else', 'return ("bare",) if name == "shown" else'),
    Mutant("a lesson is known by a chance of one in two", "proof.py",
    "return log(round_ * (round_ + 1) / ALPHA)", "return log(2.0)"),
    Mutant("each round may spend all of the error", "proof.py", "return log(round_ * (round_ + 1) / ALPHA)",
    "return log(1 / ALPHA)"),
    Mutant("a lesson is known by its greedy answers", "facts/lessons/rounds.py",
    "    return decided(_sampled(tried), proof, held_out)", "    return True"),
    Mutant("what the told model cannot answer is trained", "facts/lessons/rounds.py",
    "return (given and learned_otherwise(own, lesson)) or passed >= TOLD_MIN * of", "return True"),
    Mutant("what lessons of its form say ends a lesson", "facts/lessons/rounds.py",
    "return bool(lesson.not_these) or any(", "return bool(lesson.not_these) or False and any("),
    Mutant("each round practises the same wordings", "facts/lessons/rounds.py", "(lesson.practices + n) % count", "n"),
    Mutant("a round practises all wordings", "facts/lessons/rounds.py", "range(min(PRACTISED, count))", "range(count)"),
    Mutant("two tests share their seeds", "rules/lessons/fold.py",
    "        lesson.rounds = e.round\n", "        pass\n"),
    Mutant("answers of weights that are gone count", "rules/lessons/fold.py",
    "        course.round, course.tried, course.proof = course.round + 1, [], 0", "        pass"),
    Mutant("a lesson has no end", "facts/lessons/rounds.py", "    if not left(lesson, settings):", "    if False:"),
    Mutant("a budget for ever", "rules/lessons/fold.py", "    lesson.budget_from = lesson.steps\n", ""),
    Mutant("a practice that is learned twice", "rules/lessons/replies.py", 'f"{record} {lesson} {number}"',
    'f"{record} {lesson}"'),
    Mutant("a replaced lesson goes on", "rules/lessons/fold.py", "    _falls(own, lesson)\n    _stands(own, newer)",
    "    _stands(own, newer)"),
    Mutant("the old answer passes", "rules/lessons/standing.py", "in lesson.not_these if one and",
    "in lesson.not_these if False and"),
    Mutant("what was replaced waits on to be learned", "rules/lessons/standing.py",
    "    return [ExampleWithdrawn(examples=waiting, by=by, reason=reason)] if waiting else []", "    return []"),
    Mutant("a rollback leaves what is known", "rules/lessons/fold.py",
    '        if lesson.state == "known":', "        if False:"),
    Mutant("repeated steps are not the lesson's", "rules/lessons/fold.py",
    "            own.lessons[id_].last_step = e.step", "            pass"),
    Mutant("what is due is asked for ever", "rules/lessons/fold.py",
    "= lesson.distance + 1, e.step", "= lesson.distance, e.step"),
    Mutant("lessons wait while others are asked again", "rules/lessons/policy.py",
    "return waiting if waiting and own.asked_again else", "return"),
    Mutant("lessons in a forgetting", "activities.py", "INCIDENT, FORGETTING, NO_ENGINE, NO_TRAINER,",
    "INCIDENT, NO_ENGINE, NO_TRAINER,"),
    Mutant("an endpoint that is down ends a lesson", "rules/lessons/replies.py",
    "    if cause in OUTSIDE or own.refusals + 1 < REFUSALS_MAX:", "    if own.refusals + 1 < REFUSALS_MAX:"),
    Mutant("a second score beside waiting examples", "activities.py",
    "ROLLBACK_WANTED, ROLLBACK, LEARNING),", "ROLLBACK_WANTED, ROLLBACK),"),
    Mutant("more groups than may wait", "rules/environments.py", "known.ahead - len(one.waiting)", "known.ahead"),
    Mutant("an old group is learned", "rules/environments.py", "now - group.first > known.age_max", "False"),
    Mutant("groups of a paused environment are learned", "rules/environments.py",
    "    if one.paused_by:\n        return dict", "    if False:\n        return dict"),
    Mutant("the rails hold nothing", "rules/environments.py", "one.unhealthy >= known.rails and", "False and"),
    Mutant("a bad prompt is asked for ever", "rules/environments.py",
    "(input_.attempt >= ATTEMPTS_MAX and not input_.outside)", "False"),
    Mutant("an environment that is away loses prompts", "rules/environments.py", " and not input_.outside)", ")"),
    Mutant("a group is taken twice", "rules/environments.py", "and number > one.last and number not in one.done else",
    "else"),
    Mutant("bad groups halt training", "rules/training.py", 'return objective in ("sft", "context")', "return True"),
    Mutant("z0 below 0", "facts/preferences.py", "max(0.0, sum(self.gained) / len(self.gained))",
           "sum(self.gained) / len(self.gained)"),
    Mutant("z0 of every objective", "rules/training.py", 'state.preferences.zero if first.objective == "kto" else 0.0',
           "state.preferences.zero"),
    Mutant("z0 of all ratings ever", "rules/preferences.py", "(*before, value)[-KEPT:]", "(*before, value)"),
    Mutant("ratings wait for no others", "facts/intake/state.py", "< self.ratings_per_step else {}", "< 0 else {}"),
    Mutant("ratings learned one by one", "rules/training.py", "most, room = settings.preferences.ratings_per_step, ",
           "most, room = 1, "),
    Mutant("ratings beyond the memory of a step", "rules/training.py", "for each in (*batch, one)]) > room",
           "for each in (*batch, one)]) > inf"),
    Mutant("ratings that wait keep the daemon busy", "state.py", "self.queued - len(self.intake.gathered)",
           "self.queued"),
    Mutant("a rating learned alone is counted as one that waits", "rules/intake/fold.py",
           "        own.ratings.pop(example, None)\n    own.recent", "    own.recent"),
    Mutant("a reference given twice", "rules/intake/policy.py", "state.training.version) if result.file else -1",
           "state.training.version)"),
    Mutant("an untrained reference counts as one of the moment", "rules/intake/policy.py",
           "(0 if result.untrained else state.training.version)", "state.training.version"),
    Mutant("a judge decides about what a person said", "rules/intake/by_evidence.py", "if line.decided:", "if False:"),
    Mutant("groups at the rate of others", "rules/training.py", ":= settings.environment_named(name)) is not None and",
    ":= settings.environment_named(name)) is None and"),
    Mutant("groups before a look", "activities.py", "ROLLBACK_WANTED, ROLLBACK, LOOK_DUE, ANCHORS,\n    ),  # as steps",
    "ROLLBACK_WANTED, ROLLBACK, ANCHORS,\n    ),  # as steps"),
    Mutant("a step beside an outside trainer", "activities.py", "PAUSED, ALARM, LEASED, DAY,", "PAUSED, ALARM, DAY,"),
    Mutant("an update is written beside requests", "rules/publishing.py", " or _updates(state, events)", ""),
    Mutant("weights are written while they are sent", "rules/publishing.py", "(sends or ", "("),
    Mutant("an update that was not kept is written again", "rules/recovery.py", "    if lost := _lost(state):",
    "    if lost := list[ev.Event]():"),
    Mutant("an update whose example is edited never ends", "rules/updates.py", "    ev.ExampleEdited: _edited,\n", ""),
    Mutant("a silent outside trainer keeps the lease", "rules/updates.py",
    "    if silent_s > settings.control.lease_s:", "    if False:"),
    Mutant("a rollback over an update that was not kept", "rules/rollback.py", "        or _not_kept(state, input_)\n",
    ""),
)  # fmt: skip


NO_MUTANT = Mutant("the core as it is", "decide.py", "", "")


def times(mutant: Mutant) -> int:
    """How often the text that it replaces is there; it applies where that is once."""
    return (ROOT / "apollod" / "core" / mutant.file).read_text().count(mutant.before)


def survives(mutant: Mutant) -> bool:
    """Are the tests green with it? Raises ValueError where it does not apply."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "apollod"
        shutil.copytree(ROOT / "apollod", copy, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "migrations", Path(directory) / "migrations")
        file = copy / "core" / mutant.file
        text = file.read_text()
        if mutant is not NO_MUTANT and (count := times(mutant)) != 1:
            raise ValueError(f"{mutant.name}: {mutant.file} has its text {count} times")
        file.write_text(text.replace(mutant.before, mutant.after))
        path = os.pathsep.join([directory, str(ROOT / "tests")])
        command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        return done.returncode == 0


def main(names: Sequence[str]) -> int:
    """Run those named, or all."""
    if not survives(NO_MUTANT):
        print("the tests are red without any mutant, so that they prove nothing")
        return 1
    left = 0
    for mutant in MUTANTS:
        if names and mutant.name not in names:
            continue
        began = time.monotonic()
        try:
            said = "SURVIVES" if survives(mutant) else "red"
        except ValueError as error:
            said = f"DOES NOT APPLY: {error}"
        left += said != "red"
        print(f"{said:9} {time.monotonic() - began:5.0f} s  {mutant.name}", flush=True)
    print(f"{left} of {len(MUTANTS)} were not noticed")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
