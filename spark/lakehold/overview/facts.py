"""The facts about a lake at one time: values only, all times in epoch milliseconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lakehold.model.backlog import Backlog
from lakehold.model.readers import ReaderError, Waiting
from lakehold.overview.lag import Lag
from lakehold.overview.table_status import State
from lakehold.state.subscribers import SubscriberKind


@dataclass(frozen=True)
class HoldFacts:
    """A hold.

    Attributes:
        name: Without the namespace.
        at_ms: From when on its tables stay readable (inclusive); None: it waits for their first readable time.
        upper_ms: The least `upper` of its tables; None: none of them is readable yet.
        lag_ms: How far it lags its tables.
        max_lag_ms: How far it may lag.
        forced_from_ms: Where it was when MAX LAG last moved it.
        tables: Full names.
        lag: Its lag over the last day, as far as verdicts on it show where it was.
    """

    name: str
    at_ms: int | None
    upper_ms: int | None
    lag_ms: int
    max_lag_ms: int
    forced_from_ms: int | None
    tables: tuple[str, ...]
    lag: Lag = field(default_factory=Lag)

    @property
    def is_exceeded(self) -> bool:
        """Return whether the hold exceeds its MAX LAG: the next maintenance moves it."""
        return self.lag_ms > self.max_lag_ms


@dataclass(frozen=True)
class FollowerFacts:
    """A subscription, a materialized view or a durable client.

    Attributes:
        kind: Which of these.
        name: Unique among its kind.
        state: `new`, `running`, `idle` or `lapsed`, as in SHOW SUBSCRIPTIONS.
        position_ms: It has taken all changes below (exclusive); None before it has the first snapshot.
        lag_ms: How far it lags its tables; None before its first snapshot, or if none of them is readable yet.
        tables: Full names of the tables it reads.
        hold: The hold on its input.
        starts_over: Whether it takes a new snapshot by itself after it lapsed.
        lag: Its lag over the last day, if its table records when it was published.
    """

    kind: SubscriberKind
    name: str
    state: str
    position_ms: int | None
    lag_ms: int | None
    tables: tuple[str, ...]
    hold: HoldFacts | None
    starts_over: bool = False
    lag: Lag = field(default_factory=Lag)

    @property
    def is_lapsed(self) -> bool:
        """Return whether changes that the follower has not processed can no longer be read."""
        return self.state == "lapsed"

    @property
    def is_behind(self) -> bool:
        """Return whether the follower has used up more than half of the lag after which it lapses."""
        return self.lag_ms is not None and self.hold is not None and 2 * self.lag_ms > self.hold.max_lag_ms


@dataclass(frozen=True)
class CheckFacts:
    """The newest verdict on a table: of its suite, for a hold or for the table itself, or of a comparison.

    Attributes:
        hold: Name of the hold; None: the table itself was checked.
        at_ms: The time that was checked.
        success: Whether all expectations were met.
        evaluated: Number of expectations that were evaluated.
        failures: One phrase for each expectation that was not met.
        page: Path or URI of its page; empty: it has none.
        checked_at_ms: When the suite ran.
        compared_with: `database` or `query`, if the table was compared with that, and no suite ran.
    """

    hold: str | None
    at_ms: int
    success: bool
    evaluated: int
    failures: tuple[str, ...]
    page: str
    checked_at_ms: int
    compared_with: str | None = None

    @property
    def is_comparison(self) -> bool:
        """Return whether the table was compared with its database or query, and no suite ran."""
        return self.compared_with is not None


@dataclass(frozen=True)
class TableFacts:
    """A table.

    Attributes:
        name: `namespace.table`.
        source: The source that feeds it; None: another program writes it, and a hold or follower needs it.
        state: Its state.
        since_ms: Read frontier, inclusive: the first time at which it can be read; None: it is not readable yet.
        upper_ms: Write frontier, exclusive: the first time that is not readable yet; None before the first batch.
        rows: Rows, at most; None: unknown.
        open_errors: Messages in error that no later one has healed.
        key_violations: Keys of a view that have several rows.
        unfilled: New columns that may lack values in older rows.
        error: The error that stopped it.
        waiting: The upstream transaction that its next changes wait for.
        backlog: Its progress, if it is catching up with its source.
        snapshots_ms: The timestamp of each snapshot in its metadata, oldest first.
        lag: Its lag over the last day, if a source feeds it.
        holds: Holds on it, without those of its followers.
        followers: Subscriptions and durable clients that read it.
        checks: The newest verdict for each hold, for the table itself, and of a comparison with its database.
    """

    name: str
    source: str | None
    state: State
    since_ms: int | None = None
    upper_ms: int | None = None
    rows: int | None = None
    open_errors: int = 0
    key_violations: int = 0
    unfilled: tuple[str, ...] = ()
    error: ReaderError | None = None
    waiting: Waiting | None = None
    backlog: Backlog | None = None
    snapshots_ms: tuple[int, ...] = ()
    lag: Lag = field(default_factory=Lag)
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
        upper_ms: Write frontier of the tables that are in sync; None before the first batch, and without tables.
        run_by: The process that holds its lease now.
        interrupted_ms: The timestamp of a batch that was begun and is not committed while no process runs it.
    """

    name: str
    tables: int
    stopped: int
    upper_ms: int | None
    run_by: str | None
    interrupted_ms: int | None


@dataclass(frozen=True)
class Overview:
    """A lake: its warehouse, when this was read, its tables by name and its sources by name."""

    warehouse: str
    taken_at_ms: int
    tables: tuple[TableFacts, ...]
    sources: tuple[SourceFacts, ...]

    @property
    def holds(self) -> tuple[HoldFacts, ...]:
        """Return every hold once."""
        return tuple(_by_name(hold for table in self.tables for hold in table.holds))

    @property
    def followers(self) -> tuple[FollowerFacts, ...]:
        """Return every subscription and durable client once."""
        return tuple({(f.kind, f.name): f for table in self.tables for f in table.followers}.values())

    @property
    def checks(self) -> tuple[CheckFacts, ...]:
        """Return the newest verdicts on each table."""
        return tuple(check for table in self.tables for check in table.checks)


def _by_name(holds: Iterable[HoldFacts]) -> Iterable[HoldFacts]:
    return {hold.name: hold for hold in holds}.values()
