"""What can be done with holds: the calls behind the statements, for SQL, subscriptions, durable clients and maintenance."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

from lakehold.errors import DefinitionError
from lakehold.holds import privileges, rules
from lakehold.holds.advances import Advance, Advances
from lakehold.holds.changes import HoldChanges
from lakehold.holds.frontiers import FrontierReading
from lakehold.holds.guard import Guard
from lakehold.holds.rules import Frontiers
from lakehold.model.definitions import DefinitionReader
from lakehold.settings import Settings
from lakehold.state.holds import Check, HeldTable, Hold, Holds, HoldStore
from lakehold.state.subscribers import SubscriberKind
from lakehold.timeline.timelines import Timelines
from lakehold.times import now_ms


@dataclass(frozen=True)
class NewHold:
    """What `CREATE HOLD` says.

    Attributes:
        name: Without the namespace; None: one is made of its tables' names.
        namespace: Where it stands; None: where the first of its tables does.
        tables: Full names.
        at_ms: From when on; None: from the first time at which all of them are readable.
        max_lag_ms: None: the setting `default_max_lag_ms`.
        check: None: `OFF`.
        sql: The statement as written.
        kept_by: Id of the subscription or name of the client that advances it.
        keeper: What `kept_by` is.
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
    def stands_in(self) -> str:
        """Where it stands: the namespace that is written, or its first table's."""
        return self.namespace or self.tables[0].rpartition(".")[0]

    @property
    def wanted_name(self) -> str:
        """Its name; one that is not written gets a number behind it where it is taken."""
        return self.name or "_".join([*(table.rpartition(".")[2] for table in self.tables), "hold"])


class HoldCommands:
    """The holds of one lake. Many threads may share it: their advances become few commits.

    Args:
        store: The holds.
        timelines: Tells how far tables are.
        definitions: Which tables sources feed.
        settings: Limits of MAX LAG, and retention.
        put_tags: Makes the tags of tables what their holds need.
        judge: Checks the data of a hold that asks for it, where it is to stand; raises to refuse.
        guard: Asks for the privileges of whoever calls; None: lakehold itself does, which needs none.
    """

    def __init__(  # noqa: PLR0913 - what holds touch
        self,
        store: HoldStore,
        timelines: Timelines,
        definitions: DefinitionReader,
        settings: Settings,
        put_tags: Callable[[Sequence[str]], None],
        judge: Callable[[Hold], None],
        guard: Guard | None = None,
    ) -> None:
        self._settings = settings
        self._judge = judge
        self._guard = guard
        self._frontiers = FrontierReading(timelines, settings)
        self._changes = HoldChanges(store, definitions, put_tags)
        self._advances = Advances(self._changes, self._frontiers)

    def all(self) -> Holds:
        """The holds that are there now, in order of creation."""
        return self._changes.all()

    def hold(self, name: str) -> Hold:
        """The hold called `name`, with or without its namespace."""
        return rules.find(self.all(), name)

    def create(self, new: NewHold) -> Hold:
        """Make a hold.

        Raises:
            DefinitionError: Its name is taken, a table cannot be held, MAX LAG is too long.
            NotReadable: Its time is before what can be read, or one at which a table was stopped.
            DataRefused: Its CHECK is `require`, and a table is not as expected there.
            PermissionDenied: The program's role lacks SELECT on a table, or CREATE on the namespace.
        """
        with self.created(new) as hold:
            return hold

    @contextmanager
    def created(self, new: NewHold, declared: Mapping[str, str] | None = None) -> Iterator[Hold]:
        """Make a hold that stays if the block ends well; what fails in it takes the hold back.

        Args:
            new: The hold.
            declared: Object ids of tables that the block declares, by full name. Until it has, nobody sees the hold, so
                that one whose process dies in between is none; neither does anybody see that of a subscription which the
                block declares.

        Raises:
            DefinitionError: As `create`.
        """
        ids = declared or {}
        owner = self._owner(new)
        draft = replace(self._drafted(new, ids), owner=owner)
        known = [table for table in draft.tables if table.full_name not in ids]
        if new.at_ms is not None:
            self._frontiers.timelines.check_level([table.full_name for table in known], new.at_ms)
        frontiers = self._frontiers_of(known, back_to_ms=new.at_ms)

        def made(holds: Holds) -> Holds:
            name = draft.name if new.name else rules.free_name(holds, draft.name)
            return rules.created(holds, replace(draft, name=name), frontiers)

        try:
            holds = self._changes.change(made, frontiers)
            hold = next(hold for hold in holds if hold.hold_id == draft.hold_id)
            self._frontiers.check_kept(hold)
            if hold.check is not Check.OFF and hold.at_ms is not None:
                self._judge(hold)
            yield hold
        except BaseException:
            self._changes.take_back(draft)
            raise
        if ids or hold.keeper is SubscriberKind.SUBSCRIPTION:
            self._changes.keep(hold)

    def advance(self, name: str, to_ms: int | None = None) -> Hold:
        """Move a hold to `to_ms`; by default to where retention alone keeps its tables readable, never back.

        Calls of several threads are done as one commit.

        Raises:
            DefinitionError: There is no such hold, or it is a subscriber's to move.
            NotReadable: It cannot go back so far, or a table was stopped at that time.
            DataRefused: Its CHECK is `require`, and a table is not as expected there.
            PermissionDenied: The program's role did not make the hold, and lacks CREATE on its namespace.
        """
        hold = self._changeable(name, "advance")
        self._check_not_kept(hold, "advanced")
        if self._guard is not None and to_ms is not None:
            # Where a subscriber is, no table of its was stopped.
            self._frontiers.timelines.check_level([table.full_name for table in hold.tables], to_ms)
        if hold.check is not Check.OFF:
            to_ms = self._judged(name, to_ms)
        return self._advances.submit(Advance(name, to_ms))

    def rename(self, name: str, new_name: str) -> Hold:
        """Give a hold another name; its tables and its time stay. Raises as `advance` does."""
        self._changeable(name, "rename")
        return rules.find(self.change(lambda holds: rules.renamed(holds, name, new_name)), new_name)

    def drop(self, name: str) -> None:
        """Let go of what a hold keeps. Raises as `advance` does."""
        self._check_not_kept(self._changeable(name, "drop"), "dropped")
        self.change(lambda holds: rules.dropped(holds, name))

    def change(self, apply: Callable[[Holds], Holds]) -> Holds:
        """Replace the holds by `apply(current)`, which takes none to another time, in one commit; returns them.

        Whoever calls has asked `Guard`. `apply` runs again on the newest holds when another came first; it raises to refuse.
        """
        return self._changes.change(apply, self._frontiers_of(()))

    def drop_all(self, gone: Holds) -> None:
        """Drop `gone`, as far as they are there; their tables may be gone, too. Whoever calls has asked `Guard`."""
        self._changes.discard(gone)

    def drop_kept_by(self, subscriber_id: str) -> None:
        """Drop what a subscriber holds, whether or not it is still declared; nothing when it holds nothing."""
        self._changes.discard(tuple(hold for hold in self._changes.stored() if hold.kept_by == subscriber_id))

    def begin(self, full_names: Collection[str]) -> None:
        """Give the holds that wait for one of these tables their time, if all of their tables are readable now."""
        if any(hold.at_ms is None and any(map(hold.is_on, full_names)) for hold in self.all()):
            self.change(lambda holds: holds)

    def enforce_lag(self) -> tuple[Hold, ...]:
        """Move the holds that are behind their MAX LAG to where it ends, and return them."""
        frontiers = self._frontiers.of(table for hold in self.all() for table in hold.tables)
        moved: set[str] = set()

        def enforced(holds: Holds) -> Holds:
            after = rules.forced(holds, frontiers)
            moved.clear()
            moved.update(hold.hold_id for hold in {*after} - {*holds})
            return after

        after = self._changes.change(enforced, frontiers)
        return tuple(hold for hold in after if hold.hold_id in moved)

    def notices(self, new: NewHold, hold: Hold) -> tuple[str, ...]:
        """What a person should know of `hold`, which was just made as `new` says."""
        named = () if new.name else (f'the hold on {rules.tables_text(hold)} is named "{hold.name}"',)
        frontiers = self._frontiers.of(hold.tables)
        (moved,) = rules.forced((hold,), frontiers)
        if moved == hold:
            return named
        return (
            *named,
            f'hold "{hold.name}" is {rules.behind_ms(hold, frontiers)} ms behind its tables, more than its MAX LAG of '
            f"{hold.max_lag_ms} ms: the next maintenance moves it from {hold.at_ms} to {moved.at_ms}",
        )

    def _owner(self, new: NewHold) -> str | None:
        """Id of the role that makes `new`, which may; None: it needs none."""
        if self._guard is None:
            return None
        needed = (*privileges.selecting(new.tables), *privileges.creating_in(new.stands_in))
        role = self._guard.check(f'create hold "{new.wanted_name}"', needed)
        return role.role_id if role is not None else None

    def _changeable(self, name: str, verb: str) -> Hold:
        """The hold called `name`, which whoever calls may change."""
        hold = self.hold(name)
        if self._guard is not None:
            self._guard.check_change(f'{verb} hold "{hold.full_name}"', hold)
        return hold

    def _check_not_kept(self, hold: Hold, verb: str) -> None:
        """A subscriber's hold is lakehold's own to change."""
        if self._guard is not None:
            rules.check_not_kept(hold, verb, self._changes.definitions.definitions())

    def _judged(self, name: str, to_ms: int | None) -> int | None:
        """Where an advance to `to_ms` brings a hold, whose data there was checked before it goes."""
        holds = self.all()
        frontiers = self._frontiers_of(rules.find(holds, name).tables, back_to_ms=to_ms)
        advanced = rules.find(rules.advanced(holds, name, to_ms, frontiers), name)
        self._judge(advanced)
        return advanced.at_ms

    def _drafted(self, new: NewHold, declared: Mapping[str, str]) -> Hold:
        """The hold as said, before it is known when it begins."""
        max_lag_ms = self._settings.default_max_lag_ms if new.max_lag_ms is None else new.max_lag_ms
        if max_lag_ms > self._settings.max_max_lag_ms:
            raise DefinitionError(
                f'the MAX LAG of hold "{new.wanted_name}" is too long',
                code="hold-max-lag",
                detail=f"It is {max_lag_ms} ms; the setting max_max_lag_ms allows {self._settings.max_max_lag_ms}.",
                hint="Choose a shorter one, or raise the setting.",
            )
        tables = tuple(
            HeldTable(declared[name], name, is_fed=True) if name in declared else self._frontiers.holdable(name)
            for name in new.tables
        )
        of_tables = [name.rpartition(".")[0] for name in new.tables]
        if new.namespace is not None and new.namespace not in of_tables:
            self._frontiers.check_namespace(new.namespace)
        return Hold(
            hold_id=uuid4().hex,
            namespace=new.stands_in,
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

    def _frontiers_of(self, tables: Sequence[HeldTable], *, back_to_ms: int | None = None) -> Frontiers:
        """Of `tables`, and of those whose first readable time a hold waits for."""
        waiting = [table for hold in self.all() if hold.at_ms is None for table in hold.tables]
        return self._frontiers.of([*waiting, *tables], back_to_ms=back_to_ms)
