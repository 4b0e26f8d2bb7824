"""The subscriptions, materialized views and durable clients of one lake: begins, runs, lists and ends them.

Methods import what reads and writes, so that a process which only lists them loads neither.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from lakehold.definitions import Derived, MaterializedView, OnLapse, Refresh, Subscription, described
from lakehold.errors import DefinitionError, NotReadable, StatementError
from lakehold.holds import privileges
from lakehold.holds.commands import HoldCommands, NewHold
from lakehold.holds.guard import Guard
from lakehold.model.lake_definitions import DefinitionReader, DerivedEntry, Entry
from lakehold.model.readers import ReaderError
from lakehold.object_names import full_name_text, object_text
from lakehold.publish.derived_table import DerivedTable
from lakehold.publish.input_hold import InputHold, has_lapsed
from lakehold.settings import Settings
from lakehold.state.subscribers import Subscriber, SubscriberKind, SubscriberStore, position_of
from lakehold.subscribe.statement import HistoryEnvelope, Subscribe, refuse_history
from lakehold.times import iso, now_ms

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from lakehold.publish.durable import DurableClient
    from lakehold.publish.follower import Follower
    from lakehold.publish.merged_table import MergeWriting
    from lakehold.publish.publisher import Publisher
    from lakehold.publish.view_table import ViewTable
    from lakehold.subscribe.subscription_opening import Subscribing

COLUMNS = ("name", "into", "tables", "state", "published_below", "at", "held_from", "publisher")
"""Columns of SHOW SUBSCRIPTIONS.

`state` is `new` (nothing published), `running`, `idle`, or `lapsed`: changes that are not published yet can no longer be read.
`published_below` (exclusive) and `held_from` are epoch milliseconds; `at` is `published_below` as text, in UTC.
"""

VIEW_COLUMNS = (
    *("name", "key", "tables", "state", "refreshed_below", "at", "held_from", "publisher"),
    *("key_violations", "stopped_by"),
)
"""Columns of SHOW MATERIALIZED VIEWS; the first ones mean the same as those of SHOW SUBSCRIPTIONS.

`state` is `stopped` if an error ended the last refresh, which `stopped_by` names. `key_violations` counts keys with several rows.
"""


@dataclass(frozen=True)
class Subscriptions:
    """Everything that subscriptions, materialized views and durable clients need.

    Args:
        catalog: The lake's catalog.
        definitions: Reads the declared subscriptions.
        store: Stores the subscribers' positions.
        holds: Commands on the holds that protect what they read.
        subscribing: Returns what opens their SUBSCRIBE statements.
        parse: Parses the text of a SUBSCRIBE.
        settings: Says how long a lease lasts.
        guard: Checks the privileges of programs that open durable clients.
        writing: Returns what writes to the tables of views and histories.
        spark: Returns the lake's session.
    """

    catalog: Catalog
    definitions: DefinitionReader
    store: SubscriberStore
    holds: HoldCommands
    subscribing: Callable[[], Subscribing]
    parse: Callable[[str], Subscribe]
    settings: Settings
    guard: Guard
    writing: Callable[[], MergeWriting]
    spark: Callable[[], SparkSession]

    @contextmanager
    def begin(self, entry: DerivedEntry, tables: Mapping[str, str]) -> Iterator[None]:
        """Hold what a subscription or view reads, which the block declares, after checking that it can be read and published.

        A table without rows is held from its first readable time onward. If the block fails, nothing is held.

        Args:
            entry: The subscription or view.
            tables: Object ids of tables that the block declares as well, by full name.

        Raises:
            DefinitionError: A table or column does not exist, or its table belongs to something else.
            NotReadable: AS OF is outside the readable window.
        """
        self._output(entry).table()
        with self._input_hold(entry).created_with(self._begins_at_ms(entry, tables), tables):
            yield

    def end(self, entry: DerivedEntry, *, with_output: bool) -> None:
        """Drop the hold of a dropped subscription or view, and its table if `with_output`."""
        self.store.forget(entry.object_id)
        self._input_hold(entry).drop()
        if with_output:
            self._stored_output(entry).drop()

    def let_go(self) -> None:
        """Clean up after a `DROP SUBSCRIPTION` that was killed halfway, or a durable client that began during its `forget()`.

        The order of the reads matters: holds, subscribers, definitions. A client is registered before its hold is created, and a
        subscription is declared before it is registered. So what a later read lacks was removed.
        """
        holds = self.holds.all()
        subscribers = self.store.subscribers()
        declared = self.definitions.definitions().all_derived
        # A client's id is its name, as in `Hold.kept_by`.
        clients = {s.subscriber_id for s in subscribers if s.kind is SubscriberKind.CLIENT}
        for subscriber in subscribers:
            if subscriber.kind is not SubscriberKind.CLIENT and subscriber.subscriber_id not in declared:
                self.store.forget(subscriber.subscriber_id)
        # An undeclared subscription's hold is abandoned after `ABANDONED_MS`: the next change of any hold removes it then.
        self.holds.drop_all(tuple(h for h in holds if h.keeper is SubscriberKind.CLIENT and h.kept_by not in clients))

    def publisher(self, name: str) -> Publisher:
        """Build the publisher of the materialized view whose full name is `name`, or of the subscription `name`.

        Raises:
            DefinitionError: There is no such view or subscription.
        """
        from lakehold.publish.history_publisher import HistoryPublisher
        from lakehold.publish.history_table import HistoryTable
        from lakehold.publish.publisher import SubscriptionPublisher
        from lakehold.publish.view_publisher import ViewPublisher
        from lakehold.publish.view_table import ViewTable

        entry = self.definitions.definitions().derived(name)
        output = self._output(entry)
        kind: type[Publisher] = SubscriptionPublisher
        if isinstance(output, HistoryTable):
            kind = HistoryPublisher
        elif isinstance(output, ViewTable):
            kind = ViewPublisher
        return kind(
            entry,
            self._follower_of(entry.definition),
            output,
            self._input_hold(entry),
            self.store,
            self.settings,
        )

    def together(self, names: Sequence[str] | None = None) -> list[list[str]]:
        """Group the views and subscriptions called `names`, or all; those of a group run one after the other, in its order.

        A group has those that read the same tables, because one reads the diffs for all, and each view before all that read it.

        Raises:
            DefinitionError: There is no such view or subscription.
        """
        defined = self.definitions.definitions()
        wanted = [*defined.views, *sorted(defined.subscriptions)] if names is None else [*dict.fromkeys(names)]
        views = defined.in_order(name for name in wanted if name in defined.views)
        groups: list[list[str]] = []
        for name in (*views, *(name for name in wanted if name not in defined.views)):
            tables = frozenset(defined.derived(name).definition.tables)
            joined = [
                group
                for group in groups
                if not tables.isdisjoint(group)
                or any(frozenset(defined.derived(other).definition.tables) == tables for other in group)
            ]
            if not joined:
                groups.append([name])
                continue
            first, *others = joined
            for other in others:
                first += other
                groups.remove(other)
            first.append(name)
        return groups

    def client(
        self, name: str, statements: str | Mapping[str, str], on_lapse: OnLapse, max_lag_ms: int | None
    ) -> DurableClient:
        """Build the durable client `name`, which follows one SUBSCRIBE, or several by their names.

        Raises:
            StatementError: A text is not a single SUBSCRIBE, or has an end.
            DefinitionError: A name is not valid, or the statements begin at different times.
            PermissionDenied: The program's role lacks SELECT on a table that it reads.
        """
        from lakehold.publish.deliveries import ONLY
        from lakehold.publish.durable import DurableClient, text_of

        texts = {ONLY: statements} if isinstance(statements, str) else statements
        followers = {each: self._follower(text) for each, text in texts.items()}
        for text in texts.values():
            refuse_history(self.parse(text))
        tables = tuple(dict.fromkeys(table for each in followers.values() for table in each.statement.tables))
        self.guard.check(f'open durable client "{name}"', privileges.selecting(tables))
        hold = NewHold(
            name=f"client_{name}",
            namespace=None,
            tables=tables,
            max_lag_ms=max_lag_ms,
            sql=text_of({each: follower.statement for each, follower in followers.items()}),
            kept_by=name,
            keeper=SubscriberKind.CLIENT,
        )
        hint = "Run it with on_lapse='resnapshot' to start over from a snapshot, or discard its position with forget()."
        input_hold = InputHold(self.holds, hold, f'durable client "{name}"', hint)
        return DurableClient(name, followers, input_hold, self.store, self.settings, self.parse, on_lapse)

    def published_below(self, name: str) -> int | None:
        """Return the timestamp below which (exclusive) the table of a subscription or view is complete; None: it has none.

        Raises:
            DefinitionError: There is no such subscription or view, or its table cannot be read.
        """
        published = self._stored_output(self.definitions.definitions().derived(name)).published()
        return published.position_ms if published is not None else None

    def overview(self) -> list[tuple[Any, ...]]:
        """Return a row of `COLUMNS` for each subscription, by name."""
        subscribers = {subscriber.subscriber_id: subscriber for subscriber in self.store.subscribers()}
        entries = sorted(self.definitions.definitions().subscriptions.items())
        return [
            (definition.name, definition.into, list(definition.tables), *self._progress(entry, subscribers))
            for _, entry in entries
            for definition in [entry.definition]
        ]

    def views(self) -> list[tuple[Any, ...]]:
        """Return a row of `VIEW_COLUMNS` for each materialized view, by name."""
        subscribers = {subscriber.subscriber_id: subscriber for subscriber in self.store.subscribers()}
        entries = sorted(self.definitions.definitions().views.items())
        return [self._view(entry, subscribers) for _, entry in entries]

    def _view(self, entry: Entry[MaterializedView], subscribers: Mapping[str, Subscriber]) -> tuple[Any, ...]:
        view, subscriber = entry.definition, subscribers.get(entry.object_id)
        state, *rest = self._progress(entry, subscribers)
        error: ReaderError | DefinitionError | None = subscriber.error if subscriber is not None else None
        if error is not None and state in ("new", "idle"):
            state = "stopped"
        violations = 0
        try:
            violations = self._view_table(view, entry.object_id).key_violations()
        except DefinitionError as unreadable:
            error = error or unreadable
        stopped_by = f"{error.code}: {error.message}" if error is not None else None
        return (view.full_name, list(view.key), list(view.tables), state, *rest, violations, stopped_by)

    def _begins_at_ms(self, entry: DerivedEntry, new: Mapping[str, str]) -> int | None:
        """Return the time of the first snapshot.

        None stands for the first time at which all tables are readable, if some of them have no rows yet.
        """
        from lakehold.publish.history_table import HistoryTable
        from lakehold.publish.view_columns import column_types

        definition = entry.definition
        follower = self._follower_of(definition)
        at_ms = follower.statement.as_of.exact_ms
        if not new.keys().isdisjoint(definition.tables):
            return at_ms
        if at_ms is None:
            try:
                at_ms = follower.start_ms()
            except NotReadable:
                return None
        opened = follower.from_snapshot(at_ms)
        self._check_elsewhere(follower, at_ms, definition)
        columns, output = opened.subscription.relation.columns, self._output(entry)
        if isinstance(definition, MaterializedView):
            column_types(definition.full_name, columns)  # raises if a table cannot have them
        elif isinstance(output, HistoryTable):
            output.check(columns)
        return at_ms

    def _check_elsewhere(self, follower: Follower, at_ms: int, definition: Derived) -> None:
        """Check that a statement that this session understands is understood by other sessions, which will publish it.

        Raises:
            DefinitionError: It has a temporary function or variable of this session.
        """
        from pyspark.errors import AnalysisException

        from lakehold.other_sessions import separate_session
        from lakehold.spark_errors import described as described_error

        if isinstance(follower.statement.relation, str):
            return
        with ExitStack() as opened:
            session = cache(lambda: opened.enter_context(separate_session(self.spark(), self.settings)))
            elsewhere = replace(follower, subscribing=follower.subscribing.elsewhere(session))
            try:
                elsewhere.from_snapshot(at_ms)
            except AnalysisException as error:
                raise DefinitionError(
                    f"{described(definition)} uses a temporary function or variable",
                    code="session-only",
                    detail=f"Only the session of this statement has it, and other sessions publish. In those, "
                    f"{described_error(error)}",
                    hint="Write its expression or its value into the query.",
                ) from None

    def _progress(self, entry: DerivedEntry, subscribers: Mapping[str, Subscriber]) -> tuple[Any, ...]:
        subscriber = subscribers.get(entry.object_id)
        hold, published = self._input_hold(entry).find(), None
        # An output that cannot be read, or is of something else, stops the subscription when it is published, and no list.
        with suppress(DefinitionError):
            published = self._stored_output(entry).published()
        position_ms = position_of(subscriber, published.position_ms if published is not None else None)
        lease = subscriber.lease if subscriber is not None else None
        runs = lease is not None and now_ms() < lease.until_ms
        held_ms = hold.at_ms if hold is not None else None
        lapsed = has_lapsed(hold, position_ms)
        state = "running" if runs else "lapsed" if lapsed else "new" if position_ms is None else "idle"
        return (
            state,
            position_ms,
            None if position_ms is None else iso(position_ms),
            held_ms,
            lease.holder if lease is not None and runs else None,
        )

    def _output(self, entry: DerivedEntry) -> DerivedTable:
        match entry.definition:
            case MaterializedView() as view:
                return self._view_table(view, entry.object_id)
            case Subscription(into=into, subscribe=subscribe):
                shape = self.parse(subscribe).shape
                if isinstance(shape, HistoryEnvelope):
                    from lakehold.publish.history_table import HistoryTable

                    return HistoryTable(self.catalog, into, entry.object_id, shape, self.writing())
                from lakehold.publish.output_table import OutputTable

                return OutputTable(self.catalog, into, entry.object_id)

    def _stored_output(self, entry: DerivedEntry) -> DerivedTable:
        """Return the table of a subscription or view, also if this version refuses its text: to list it, or to end it."""
        from lakehold.publish.output_table import OutputTable

        try:
            return self._output(entry)
        except StatementError:
            return OutputTable(self.catalog, entry.definition.into, entry.object_id)

    def _view_table(self, view: MaterializedView, object_id: str) -> ViewTable:
        from lakehold.publish.view_table import ViewTable

        return ViewTable(self.catalog, view, object_id, self.writing())

    def _follower(self, text: str) -> Follower:
        """Make the reader of the SUBSCRIBE `text`; of one with ENVELOPE HISTORY it reads the changes."""
        from lakehold.publish.follower import Follower

        statement = self.parse(text)
        if isinstance(statement.shape, HistoryEnvelope):
            statement = replace(statement, shape=statement.shape.changes)
        return Follower(self.subscribing(), statement)

    def _follower_of(self, definition: Derived) -> Follower:
        follower = self._follower(definition.subscribe)
        if isinstance(definition, Subscription):
            return follower
        return replace(follower, is_net=definition.refresh is Refresh.LATEST, is_of_view=True)

    def _input_hold(self, entry: DerivedEntry) -> InputHold:
        definition = entry.definition
        is_view = isinstance(definition, MaterializedView)
        hold = NewHold(
            name=f"view_{definition.into.replace('.', '_')}" if is_view else f"subscription_{definition.name}",
            namespace=None,
            tables=definition.tables,
            max_lag_ms=definition.max_lag_ms,
            sql=entry.sql,
            kept_by=entry.object_id,
            keeper=SubscriberKind.VIEW if is_view else SubscriberKind.SUBSCRIPTION,
        )
        hint = (
            f"ALTER SUBSCRIPTION {object_text(definition.name)} SET (ON LAPSE = 'resnapshot'): the next publish starts over from "
            "a snapshot. To keep the output as it is, DROP SUBSCRIPTION without CASCADE and create another INTO another table."
        )
        if is_view:
            hint = (
                f"ALTER MATERIALIZED VIEW {full_name_text(definition.into)} SET (ON LAPSE = 'resnapshot'): the next refresh "
                "starts over from a snapshot, and the view keeps its history."
            )
        avoided_by = f"{'Refresh it' if is_view else 'Publish'} more often, or set a longer MAX LAG."
        return InputHold(self.holds, hold, described(definition), hint, avoided_by)
