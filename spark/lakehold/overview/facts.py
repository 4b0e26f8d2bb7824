"""What is known of a lake at one moment: values only, all times epoch milliseconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakehold.model.backlog import Backlog
from lakehold.model.readers import ReaderError, Waiting
from lakehold.overview.standing import State
from lakehold.state.subscribers import SubscriberKind


@dataclass(frozen=True)
class HoldFacts:
    """A hold.

    Attributes:
        name: Without the namespace.
        at_ms: From when on its tables stay readable (inclusive); None: it waits for their first readable time.
        upper_ms: The least `upper` of its tables, from which its lag is counted; None: none of them is readable yet.
        max_lag_ms: How far it may stay behind.
        forced_from_ms: Where it stood when MAX LAG last moved it.
        tables: Full names.
    """

    name: str
    at_ms: int | None
    upper_ms: int | None
    max_lag_ms: int
    forced_from_ms: int | None
    tables: tuple[str, ...]

    @property
    def lag_ms(self) -> int:
        """How far it is behind; 0 when it is in the future or has not begun."""
        return 0 if self.at_ms is None or self.upper_ms is None else max(0, self.upper_ms - self.at_ms)

    @property
    def is_exceeded(self) -> bool:
        """Whether it is further behind than it may be: the next maintenance moves it."""
        return self.lag_ms > self.max_lag_ms


@dataclass(frozen=True)
class FollowerFacts:
    """A subscription or a durable client.

    Attributes:
        kind: Which of the two.
        name: Unique among its kind.
        state: `new`, `running`, `idle` or `lapsed`, as in SHOW SUBSCRIPTIONS.
        position_ms: It has taken all that is below (exclusive); None before it has the first snapshot.
        upper_ms: The least `upper` of its tables; None: none of them is readable yet.
        tables: Full names of what it reads.
        hold: What keeps its input.
        starts_over: Whether it takes a new snapshot by itself when it lapsed.
    """

    kind: SubscriberKind
    name: str
    state: str
    position_ms: int | None
    upper_ms: int | None
    tables: tuple[str, ...]
    hold: HoldFacts | None
    starts_over: bool = False

    @property
    def lag_ms(self) -> int | None:
        """How far it is behind; None before its first snapshot."""
        if self.position_ms is None or self.upper_ms is None:
            return None
        return max(0, self.upper_ms - self.position_ms)

    @property
    def is_lapsed(self) -> bool:
        """Whether what it has not taken yet is gone."""
        return self.state == "lapsed"

    @property
    def is_behind(self) -> bool:
        """Whether it has used up more than half of the time after which it lapses."""
        return self.lag_ms is not None and self.hold is not None and 2 * self.lag_ms > self.hold.max_lag_ms


@dataclass(frozen=True)
class CheckFacts:
    """The newest verdict on a table, of a hold or otherwise.

    Attributes:
        hold: Name of the hold; None: the table was checked of itself.
        at_ms: The time that was checked.
        success: Whether all was as expected.
        evaluated: Expectations that were evaluated.
        failures: One sentence's part for each that was not met.
        page: Path or URI of its page; empty: there is none.
        checked_at_ms: When the suite ran.
    """

    hold: str | None
    at_ms: int
    success: bool
    evaluated: int
    failures: tuple[str, ...]
    page: str
    checked_at_ms: int


@dataclass(frozen=True)
class TableFacts:
    """A table.

    Attributes:
        name: `namespace.table`.
        source: What feeds it; None: somebody else writes it, and a hold or follower needs it.
        state: How it is.
        since_ms: Read frontier, inclusive; None: it is not readable yet.
        upper_ms: Write frontier, exclusive; None before the first batch.
        rows: Rows, at most; None: unknown.
        open_errors: Messages in error that no later one has healed.
        error: What stopped it.
        waiting: The upstream transaction that its next changes wait for.
        backlog: How far it has come, if it is behind its source.
        snapshots_ms: The time of each snapshot that its metadata knows, oldest first.
        holds: On it, less those of its followers.
        followers: Subscriptions and durable clients that read it.
        checks: The newest of each hold, and of none.
    """

    name: str
    source: str | None
    state: State
    since_ms: int | None = None
    upper_ms: int | None = None
    rows: int | None = None
    open_errors: int = 0
    error: ReaderError | None = None
    waiting: Waiting | None = None
    backlog: Backlog | None = None
    snapshots_ms: tuple[int, ...] = ()
    holds: tuple[HoldFacts, ...] = ()
    followers: tuple[FollowerFacts, ...] = ()
    checks: tuple[CheckFacts, ...] = ()


@dataclass(frozen=True)
class SourceFacts:
    """A source.

    Attributes:
        name: Its name.
        tables: How many it feeds.
        stopped: How many of them are stopped.
        upper_ms: How far its tables are together; None before the first batch.
        run_by: The process that has it now.
        interrupted_ms: The timestamp of a batch that was begun and is not committed, and nobody runs it.
    """

    name: str
    tables: int
    stopped: int
    upper_ms: int | None
    run_by: str | None
    interrupted_ms: int | None


@dataclass(frozen=True)
class Overview:
    """A lake: where it is, when this was read, its tables by name and its sources by name."""

    warehouse: str
    taken_at_ms: int
    tables: tuple[TableFacts, ...]
    sources: tuple[SourceFacts, ...]

    @property
    def holds(self) -> tuple[HoldFacts, ...]:
        """Every hold once."""
        return tuple(_by_name(hold for table in self.tables for hold in table.holds))

    @property
    def followers(self) -> tuple[FollowerFacts, ...]:
        """Every subscription and durable client once."""
        return tuple({(f.kind, f.name): f for table in self.tables for f in table.followers}.values())

    @property
    def checks(self) -> tuple[CheckFacts, ...]:
        """The newest verdicts on each table."""
        return tuple(check for table in self.tables for check in table.checks)


def _by_name(holds: Iterable[HoldFacts]) -> Iterable[HoldFacts]:
    return {hold.name: hold for hold in holds}.values()
