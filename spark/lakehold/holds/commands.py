"""Commands on holds, which SQL statements, subscriptions, durable clients and maintenance call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

from lakehold.errors import DefinitionError
from lakehold.holds import privileges, rules
from lakehold.holds.advances import Advance, Advances
from lakehold.holds.guard import Guard
from lakehold.holds.held_windows import HeldWindowReader
from lakehold.holds.hold_changes import HoldChanges
from lakehold.holds.rules import HeldWindows
from lakehold.model.lake_definitions import DefinitionReader
from lakehold.settings import Settings
from lakehold.state.holds import Check, HeldTable, Hold, Holds, HoldStore
from lakehold.state.subscribers import SubscriberKind
from lakehold.timeline.timelines import Timelines
from lakehold.times import now_ms


@dataclass(frozen=True)
class NewHold:
    """The options of a hold that `CREATE HOLD` or a subscriber is about to create.

    Attributes:
        name: Without the namespace; None: lakehold makes one from the names of the tables.
        namespace: The namespace of the hold; None: that of its first table.
        tables: Full names.
        at_ms: The time from which the tables stay readable; None: the first time at which all of them are readable.
        max_lag_ms: None: the setting `default_max_lag_ms`.
        check: None: `OFF`.
        sql: The statement as written.
        kept_by: Id of the subscription or name of the client that advances the hold.
        keeper: Whether `kept_by` is a subscription, a view or a client.
    """

    name: str | None
    namespace: str | None
    tables: tuple[str, ...]
    at_ms: int | None = None
    max_lag_ms: int | None = None
    check: Check | None = None
    sql: str = ""
    kept_by: str | None = None
    keeper: SubscriberKind | None = None

    @property
    def effective_namespace(self) -> str:
        """Return the namespace of the hold: the one that is written, or that of its first table."""
        return self.namespace or self.tables[0].rpartition(".")[0]

    @property
    def wanted_name(self) -> str:
        """Return the written name, or one made from the table names, to which a number is added if it is taken."""
        return self.name or "_".join([*(table.rpartition(".")[2] for table in self.tables), "hold"])


class HoldCommands:
    """The commands on the holds of one lake. Many threads may share the object: their advances become few commits.

    Args:
        store: The holds.
        timelines: Reports at which times tables can be read.
        definitions: The tables that sources feed.
        settings: Limits of MAX LAG, and retention.
        put_tags: Brings the tags of tables to what their holds need.
        check_data: Checks the data of a hold with a CHECK at its new time; raises to refuse.
        guard: Checks the privileges of the program's role; None: lakehold itself calls, which needs none.
    """

    def __init__(  # noqa: PLR0913 - what holds touch
        self,
        store: HoldStore,
        timelines: Timelines,
        definitions: DefinitionReader,
        settings: Settings,
        put_tags: Callable[[Sequence[str]], None],
        check_data: Callable[[Hold], None],
        guard: Guard | None = None,
    ) -> None:
        self._settings = settings
        self._check_data = check_data
        self._guard = guard
        self._windows = HeldWindowReader(timelines, settings)
        self._changes = HoldChanges(store, definitions, put_tags)
        self._advances = Advances(self._changes, self._windows)

    def all(self) -> Holds:
        """Return the holds that exist now, in order of creation."""
        return self._changes.all()

    def hold(self, name: str) -> Hold:
        """Return the hold called `name`, with or without its namespace."""
        return rules.find(self.all(), name)

    def is_on_present_tables(self, hold: Hold) -> bool:
        """Return whether the tables of a hold are those that have their names now.

        Raises:
            DefinitionError: A table does not exist.
        """
        return all(self._windows.holdable(table.full_name).object_id == table.object_id for table in hold.tables)

    def create(self, new: NewHold) -> Hold:
        """Create a hold.

        Raises:
            DefinitionError: The name is taken, a table cannot be held, or MAX LAG is too long.
            NotReadable: A table cannot be read at the time of the hold, or was stopped then. Or the CHECK is `require`, and rows
                may still come until that time.
            DataRefused: The CHECK is `require`, and the data of a table fails its suite at that time.
            PermissionDenied: The program's role lacks SELECT on a table, or CREATE on the namespace.
        """
        with self.created(new) as hold:
            return hold

    @contextmanager
    def created(self, new: NewHold, declared: Mapping[str, str] | None = None) -> Iterator[Hold]:
        """Create a hold that stays if the block succeeds; remove it again if the block fails.

        A hold on tables or of a subscription that the block declares is invisible until they are declared. So no hold is
        left if the process dies in between.

        Args:
            new: The hold.
            declared: Object ids of the tables that the block declares, by full name.

        Raises:
            DefinitionError: As `create`.
        """
        ids = declared or {}
        owner = self._owner(new)
        draft = replace(self._drafted(new, ids), owner=owner)
        known = [table for table in draft.tables if table.full_name not in ids]
        if new.at_ms is not None:
            self._windows.timelines.check_in_sync([table.full_name for table in known], new.at_ms)
        windows = self._windows_of(known, back_to_ms=new.at_ms)

        # Two views may lead to one name: bi.a_b and bi_a.b. The subscriber finds its hold by `kept_by`.
        is_named = new.name is not None and new.keeper not in (SubscriberKind.SUBSCRIPTION, SubscriberKind.VIEW)

        def made(holds: Holds) -> Holds:
            name = draft.name if is_named else rules.free_name(holds, draft.name)
            return rules.created(holds, replace(draft, name=name), windows)

        try:
            holds = self._changes.change(made, windows)
            hold = next(hold for hold in holds if hold.hold_id == draft.hold_id)
            self._windows.check_kept(hold)
            if hold.check is not Check.OFF and hold.at_ms is not None:
                self._check(hold)
            yield hold
        except BaseException:
            self._changes.take_back(draft)
            raise
        if ids or hold.keeper in (SubscriberKind.SUBSCRIPTION, SubscriberKind.VIEW):
            self._changes.keep(hold)

    def advance(self, name: str, to_ms: int | None = None) -> Hold:
        """Move a hold to `to_ms`; by default to the first time that retention alone keeps readable, but never back.

        Concurrent calls share one commit.

        Raises:
            DefinitionError: The hold does not exist, or only a subscriber moves it.
            NotReadable: The hold cannot go back so far, or a table was stopped at that time. Or the CHECK is `require`, and rows
                may still come until that time.
            DataRefused: The CHECK is `require`, and the data of a table fails its suite at that time.
            PermissionDenied: The program's role did not make the hold, and lacks CREATE on its namespace.
        """
        hold = self._changeable(name, "advance")
        self._check_not_kept(hold, "advanced")
        if self._guard is not None and to_ms is not None:
            # A subscriber's position is never at a time at which one of its tables was stopped: only others need the check.
            self._windows.timelines.check_in_sync([table.full_name for table in hold.tables], to_ms)
        if hold.check is not Check.OFF:
            to_ms = self._checked_ms(name, to_ms)
        return self._advances.submit(Advance(name, to_ms))

    def rename(self, name: str, new_name: str) -> Hold:
        """Change the name of a hold; its tables and its time stay. Raises as `advance` does."""
        self._changeable(name, "rename")
        return rules.find(self.change(lambda holds: rules.renamed(holds, name, new_name)), new_name)

    def drop(self, name: str) -> None:
        """Drop a hold, so that the history which only it kept may expire. Raises as `advance` does."""
        self._check_not_kept(self._changeable(name, "drop"), "dropped")
        self.change(lambda holds: rules.dropped(holds, name))

    def set_max_lag(self, subscriber_id: str, max_lag_ms: int | None) -> None:
        """Change how far the hold of a subscriber may lag; None: the lake's setting. Callers check privileges first.

        Raises:
            DefinitionError: It is longer than the setting `max_max_lag_ms` allows.
        """

        def changed(holds: Holds) -> Holds:
            return tuple(
                replace(hold, max_lag_ms=self._allowed_lag_ms(max_lag_ms, hold.name))
                if hold.kept_by == subscriber_id
                else hold
                for hold in holds
            )

        self.change(changed)

    def change(self, apply: Callable[[Holds], Holds]) -> Holds:
        """Replace the holds by `apply(current)` in one commit, and return the new ones.

        Callers check privileges by `Guard` first. `apply` must not move a hold to another time, and raises to refuse. It runs
        again on the newest holds if another writer commits first.
        """
        return self._changes.change(apply, self._windows_of(()))

    def drop_all(self, gone: Holds) -> None:
        """Drop those of `gone` that exist; their tables may be gone, too. Callers check privileges by `Guard` first."""
        self._changes.discard(gone)

    def drop_kept_by(self, subscriber_id: str) -> None:
        """Drop the holds of a subscriber, whether or not the subscriber is still declared."""
        self._changes.discard(tuple(hold for hold in self._changes.stored() if hold.kept_by == subscriber_id))

    def begin(self, full_names: Collection[str]) -> None:
        """Give a time to each hold that waits for one of these tables, once all tables of the hold are readable."""
        if any(hold.at_ms is None and any(map(hold.is_on, full_names)) for hold in self.all()):
            self.change(lambda holds: holds)

    def enforce_lag(self) -> tuple[Hold, ...]:
        """Move the holds that lag more than their MAX LAG to exactly that lag, and return them."""
        windows = self._windows.read(table for hold in self.all() for table in hold.tables)
        moved: set[str] = set()

        def enforced(holds: Holds) -> Holds:
            after = rules.forced(holds, windows)
            moved.clear()
            moved.update(hold.hold_id for hold in {*after} - {*holds})
            return after

        after = self._changes.change(enforced, windows)
        return tuple(hold for hold in after if hold.hold_id in moved)

    def notices(self, new: NewHold, hold: Hold) -> tuple[str, ...]:
        """List what a person should know about `hold`, which was just created from `new`."""
        named = () if new.name else (f'the hold on {rules.tables_text(hold)} is named "{hold.name}"',)
        windows = self._windows.read(hold.tables)
        (moved,) = rules.forced((hold,), windows)
        if moved == hold:
            return named
        return (
            *named,
            f'hold "{hold.name}" is {rules.behind_ms(hold, windows)} ms behind its tables, more than its MAX LAG of '
            f"{hold.max_lag_ms} ms: the next maintenance moves it from {hold.at_ms} to {moved.at_ms}",
        )

    def _owner(self, new: NewHold) -> str | None:
        """Return the id of the role that creates `new`, after checking its privileges; None if no role is needed."""
        if self._guard is None:
            return None
        needed = (*privileges.selecting(new.tables), *privileges.creating_in(new.effective_namespace))
        role = self._guard.check(f'create hold "{new.wanted_name}"', needed)
        return role.role_id if role is not None else None

    def _changeable(self, name: str, verb: str) -> Hold:
        """Return the hold called `name`, after checking that the program's role may change it."""
        hold = self.hold(name)
        if self._guard is not None:
            self._guard.check_change(f'{verb} hold "{hold.full_name}"', hold)
        return hold

    def _check_not_kept(self, hold: Hold, verb: str) -> None:
        """Refuse to change a subscriber's hold, unless lakehold itself calls."""
        if self._guard is not None:
            rules.check_not_kept(hold, verb, self._changes.definitions.definitions())

    def _checked_ms(self, name: str, to_ms: int | None) -> int | None:
        """Compute the time to which an advance moves a hold, check the data of its tables at that time, and return it."""
        holds = self.all()
        windows = self._windows_of(rules.find(holds, name).tables, back_to_ms=to_ms)
        advanced = rules.find(rules.advanced(holds, name, to_ms, windows), name)
        self._check(advanced)
        return advanced.at_ms

    def _check(self, hold: Hold) -> None:
        """Check the data at the time of a hold; if it must pass, no more of it may come."""
        if hold.check is Check.REQUIRE:
            self._windows.check_complete(hold)
        self._check_data(hold)

    def _drafted(self, new: NewHold, declared: Mapping[str, str]) -> Hold:
        """Build the hold that `new` asks for; its time may still be unknown."""
        max_lag_ms = self._allowed_lag_ms(new.max_lag_ms, new.wanted_name)
        tables = tuple(
            HeldTable(declared[name], name, is_fed=True) if name in declared else self._windows.holdable(name)
            for name in new.tables
        )
        of_tables = [name.rpartition(".")[0] for name in new.tables]
        if new.namespace is not None and new.namespace not in of_tables:
            self._windows.check_namespace(new.namespace)
        return Hold(
            hold_id=uuid4().hex,
            namespace=new.effective_namespace,
            name=new.wanted_name,
            at_ms=new.at_ms,
            tables=tables,
            max_lag_ms=max_lag_ms,
            check=new.check or Check.OFF,
            sql=new.sql,
            created_at_ms=now_ms(),
            kept_by=new.kept_by,
            keeper=new.keeper,
        )

    def _allowed_lag_ms(self, max_lag_ms: int | None, name: str) -> int:
        """Return the MAX LAG of the hold `name`, by default the lake's, after checking that it is allowed."""
        found_ms = self._settings.default_max_lag_ms if max_lag_ms is None else max_lag_ms
        if found_ms > self._settings.max_max_lag_ms:
            raise DefinitionError(
                f'the MAX LAG of hold "{name}" is too long',
                code="hold-max-lag",
                detail=f"It is {found_ms} ms; the setting max_max_lag_ms allows {self._settings.max_max_lag_ms}.",
                hint="Choose a shorter one, or raise the setting.",
            )
        return found_ms

    def _windows_of(self, tables: Sequence[HeldTable], *, back_to_ms: int | None = None) -> HeldWindows:
        """Read the windows of `tables`, and of all tables whose first readable time a hold waits for."""
        waiting = [table for hold in self.all() if hold.at_ms is None for table in hold.tables]
        return self._windows.read([*waiting, *tables], back_to_ms=back_to_ms)
