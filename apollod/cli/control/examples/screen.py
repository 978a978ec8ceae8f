"""The screen of `apollod ctl review`: keys in, picture out.

Imported when drawn: textual takes a quarter of a second to load. Keys change the `Sitting` of `held_queue`; `desk`
has pages, and asks daemon and journal, in a thread, one at a time. Only attributes and the colours of the terminal are
used: bold is learned, struck was stripped; without colour marks in the text show it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import ClassVar, TypeVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from apollod.cli.control.examples.desk import Candidate, Desk, Piece, page, with_marks
from apollod.cli.control.examples.held_queue import Change, Sitting
from apollod.cli.render import plain
from apollod.core.facts.review import Choice
from apollod.errors import ApolloError
from apollod.explain import explain

LOOK_EVERY_S = 1.0
STYLES = {
    "heading": "underline", "target": "bold", "stripped": "strike dim", "good": "green", "bad": "red", "quiet": "dim",
}  # fmt: skip
KEYS = "a approve  d decline  e edit  l label  s skip  u undo  / filter  ? help  q quit"
HELP = """\
a   approve: it is learned, at the end of the queue
d   decline: it is not learned
e   edit: $EDITOR opens the answer; what you write is learned instead, before
    all else. Unchanged or emptied it is no edit. E opens the whole record
l   label: words such as "wrong, rude", kept beside your decision as its reason
s   skip: the next one; this one waits on. b goes back
u   undo your last decision, also an edit, until it is being learned
/   filter by text, source or id; empty: everything. Esc leaves it as it was
x   show all of a long context, and fold it again
j k, arrows, page up, page down, home, end   scroll
q   quit: nothing is lost, what you did not decide waits on

{learned} is learned, {stripped} was stripped before.
Of two people the first one decides here; `apollod ctl example` overrides.

Any key goes back."""
EMPTY = """\
Nothing waits for a decision.
{causes}
Examples come to wait when
  - a later turn, a failed check or a rating speaks against them,
  - the judge is not sure, or is not trusted,
  - [inbox] or a [[watch]] has review = "hold", or review = "sample:0.1" for a
    tenth of them,
  - they hold a probe of the quality guard, or their step could not be run,
  - a person says `apollod ctl example hold ID`.

New ones appear here by themselves. q quits."""

Answer = TypeVar("Answer")


class ReviewApp(App[None]):
    """One sitting. `coloured`: use attributes, else marks in the text."""

    CSS = """
    Screen { layout: vertical; background: ansi_default; color: ansi_default; }
    Static { width: 100%; height: 1; background: ansi_default; color: ansi_default; }
    #head, #keys { text-style: reverse; }
    #keys { height: auto; max-height: 2; }
    #page { height: 1fr; scrollbar-size-vertical: 0; background: ansi_default; }
    #text { height: auto; }
    #told { text-style: bold; height: auto; max-height: 3; }
    #filter { display: none; height: 1; border: none; padding: 0; background: ansi_default; color: ansi_default; }
    #filter > .input--cursor { text-style: reverse; background: ansi_default; color: ansi_default; }
    """
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "decide('approve')"), Binding("d", "decide('decline')"), Binding("e", "edit(False)"),
        Binding("E", "edit(True)"), Binding("l", "line('labels')"),
        Binding("s,right", "move(1)"), Binding("b,left", "move(-1)"), Binding("u", "undo"),
        Binding("slash", "line('filter')"),
        Binding("x", "whole"), Binding("question_mark", "help"), Binding("q,ctrl+c", "quit", priority=False),
        Binding("j,down", "scroll('down')"), Binding("k,up", "scroll('up')"), Binding("home", "scroll('home')"),
        Binding("pagedown,space", "scroll('page_down')"), Binding("pageup", "scroll('page_up')"),
        Binding("end", "scroll('end')"),
    ]  # fmt: skip

    def __init__(self, desk: Desk, coloured: bool) -> None:
        super().__init__(ansi_color=True)
        self._desk, self._coloured = desk, coloured
        self._sitting = Sitting().arrived(desk.waiting())
        self._candidate: Candidate | None = None
        self._whole = self._help = False
        self._told = ""
        self._causes: list[str] = []
        self._labels: dict[str, str] = {}
        """Labels that this person typed, by example."""
        self._asks = "filter"
        """Purpose of the input line: filter or labels."""
        self._one = asyncio.Lock()
        """Held while the sitting changes."""

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        with VerticalScroll(id="page", can_focus=False):
            yield Static(id="text", markup=False)
        yield Static(id="told", markup=False)
        line = Input(id="filter", placeholder="text, source or id")
        line.cursor_blink = False  # nothing is sent over a slow line while nobody types
        yield line
        yield Static(KEYS, id="keys", markup=False)

    async def on_mount(self) -> None:
        await self._turn(self._sitting)
        for what in ("scroll_y", "virtual_size"):
            self.watch(self.query_one("#page"), what, self._draw_head)
        self.set_interval(LOOK_EVERY_S, self._look)

    # --- keys -----------------------------------------------------------------------------------------------------

    async def action_decide(self, choice: Choice) -> None:
        """Approve or decline the shown example, unless another person was faster."""
        async with self._one:
            if self._left_help() or (shown := self._candidate) is None:
                return
            labels = self._labels.get(shown.id, "")
            decided = await self._asked(lambda: self._desk.decide(shown.id, choice, labels))
            if decided is None:
                await self._hear()
            else:
                told = f"{decided.how} {shown.id[:12]}; u takes it back"
                await self._hear(self._sitting.decides(decided), told)

    async def action_edit(self, whole: bool) -> None:
        """Edit the answer in $EDITOR and learn the result instead; `whole`: edit the record as JSON."""
        async with self._one:
            if self._left_help() or (shown := self._candidate) is None:
                return
            failed: ApolloError | OSError | None = None
            with self.suspend():  # an error that left this block would leave the terminal to the editor
                try:
                    written = self._desk.write(shown, whole)
                except (ApolloError, OSError) as error:
                    failed = error
            if failed is not None:
                self._fails(failed)
                return
            decided = await self._asked(lambda: self._desk.edit(shown, written, whole))
            if decided is None:
                await self._hear()
            else:
                told = f"{decided.into[:12]} is learned instead of {shown.id[:12]}; u takes it back"
                await self._hear(self._sitting.decides(decided), told)

    async def action_undo(self) -> None:
        """Take the last decision back: its example is held again, and shown."""
        async with self._one:
            if self._left_help():
                return
            if (last := self._sitting.last) is None:
                self._say("you decided nothing yet that could be taken back")
            elif await self._asked(lambda: self._desk.undo(last)):
                await self._hear(self._sitting.takes_back(), f"{last.example[:12]} waits again")
            else:
                await self._hear()

    async def action_move(self, by: int) -> None:
        async with self._one:
            if not self._left_help():
                await self._turn(self._sitting.moved(by))

    def action_whole(self) -> None:
        if not self._left_help():
            self._whole = not self._whole
            self._draw()

    def action_help(self) -> None:
        self._help = not self._help
        self._draw()

    def action_scroll(self, how: str) -> None:
        if not self._left_help():
            getattr(self.query_one("#page", VerticalScroll), f"scroll_{how}")(animate=False)

    def action_line(self, asks: str) -> None:
        """Open the line to type a filter or labels in."""
        if self._left_help() or (asks == "labels" and self._candidate is None):
            return
        self._asks = asks
        line = self.query_one("#filter", Input)
        line.value = self._labels.get(self._sitting.current, "") if asks == "labels" else self._sitting.filter
        line.placeholder = "words that are kept beside your decision" if asks == "labels" else "text, source or id"
        line.display = True
        line.focus()

    async def on_input_submitted(self, submitted: Input.Submitted) -> None:
        text = submitted.value.strip()
        self._leave_filter()
        if self._asks == "labels":
            self._labels[self._sitting.current] = text
            self._draw()
            return
        async with self._one:
            if not text:
                await self._turn(self._sitting.filtered("", None))
                return
            waiting = self._sitting.waiting
            found = await self._asked(lambda: self._desk.found_by(text, waiting))
            if found is not None:
                await self._turn(self._sitting.filtered(text, found), f"{len(found)} have {text!r}; / and return: all")

    def key_escape(self) -> None:
        self._leave_filter()
        self._left_help()

    def _leave_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.set_focus(None)

    def _left_help(self) -> bool:
        """Close the help; True if it was open, so that this key did only that."""
        left, self._help = self._help, False
        if left:
            self._draw()
        return left

    # --- daemon and journal ---------------------------------------------------------------------------------------

    async def _asked(self, ask: Callable[[], Answer]) -> Answer | None:
        """Ask in a thread; None after an error, which is shown on one line."""
        try:
            return await asyncio.to_thread(ask)
        except (ApolloError, OSError) as error:
            self._fails(error)
            return None

    def _fails(self, error: ApolloError | OSError) -> None:
        self._say((explain(error) if isinstance(error, OSError) else error).line())

    async def _look(self) -> None:
        async with self._one:
            await self._hear()

    async def _hear(self, after: Sitting | None = None, told: str | None = None) -> None:
        """Take what happened meanwhile. `after`: the sitting after this person's action, which `told` describes."""
        changes = await self._asked(self._desk.changes) or []
        if after is None and not changes:
            return
        sitting, news = (after or self._sitting).hears(changes)
        if sitting.found is not None and (new := [one.example for one in changes if one.held]):
            more = await self._asked(lambda: self._desk.found_by(sitting.filter, new)) or frozenset[str]()
            sitting = sitting.filtered(sitting.filter, sitting.found | more)
        await self._turn(sitting, "; ".join([*([told] if told else []), *map(_news, news)]) or None)

    async def _turn(self, sitting: Sitting, told: str | None = "") -> None:
        """Show this sitting. `told`: None leaves the message as it is."""
        before, self._sitting = self._candidate, sitting
        if told is not None:
            self._told = told
        if not (id_ := sitting.current):
            self._candidate = None
            self._causes = [] if sitting.waiting else await self._asked(self._desk.causes) or []
        elif before is None or before.id != id_:
            self._candidate = await self._asked(lambda: self._desk.candidate(id_))
            self._whole = False
            self.query_one("#page", VerticalScroll).scroll_home(animate=False)
        self._draw()

    # --- the picture ----------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._told = text
        self._draw()

    def _draw(self) -> None:
        self._draw_head()
        self.query_one("#text", Static).update(self._text())
        told = self.query_one("#told", Static)
        told.update(plain(" ".join(self._told.split())))
        told.display = bool(self._told)
        self.call_after_refresh(self._draw_head)  # now it is known how long the page is

    def _draw_head(self) -> None:
        view = self.query_one("#page", VerticalScroll)
        more = "   more below" if view.scroll_offset.y < view.max_scroll_y else ""
        self.query_one("#head", Static).update(self._head() + more)

    def _head(self) -> str:
        s = self._sitting
        counts = [f"{s.count(how)} {how}" for how in ("approved", "declined", "edited") if s.count(how)]
        here = f"here: {', '.join(counts)}" if counts else "nothing decided here"
        judged = f" + {count} for the judge" if (count := self._desk.for_the_judge) else ""
        among = f"{s.place} of {len(s.shown)}" + (f" ({plain(s.filter)!r})" if s.filter else "")
        return f"{len(s.waiting)} held{judged}   {here}   {among}"

    def _text(self) -> Text | str:
        marks = ("bold", "struck") if self._coloured else ("[[ ]]", "[- -]")
        if self._help:
            return HELP.format(learned=marks[0], stripped=marks[1])
        if self._candidate is None:
            if self._sitting.current:
                return ""
            return (
                f"None has {plain(self._sitting.filter)!r}. / and return: all."
                if self._sitting.waiting
                else self._empty()
            )
        id_ = self._candidate.id
        worth, labels = self._desk.worth(id_), self._labels.get(id_, "")
        pieces = page(self._candidate, time.time_ns(), self._whole, worth, labels)
        return _styled(pieces) if self._coloured else with_marks(pieces)

    def _empty(self) -> str:
        causes = "".join(f"  - {plain(cause)}\n" for cause in self._causes)
        return EMPTY.format(causes=f"\n{causes}" if causes else "")


def _styled(pieces: list[Piece]) -> Text:
    return Text.assemble(*((piece.text, STYLES.get(piece.look, "")) for piece in pieces))


def _news(change: Change) -> str:
    who = change.by or ("nobody decided in time" if change.how == "expired" else "a person")
    return f"{change.example[:12]}: {who}" + (f" {change.how} it meanwhile" if change.how != "expired" else "")
