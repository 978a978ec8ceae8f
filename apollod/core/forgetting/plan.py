"""Plan a forgetting from the journal: the steps that learned the examples, and those to repeat without them. Pure."""

from collections.abc import Callable, Collection, Mapping

from apollod.core import events as ev
from apollod.core.forgetting.inputs import ForgetPlanned
from apollod.core.rollback.way_back import NotRead, differing
from apollod.core.training.learned import Learned


def plan(
    started: Mapping[int, ev.StepStarted],
    completed: Mapping[int, ev.StepCompleted],
    settings_of: Callable[[int], ev.Settings],
    bound_of: Callable[[int], ev.TrainerBound | None],
    tiers_of: Callable[[Collection[str]], Mapping[str, ev.Tier]],
    wanted: Collection[str],
    version: int,
    most: int,
    begins: int = 0,
) -> ForgetPlanned:
    """Search from step `version` back along its parents, at most `most` steps and not beyond step `begins`, until all
    `wanted` examples are found; the others are in `far`. Raises NotRead if a step is missing."""
    left, passed, first, step = set(wanted), list[ev.StepCompleted](), 0, version
    while left and step > begins and len(passed) < most:
        if step not in completed or step not in started:
            raise NotRead(step)
        passed.append(done := completed[step])
        if done.applied and not left.isdisjoint(examples := ev.all_examples(done)):
            left -= set(examples)
            first = len(passed)
        step = done.parent
    way, found = [done for done in passed[:first] if done.applied][::-1], set(wanted) - left
    # Skip steps that wrote nothing: `apollod replay --without` skips them as well.
    if not found:
        return ForgetPlanned(version, far=_in_order(wanted, left))
    tiers = tiers_of([ev.all_examples(done)[0] for done in way])
    learned = [Learned.of(started[done.step], tiers.get(ev.all_examples(done)[0], "bulk")) for done in way]
    step_of = {example: one.step for one in learned for example in one.examples if example in found}
    again = tuple(rest for one in learned if (rest := one.without(found)).examples)
    made_with = [settings_of(one.step) for one in again]
    ran_on = [bound.versions if (bound := bound_of(one.step)) else {} for one in again]
    name = differing(made_with, ran_on)
    return ForgetPlanned(
        version, tuple(step_of), tuple(step_of.values()), passed[first - 1].parent, again,
        made_with[0] if made_with else None, dict(ran_on[0]) if ran_on else {}, far=_in_order(wanted, left),
        error=f"the steps since it was learned were made with several {name}" if name else "",
    )  # fmt: skip


def _in_order(wanted: Collection[str], among: Collection[str]) -> tuple[str, ...]:
    return tuple(one for one in wanted if one in among)
