"""Reads the facts about a lake: its own tables once, and the metadata of each data table once."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from lakehold.definitions import OnLapse
from lakehold.errors import DefinitionError
from lakehold.iceberg.data_tables import TableState, state_of
from lakehold.ingest.envelope.unfilled_columns import unfilled_columns
from lakehold.lake import Lake
from lakehold.model.lake_definitions import Definitions
from lakehold.model.readers import MAIN_READER, ReaderError, ReaderState
from lakehold.overview.facts import CheckFacts, FollowerFacts, HoldFacts, Overview, SourceFacts, TableFacts
from lakehold.overview.follower_history import advances, input_changes
from lakehold.overview.lag import DAY_MS, Advance, InputChange, Lag, follower_lag, lag_of
from lakehold.overview.table_status import State, TableStatus, table_statuses
from lakehold.publish.input_hold import has_lapsed
from lakehold.publish.known_columns import read_tables
from lakehold.publish.subscriptions import COLUMNS as SUBSCRIPTION_COLUMNS
from lakehold.publish.subscriptions import VIEW_COLUMNS
from lakehold.state.batch_protocol import RecentBatch
from lakehold.state.hold_checks import HoldCheck
from lakehold.state.holds import Hold
from lakehold.state.subscribers import Subscriber, SubscriberKind
from lakehold.timeline.reader_lag import lag_ms
from lakehold.timeline.table_timeline import Timeline
from lakehold.timeline.versions import versions
from lakehold.times import now_ms

_WAITING_MS = 60_000
"""How long a source may wait for the rest of a transaction before the status page shows it: some transaction is always open."""


@dataclass(frozen=True)
class _Follower:
    """A subscription, view or client without the `upper` of its tables, which is known only when their timelines are read.

    `keeper` is the id that its own hold has in `kept_by`: the object id of the subscription or view, or the client's name.
    """

    kind: SubscriberKind
    name: str
    keeper: str
    state: str
    position_ms: int | None
    tables: tuple[str, ...]
    starts_over: bool = False
    key_violations: int = 0
    output: str | None = None


def gather(lake: Lake, *, with_lags: bool = True) -> Overview:
    """Gather the facts about `lake` as of now. Reads metadata only, and starts no Spark.

    Args:
        lake: The lake.
        with_lags: Whether to find how everything lagged over the last day: sources that are followed have many batches.
    """
    taken_at_ms = now_ms()
    defined = lake.definitions.definitions()
    readers = lake.batches.all_readers()
    lags = _lags(lake, readers, taken_at_ms) if with_lags else {}
    holds = lake.holds.all()
    subscribers = lake.subscriptions.store.subscribers()
    clients = _clients(subscribers, holds, taken_at_ms)
    followers = [*_subscriptions(lake, defined), *_views(lake, defined), *clients]
    stopped, violations = _stopped_views(defined, subscribers), {f.name: f.key_violations for f in followers}
    verdicts = lake.verdicts.values()
    checks = _newest(verdicts, holds)

    fed = {status.full_name: status for status in table_statuses(defined, readers)}
    needed = (*(t.full_name for hold in holds for t in hold.tables), *(name for f in followers for name in f.tables))
    names = sorted({*fed, *defined.views, *needed})
    with _uncollected():
        # Without those that cannot be read now, such as a table before its first snapshot.
        timelines = lake.timelines.readable(names)
    changes = _Changes(timelines, taken_at_ms)
    positions = _positions(verdicts) if with_lags else {}
    of_holds = {
        hold.hold_id: replace(
            _hold(hold, timelines, taken_at_ms),
            lag=changes.lag((t.full_name for t in hold.tables), positions.get(hold.hold_id, ()), hold.at_ms),
        )
        for hold in holds
    }
    kept_by = {hold.kept_by: of_holds[hold.hold_id] for hold in holds if hold.kept_by is not None}

    def of_follower(follower: _Follower) -> FollowerFacts:
        went_on = _advances(lake, follower, timelines) if with_lags else ()
        lag = changes.lag(follower.tables, went_on, follower.position_ms)
        return replace(_follower(follower, kept_by.get(follower.keeper), timelines, taken_at_ms), lag=lag)

    of_followers = [of_follower(follower) for follower in followers]
    keepers = {follower.keeper for follower in followers}
    free_holds = [of_holds[hold.hold_id] for hold in holds if hold.kept_by not in keepers]

    def facts(name: str) -> TableFacts:
        status = fed.get(name) or TableStatus(name, "", _state_of(name, defined, stopped))
        found = _table(lake, status, timelines.get(name), taken_at_ms)
        return replace(
            found,
            lag=lags.get((status.source, status.reader.reader), Lag()) if status.reader is not None else Lag(),
            error=stopped.get(name, found.error) if name in defined.views else found.error,
            key_violations=violations.get(name, 0) if name in defined.views else 0,
            holds=tuple(hold for hold in free_holds if name in hold.tables),
            followers=tuple(follower for follower in of_followers if name in follower.tables),
            checks=checks.get(name, ()),
        )

    return Overview(
        warehouse=lake.settings.warehouse,
        taken_at_ms=taken_at_ms,
        tables=tuple(map(facts, names)),
        sources=tuple(_source(name, defined, readers, taken_at_ms) for name in sorted(defined.sources)),
    )


def _lags(lake: Lake, readers: Sequence[ReaderState], now_ms: int) -> dict[tuple[str, str], Lag]:
    """Return the lag of each reader over the last day, by source and reader."""
    batches: dict[tuple[str, str], list[RecentBatch]] = {}
    for batch in lake.batches.recent(now_ms - DAY_MS):
        batches.setdefault((batch.source, batch.reader), []).append(batch)
    keys = {(reader.source, reader.reader): reader.upper_ms for reader in readers}
    return {key: lag_of(batches.get(key, ()), upper_ms, now_ms) for key, upper_ms in keys.items()}


@dataclass(frozen=True)
class _Changes:
    """The changes of the tables that followers and holds need, each found once."""

    timelines: Mapping[str, Timeline]
    now_ms: int
    _found: dict[str, tuple[InputChange, ...]] = field(default_factory=dict)

    def lag(self, tables: Iterable[str], advances: Iterable[Advance], below_ms: int | None) -> Lag:
        """Return the lag over the last day of what reads `tables`, went on at `advances`, and is at `below_ms` now."""
        known = tuple(advances)
        if not known:
            return Lag()
        return follower_lag((change for name in tables for change in self._of(name)), known, below_ms, self.now_ms)

    def _of(self, name: str) -> tuple[InputChange, ...]:
        if name not in self._found:
            timeline = self.timelines.get(name)
            self._found[name] = input_changes(timeline) if timeline is not None else ()
        return self._found[name]


def _advances(lake: Lake, follower: _Follower, timelines: Mapping[str, Timeline]) -> Iterable[Advance]:
    """Return when a subscription or view went on; nothing records that of a client."""
    if follower.output is None:
        return ()
    timeline = timelines.get(follower.output)
    state, _ = (state_of(follower.output, timeline.table), None) if timeline else _metadata(lake, follower.output)
    return advances(state.table, follower.keeper) if state is not None else ()


def _positions(verdicts: Iterable[HoldCheck]) -> dict[str, list[Advance]]:
    """Return where holds were when they were checked, by the ids of holds: nothing else records that."""
    found: dict[str, list[Advance]] = {}
    for check in verdicts:
        if check.hold_id and not check.is_comparison:
            found.setdefault(check.hold_id, []).append(Advance(check.checked_at_ms, check.at_ms))
    return found


def _state_of(name: str, defined: Definitions, stopped: Mapping[str, ReaderError]) -> State:
    """Return the state of a table that no source feeds."""
    if name not in defined.views:
        return State.FOREIGN
    return State.STOPPED if name in stopped else State.VIEW


def _table(lake: Lake, status: TableStatus, timeline: Timeline | None, taken_at_ms: int) -> TableFacts:
    name, reader, progress, waiting = status.full_name, status.reader, status.progress, status.waiting
    state, error = (state_of(name, timeline.table), None) if timeline is not None else _metadata(lake, name)
    known = (
        timeline.versions if timeline is not None else versions(state.table, status.source) if state is not None else ()
    )
    return TableFacts(
        name=name,
        source=status.source or None,
        state=status.state,
        since_ms=timeline.since_ms if timeline is not None else None,
        upper_ms=timeline.upper_ms if timeline is not None else reader.upper_ms if reader is not None else None,
        rows=state.row_count if state is not None else None if error is not None else 0,
        open_errors=progress.open_errors if progress is not None else 0,
        unfilled=unfilled_columns(state, progress.high_water_marks)
        if state is not None and progress is not None
        else (),
        error=reader.error if reader is not None and reader.error is not None else error,
        waiting=waiting if waiting is not None and taken_at_ms - waiting.since_ms >= _WAITING_MS else None,
        backlog=status.backlog,
        snapshots_ms=tuple(version.mz_timestamp for version in known),
    )


def _metadata(lake: Lake, name: str) -> tuple[TableState | None, ReaderError | None]:
    try:
        return lake.tables.table_state(name), None
    except DefinitionError as error:
        return None, ReaderError.of(error)


def _hold(hold: Hold, timelines: Mapping[str, Timeline], at_ms: int) -> HoldFacts:
    tables = tuple(table.full_name for table in hold.tables)
    read = _readable(tables, timelines)
    behind_ms = lag_ms(hold.at_ms, read, at_ms) if hold.at_ms is not None else 0
    upper_ms = min((timeline.upper_ms for timeline in read), default=None)
    return HoldFacts(hold.name, hold.at_ms, upper_ms, behind_ms, hold.max_lag_ms, hold.forced_from_ms, tables)


def _follower(
    follower: _Follower, hold: HoldFacts | None, timelines: Mapping[str, Timeline], at_ms: int
) -> FollowerFacts:
    position_ms, read = follower.position_ms, _readable(follower.tables, timelines)
    return FollowerFacts(
        kind=follower.kind,
        name=follower.name,
        state=follower.state,
        position_ms=position_ms,
        lag_ms=lag_ms(position_ms - 1, read, at_ms) if position_ms is not None and read else None,
        tables=follower.tables,
        hold=hold,
        starts_over=follower.starts_over,
    )


def _readable(tables: Iterable[str], timelines: Mapping[str, Timeline]) -> list[Timeline]:
    return [timelines[name] for name in tables if name in timelines]


def _subscriptions(lake: Lake, defined: Definitions) -> list[_Follower]:
    found = []
    for values in lake.subscriptions.overview():
        row = dict(zip(SUBSCRIPTION_COLUMNS, values, strict=True))
        entry = defined.subscriptions.get(row["name"])
        if entry is not None:
            found.append(
                _Follower(
                    SubscriberKind.SUBSCRIPTION,
                    row["name"],
                    entry.object_id,
                    row["state"],
                    row["published_below"],
                    tuple(row["tables"]),
                    starts_over=entry.definition.on_lapse is OnLapse.RESNAPSHOT,
                    output=entry.definition.into,
                )
            )
    return found


def _views(lake: Lake, defined: Definitions) -> list[_Follower]:
    rows = (dict(zip(VIEW_COLUMNS, values, strict=True)) for values in lake.subscriptions.views())
    return [
        _Follower(
            SubscriberKind.VIEW,
            row["name"],
            defined.views[row["name"]].object_id,
            row["state"],
            row["refreshed_below"],
            tuple(row["tables"]),
            starts_over=defined.views[row["name"]].definition.on_lapse is OnLapse.RESNAPSHOT,
            key_violations=row["key_violations"],
            output=row["name"],
        )
        for row in rows
        if row["name"] in defined.views
    ]


def _stopped_views(defined: Definitions, subscribers: Iterable[Subscriber]) -> dict[str, ReaderError]:
    """Return the errors that stopped views, by the full names of the views."""
    found = ((defined.all_derived.get(s.subscriber_id), s.error) for s in subscribers)
    return {entry.definition.into: error for entry, error in found if entry is not None and error is not None}


def _clients(subscribers: Iterable[Subscriber], holds: Sequence[Hold], at_ms: int) -> list[_Follower]:
    kept_by = {hold.kept_by: hold for hold in holds if hold.kept_by is not None}
    clients = [s for s in subscribers if s.kind is SubscriberKind.CLIENT]
    return [
        _Follower(
            SubscriberKind.CLIENT,
            client.name,
            client.subscriber_id,
            _state(client, kept_by.get(client.subscriber_id), at_ms),
            client.position_ms,
            _tables(client, kept_by.get(client.subscriber_id)),
        )
        for client in sorted(clients, key=lambda client: client.name)
    ]


def _tables(client: Subscriber, hold: Hold | None) -> tuple[str, ...]:
    """Return the tables of all statements of a client: those of its hold, or without one those that it has read."""
    if hold is not None:
        return tuple(table.full_name for table in hold.tables)
    return read_tables(client.columns)


def _state(client: Subscriber, hold: Hold | None, at_ms: int) -> str:
    """Return the state of a client, as SHOW SUBSCRIPTIONS shows it for subscriptions."""
    if client.lease is not None and at_ms < client.lease.until_ms:
        return "running"
    if has_lapsed(hold, client.position_ms):
        return "lapsed"
    return "new" if client.position_ms is None else "idle"


def _newest(checks: Iterable[HoldCheck], holds: Iterable[Hold]) -> dict[str, tuple[CheckFacts, ...]]:
    """Return the newest verdicts for each existing hold, for tables themselves, and of comparisons, by table.

    `checks` are in the order in which they ran. A check of a table without a hold has an empty hold id.
    """
    names = {"": None, **{hold.hold_id: hold.name for hold in holds}}
    newest = {(check.table, check.hold_id, check.is_comparison): check for check in checks if check.hold_id in names}
    found: dict[str, tuple[CheckFacts, ...]] = {}
    for (table, hold_id, is_comparison), check in newest.items():
        facts = CheckFacts(
            hold=names[hold_id],
            at_ms=check.at_ms,
            success=check.success,
            evaluated=check.statistics["evaluated"],
            failures=check.failures,
            page=check.html_path,
            checked_at_ms=check.checked_at_ms,
            compared_with=check.suite if is_comparison else None,
        )
        found[table] = (*found.get(table, ()), facts)
    return found


def _source(name: str, defined: Definitions, readers: Sequence[ReaderState], at_ms: int) -> SourceFacts:
    own = [reader for reader in readers if reader.source == name]
    # All readers of a source share its lease.
    lease = next((reader.lease for reader in own), None)
    runs = lease is not None and at_ms < lease.until_ms
    tables = defined.tables_of(name)
    # Of a source that lost its last table, readers stay as they are: no ingest runs, so nothing is late or interrupted.
    with_tables = own if tables else []
    open_batches = [reader.intent.mz_timestamp for reader in with_tables if reader.intent is not None]
    return SourceFacts(
        name=name,
        tables=len(tables),
        stopped=sum(len(reader.tables) for reader in own if reader.error is not None),
        upper_ms=next((reader.upper_ms for reader in with_tables if reader.reader == MAIN_READER), None),
        run_by=lease.holder if lease is not None and runs else None,
        interrupted_ms=None if runs else min(open_batches, default=None),
    )


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause Python's cyclic garbage collector, in the whole process, while many objects are made that stay.

    Timelines are hundreds of thousands of objects. The collector would visit all of them again and again and free none, which
    takes as long as making them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
