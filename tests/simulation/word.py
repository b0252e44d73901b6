"""What must hold of a job whose content changes: every word on it that was answered well is kept.

A *word* is what a client asked: a push, a replacement, an edit, a retry, a deletion. One comes before another when it
was answered, however, before the other was asked; of those that overlap either may be the first. Then:

cancel    after a 204 no content starts, unless a word that does not come before the deletion gives it or begins the job
          anew
older     no content is claimed and started after the store had a later one that was answered well (an edit is answered
          when the store has it, a push before); and from that answer on no look shows it
unrun     the last word's content runs to an end itself, and what ended the job before does not end it
again     what ended runs again only after a word that began it anew, or by a cause (`causes.py`)
date      nothing starts before the date of its content
twins     two jobs under one name never both run
conflict  of two contents under one name without `replace` only one is answered 201, unless a deletion lies between them
lost      what was taken is known, has ended as it ran, and is cancelled only where somebody asked for that

A word may be forgotten by a store that loses data while the daemon that took it is away, or so slow to reach that it
notices too late: until it is back nobody knows it. But for an edit of what has ended meanwhile, all holds at the end.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import trio

from jqd.domain.job import Fate, State
from jqd.domain.jobid import partition_of, partition_of_name
from tests.simulation.causes import Attempt, may_be_over
from tests.simulation.matter import AGAIN, BEGINS, DELETE, EDIT, GIVES_CONTENT, LOOK, REPLACE, RETRY, Matter, Order
from tests.simulation.notes import Notes
from tests.simulation.plan import PURGE

DATE_S = 0.05  # a job may start so much before its date: clocks are read in whole milliseconds, here and there
ENDS = frozenset({Fate.SUCCEEDED, Fate.FAILED, Fate.DEAD})
STATE_OF = {
    State.SUCCEEDED: frozenset({Fate.SUCCEEDED}),
    State.FAILED: frozenset({Fate.FAILED, Fate.DEAD}),
}


@dataclass(slots=True)
class Word:
    """Something that was asked of a daemon."""

    what: str
    node: str
    content: int
    due_s: float
    """Before which that content must not start."""
    sent: int
    """The moment."""
    sent_s: float
    answered: float = math.inf
    """The moment; until then it may do something yet, and nothing after it."""
    answered_s: float = math.inf
    status: int = 0
    """0: nothing was answered."""

    @property
    def holds(self) -> bool:
        """Whether it was answered with a promise."""
        return self.status in ((204,) if self.what == DELETE else (200,) if self.what in (EDIT, RETRY) else (201,))

    @property
    def may_act(self) -> bool:
        """Whether it may have changed anything: also what was refused late, or not answered at all."""
        late = self.status in (202, 409) and self.what in (EDIT, RETRY, DELETE)
        return self.what != LOOK and (self.holds or late or self.status == 0 or self.status >= 500)

    @property
    def gives(self) -> bool:
        """Whether it is about a content."""
        return self.what in GIVES_CONTENT or self.what == AGAIN

    def before(self, other: "Word") -> bool:
        """Whether it surely came first."""
        # A deletion that was recorded, and no more, meets what it finds when it comes to the store: an edit, too.
        recorded = self.what == DELETE and not self.holds and other.what == EDIT
        return self.answered < other.sent and not recorded

    def __str__(self) -> str:
        return f"{self.what} {self.content} at {self.node}, answered {self.status} at {self.answered_s:.3f} s"


@dataclass(slots=True)
class Run(Attempt):
    """A start of one content of it."""

    content: int = 0
    job_id: str = ""
    claimed: int = 0
    """The moment; 0: nobody knows."""
    began: int = 0
    """The moment of the start."""
    unaware: list["Word"] = field(default_factory=list)
    """Edits that the store may have forgotten by then: they change nothing of what has ended (adr/0010)."""


def end(runs: Sequence[Run], life: str, job_id: str, fence: int, fate: Fate) -> Run | None:
    """A daemon heard how an attempt ended: that one of these."""
    for run in reversed(runs):
        if (run.life, run.job_id, run.fence) == (life, job_id, fence):
            run.fate, run.fate_at_s = fate, trio.current_time()
            return run
    return None


@dataclass
class Tale:
    """All about one of them."""

    history: Notes
    matter: Matter
    words: list[Word] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    job_id: str = ""
    """The daemon's id, as far as we know it."""
    stored: dict[int, int] = field(default_factory=dict)
    """Content → the moment in which the store first had it."""
    told_s: dict[int, float] = field(default_factory=dict)
    """Content → when the store was last told of it."""

    @property
    def home(self) -> int:
        """The partition it lives in."""
        partitions = self.history.plan.partitions
        if self.matter.name:
            return partition_of_name(self.matter.name, partitions)
        return partition_of(self.job_id, partitions)

    # ------------------------------------------------------------ what happened

    def asked(self, order: Order, node: str) -> Word:
        """A client sent it."""
        now_s = trio.current_time()
        word = Word(order.what, node, order.content, now_s + order.delay_s, self.history.moment(), now_s)
        if word.what == LOOK or not word.gives:
            word.content = 0
        self.words.append(word)
        return word

    def answered(self, word: Word, status: int) -> None:
        """It was answered; 0: it never will be, its daemon is gone."""
        word.answered, word.answered_s, word.status = self.history.moment(), trio.current_time(), status
        self.history.note(word.what, word.node, self.matter.number, word.content, status)
        if word.what == DELETE and word.holds:
            for run in self.runs:
                for life in self.history.runs(run.job_id, ""):
                    if life == run.life and run.fate is None and not self._begun_since(word, run.content):
                        self._wrong("cancel", f"{life} runs content {run.content} at a {word}")
        elif word.gives and word.what not in (REPLACE, EDIT) and word.holds:
            self._check_conflict(word)

    def looked(self, word: Word, status: int, content: int | None, state: str) -> None:
        """A look was answered. `content`: None where nothing of it was told."""
        word.answered, word.answered_s, word.status = self.history.moment(), trio.current_time(), status
        self.history.note("look", word.node, self.matter.number, status, content, state)
        known = [each for each in self.words if each.gives and each.holds and each.before(word)]
        excused = any(
            self._forgotten(each) or self.history.unheard(self.home, each.node) or self._is_ahead(each, word)
            for each in known
        )
        if status == 404 and known and not self._purges and not excused:
            self._wrong("lost", f"{word.node} knows nothing of it after a {known[0]}")
        if status == 200 and content is not None:
            self._check_age("shown", content, word.sent, word.node)
            if state == State.CANCELLED and not any(each.what == DELETE for each in self.words):
                self._wrong("lost", f"{word.node} shows it as cancelled, and nobody asked for that")

    def _is_ahead(self, given: Word, look: Word) -> bool:
        """Whether its id may be of an hour that has not come at that node, while the store has no such job yet."""
        return self.history.clock_jumps and given.node != look.node and given.content not in self.stored

    def applied(self, content: int) -> None:
        """The store has that content now."""
        self.stored.setdefault(content, self.history.moment())
        self.told_s[content] = trio.current_time()

    def stopped(self, life: str, job_id: str) -> None:
        """A worker was told to stop with it."""
        runs = [run for run in self.runs if (run.life, run.job_id, run.fate) == (life, job_id, None)]
        if runs and self.matter.contents[runs[-1].content].what != EDIT:
            given = list(self._giving(runs[-1].content))
            deletions = (word for word in self._acting() if word.what == DELETE)
            # What nobody gives was refused for a name that lapsed: its daemon cancels it by itself.
            if given and not any(not word.before(each) for word in deletions for each in given):
                self._wrong("stopped", f"{life} has content {runs[-1].content} stopped, and nobody cancelled that")

    def started(self, life: str, fence: int, job_id: str, content: int, priority: int) -> None:
        """A worker has it."""
        history = self.history
        now_s = trio.current_time()
        run = Run(life, life.partition(".")[0], fence, now_s, content=content, job_id=job_id)
        run.claimed, run.began = history.claims.get((self.home, fence), 0), history.moment()
        run.unaware = [word for word in self._acting() if word.what == EDIT and self._forgotten(word)]
        for other in history.runs(job_id, life):
            self._wrong("overlap", f"{life} starts it while {other} runs it and rightly trusts its lease")
        if priority != content:
            self._wrong("mixed", f"content {content} starts with the priority of {priority}")
        self._check_given(run)
        self._check_cancels(run)
        self._check_age("started", content, run.claimed, life, stored=True)
        self._check_again(run)
        self._check_twins(run)
        newer = [each for each in self.runs if each.job_id == job_id and each.fence > fence]
        if not history.fences_go_back and not all(self._came_back(each, run) for each in newer):
            self._wrong("fence", f"{life} starts it under {fence}, which is older than one before")
        self.job_id = job_id
        self.runs.append(run)

    def ended(self, life: str, job_id: str, fence: int, fate: Fate) -> None:
        """A daemon heard how an attempt ended."""
        if (run := end(self.runs, life, job_id, fence, fate)) is not None:
            self.history.note("end", life, run.content, fence, fate.name)

    # ------------------------------------------------------------ what must hold

    def _check_given(self, run: Run) -> None:
        # A push whose name was given away while its disk stood still is refused, and may have begun by then.
        pushes = [word for word in self.words if word.gives and word.content == run.content]
        lapsed = any(not other.before(word) for word in pushes for other in self._acting() if other.gives)
        words = list(self._giving(run.content)) or (pushes if lapsed else [])
        if not words:
            self._wrong("ghost", f"content {run.content} starts at {run.life}, and nobody gave it that")
        elif not any(word.what == RETRY for word in self.words):
            early_s = min(word.due_s for word in words) - run.at_s - self.history.wrong_s(run.at_s)
            if early_s > DATE_S:
                self._wrong("date", f"content {run.content} starts at {run.life} {early_s:.3f} s too early")

    def _check_cancels(self, run: Run) -> None:
        deletions = [word for word in self.words if word.what == DELETE]
        for word in deletions:
            if word.holds and not self._begun_since(word, run.content):
                takers = [each for each in deletions if each.sent < word.answered]
                if not any(self._forgotten(each, word.answered_s) for each in takers):
                    self._wrong("cancel", f"content {run.content} starts at {run.life} after a {word}")

    def _begun_since(self, deletion: Word, content: int) -> bool:
        """Whether a word that does not come before the deletion gives it that content, or begins it anew."""
        edited = self.matter.contents[content].what == EDIT
        begins = (word for word in self.words if word.what in BEGINS and word.may_act and not word.before(deletion))
        return any(edited or word.what == RETRY or word.content == content for word in begins)

    def _check_age(self, what: str, content: int, since: int, where: str, *, stored: bool = False) -> None:
        """No later content was answered well before `since`. `stored`: nor was it in the store by then."""
        given = list(self._giving(content))
        for word in self.words:
            if not word.gives or not word.holds or word.answered >= since or word.content == content:
                continue
            if stored and self.stored.get(word.content, math.inf) >= since:
                continue
            # A retry takes the content that it finds: one that overlaps may have found the older.
            overlapped = any(not each.before(word) for each in self._acting() if each.what == RETRY)
            # A look while the store is told what it forgot may come too early; who claims waits for that.
            overlapped = overlapped or (not stored and self._awaits_telling(word))
            if all(each.before(word) for each in given) and not overlapped and not self._forgotten(word):
                self._wrong("older", f"content {content} is {what} at {where} after a {word}")

    def _check_again(self, run: Run) -> None:
        edited = self.matter.contents[run.content].what == EDIT
        for past in self.runs:
            if past.fate not in ENDS or (past.content != run.content and not edited) or past.gave_way(run.claimed):
                continue
            begins = (word for word in self._acting() if word.what in BEGINS and self._is_since(word, past.claimed))
            if any(edited or word.what == RETRY or word.content == run.content for word in begins):
                continue
            if not self.history.again(self.home, past, run.at_s):
                assert past.fate is not None
                self._wrong(
                    "again",
                    f"content {past.content} had ended ({past.fate.name} at {past.life}, {past.fate_at_s:.3f} s), "
                    f"{run.content} starts at {run.life}",
                )

    def _is_since(self, word: Word, moment: int) -> bool:
        """Whether it may have come to the store after that moment."""
        return max(word.answered, self.stored.get(word.content, 0)) > moment

    def _awaits_telling(self, word: Word) -> bool:
        losses = [loss.at_s for loss in self.history.losses_of(self.home) if loss.at_s >= word.answered_s]
        return bool(losses) and self.told_s.get(word.content, 0.0) <= losses[-1]

    def _check_twins(self, run: Run) -> None:
        deleted = any(word.what == DELETE for word in self._acting())
        ended = {past.job_id for past in self.runs if past.fate in ENDS or deleted}
        for past in self.runs:
            if past.job_id == run.job_id or (self._purges and past.job_id in ended):
                continue
            if not any(self._forgotten(word) for word in self._acting()):
                self._wrong("twins", f"{past.job_id} ran, and {run.job_id} starts at {run.life} under the same name")
                return

    def _check_conflict(self, word: Word) -> None:
        for other in self.words:
            if other is word or not other.gives or not other.holds or other.content == word.content:
                continue
            first = other.what not in (REPLACE, EDIT) or other.before(word)
            freed = any(e.what == DELETE and not e.before(other) and not word.before(e) for e in self._acting())
            if first and not freed and not self._purges and not self._forgotten(other):
                self._wrong("conflict", f"a {word}, although there is a {other}")

    # ------------------------------------------------------------ at the end

    def check_end(self, state: State | None, content: int, *, crashed: bool) -> None:
        """`state`, `content`: as the store has it; None: it does not know it. `crashed`: for deaths, it says."""
        taken = any(word.gives and word.holds for word in self.words)
        if not taken and state is None:
            return
        last = self._last()
        if state is None:
            if not self._purges:
                self._wrong("lost", "it was acknowledged, and the store does not know it")
        elif not state.is_final:
            self._wrong("stuck", f"it is still {state.value}")
        elif state is State.CANCELLED:
            self._check_cancelled(last, content)
        elif (
            not crashed and not any(run.fate in STATE_OF[state] for run in self.runs) and not self._may_be_over(content)
        ):
            self._wrong("lost", f"it counts as {state.value}, but no attempt did so")
        if last is None or crashed:
            return
        others = [run for run in self.runs if run.fate in ENDS and run.content != last.content]
        ran = any(last in run.unaware or self._is_late(run, last) for run in others) or any(
            run.fate in ENDS and (run.began > last.sent if last.what == RETRY else run.content == last.content)
            for run in self.runs
        )
        if not ran and not self._may_be_over(last.content):
            self._wrong("unrun", f"nothing came of the last word, a {last}; it is {state}")
        of_last = [run for run in self.runs if run.content == last.content]
        if state is not None and last.gives and content != last.content and not self._is_untold(of_last):
            self._wrong("older", f"content {content} is left after a {last}")

    def _is_late(self, run: Run, last: Word) -> bool:
        """A success of an attempt before an edit, heard behind it, as its worker was found silent: it did run."""
        return last.what == EDIT and run.fate is Fate.SUCCEEDED and run.began < last.answered

    def _may_be_over(self, content: int) -> bool:
        runs = [run for run in self.runs if run.content == content]
        attempts = [*runs, *self.history.unheard_of(self.job_id, self.runs)]
        return bool(attempts) and may_be_over(attempts, self.history.plan.works[content].max_retry)

    def _check_cancelled(self, last: Word | None, content: int) -> None:
        deletions = [word for word in self._acting() if word.what == DELETE]
        if not deletions:
            # What nobody gives was refused for a name that lapsed: its daemon cancelled it by itself. So it does with
            # one whose client has left, if another push got the name meanwhile.
            given = list(self._giving(content))
            others = [word for word in self._acting() if word.gives and word.content != content]
            lapsed = any(not other.before(word) for word in given for other in others)
            if any(word.holds for word in given) or (given and not lapsed):
                self._wrong("lost", "it is cancelled, and nobody asked for that")
        elif last is not None and all(word.before(last) for word in deletions):
            self._wrong("lost", f"it is cancelled, and nobody asked for that since a {last}")
        for run in self.runs:
            begun = any(word.answered > run.claimed for word in self._acting() if word.what in BEGINS)
            succeeded = run.fate is Fate.SUCCEEDED and run.content == content and not begun
            if succeeded and not self.history.was_away(self.home, run.node, run.at_s, math.inf):
                self._wrong("lost", f"content {content} had succeeded at {run.life}, and counts as cancelled")

    def _last(self) -> Word | None:
        """A word that was answered well, and all others surely came before it."""
        acting = list(self._acting())
        for word in acting:
            others = [each for each in acting if each is not word]
            if word.what == AGAIN and any(each.what == DELETE for each in others):
                continue  # the repetition of what was cancelled begins nothing anew (adr/0010)
            if (word.gives or word.what == RETRY) and word.holds and all(each.before(word) for each in others):
                return word
        return None

    # ------------------------------------------------------------

    @property
    def _purges(self) -> bool:
        deleted = [word.sent_s for word in self._acting() if word.what == DELETE]
        return PURGE in self.history.plan.kinds or self._is_untold(self.runs, deleted)

    def _is_untold(self, runs: Iterable[Run], deleted: Iterable[float] = ()) -> bool:
        ends_s = [run.fate_at_s for run in runs if run.fate is Fate.SUCCEEDED]
        return self.history.is_untold(self.home, self.history.plan.kinds, (*ends_s, *deleted))

    def _acting(self) -> Iterator[Word]:
        return (word for word in self.words if word.may_act)

    def _giving(self, content: int) -> Iterator[Word]:
        return (word for word in self._acting() if word.gives and word.content == content)

    def _came_back(self, newer: Run, run: Run) -> bool:
        """Whether the store had lost a later content when it gave this one, and got it back meanwhile."""
        words = self._giving(newer.content) if newer.content != run.content else ()
        return any(self._forgotten(word) for word in words)

    def _forgotten(self, word: Word, since_s: float | None = None) -> bool:
        at_s = word.answered_s if since_s is None else since_s
        return self.history.forgotten(self.home, min(at_s, trio.current_time()), word.node, trio.current_time())

    def _wrong(self, what: str, why: str) -> None:
        self.history.wrong(f"{what}: job {self.matter.name or self.matter.number}: {why}")
