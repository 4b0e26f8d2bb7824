"""Windows of tables, which the rules of holds need: from when to when a table can be read, and what retention keeps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakehold.errors import DefinitionError, NotReadable
from lakehold.holds.retention import retention_ms
from lakehold.holds.rules import HeldWindow, HeldWindows
from lakehold.model.reserved_namespaces import is_reserved, refuse_reserved
from lakehold.model.summary_keys import SUBSCRIPTION_PROPERTY
from lakehold.settings import Settings
from lakehold.state.holds import HeldTable, Hold
from lakehold.timeline.reader_lag import reached_ms
from lakehold.timeline.table_timeline import Timeline
from lakehold.timeline.timelines import Timelines
from lakehold.times import iso


@dataclass(frozen=True)
class HeldWindowReader:
    """The reader of tables' windows, and of whether holds may be on them.

    Args:
        timelines: Reports at which times tables can be read.
        settings: Have the retention of tables without a setting of their own.
    """

    timelines: Timelines
    settings: Settings

    def read(self, tables: Iterable[HeldTable], *, back_to_ms: int | None = None) -> HeldWindows:
        """Read the windows of `tables`, without tables that no longer exist or cannot be read.

        Args:
            tables: Tables that holds are on.
            back_to_ms: A time that must be covered: where a table's metadata does not show what was current then, earlier
                metadata files are read. None: the current metadata is enough.
        """
        wanted = {table.full_name: table for table in tables}
        found = {name: self._window(timeline, back_to_ms) for name, timeline in self.timelines.readable(wanted).items()}
        return {name: window for name, window in found.items() if window.table == wanted[name]}

    def holdable(self, full_name: str) -> HeldTable:
        """Return the table `full_name`, after checking that a new hold may be on it.

        Raises:
            DefinitionError: The table does not exist, or cannot be held.
        """
        if is_reserved(full_name.partition(".")[0]):
            raise _not_holdable(full_name, "It is one of the lake's own tables, which keep no history.")
        own = self.timelines.definitions.definitions().own_table(full_name)
        if own is not None:
            return HeldTable(own.object_id, full_name, is_fed=True)
        if self.timelines.tables.is_view(full_name):
            raise _not_holdable(full_name, "It is a view: nothing of it is stored.", hint="Hold the tables it reads.")
        timeline = self.timelines.of([full_name])[full_name]
        if SUBSCRIPTION_PROPERTY in timeline.table.properties:
            detail = "A subscription publishes to it; what it reads has a hold of its own."
            raise _not_holdable(full_name, detail, hint="Hold the tables that the subscription reads.")
        return _held(timeline)

    def check_namespace(self, name: str) -> None:
        """Check that a hold may be in the namespace `name`.

        Raises:
            DefinitionError: The namespace does not exist, or is lakehold's own.
        """
        refuse_reserved(name, "hold")
        if not self.timelines.tables.has_namespace(name):
            raise DefinitionError(
                f'namespace "{name}" does not exist',
                code="namespace-missing",
                hint="Leave it out: the hold is then in the namespace of its first table.",
            )

    def check_kept(self, hold: Hold) -> None:
        """Check that the tables of a hold can be read at its time, unless that is in the future.

        Raises:
            NotReadable: Another tool expired a snapshot after the windows were read and before the tags were put.
        """
        at_ms = hold.at_ms
        if at_ms is None:
            return
        for timeline in self.timelines.readable(table.full_name for table in hold.tables).values():
            reaching = self.timelines.reaching(timeline, at_ms)
            if at_ms < reaching.since_ms:
                raise NotReadable(
                    f'"{timeline.full_name}" is no longer readable at {at_ms}',
                    detail=f"Another program has just expired its snapshot. Readable: {reaching.window}.",
                    hint=f"Choose {reaching.since_ms} or later.",
                )
            if at_ms < timeline.upper_ms:
                reaching.at(at_ms)

    def check_complete(self, hold: Hold) -> None:
        """Check that no more rows come to the tables of a hold until its time, which it has.

        For tables with foreign writers it waits as long as one of their commits may take.

        Raises:
            NotReadable: A batch or a commit may still bring rows with an earlier timestamp, or the time is in the future.
        """
        at_ms, names = hold.at_ms, [table.full_name for table in hold.tables]
        assert at_ms is not None
        found = self.timelines.after_foreign_lag(names, [at_ms]).values()
        early = [timeline for timeline in found if timeline.upper_ms <= at_ms]
        if early:
            last_ms = min(timeline.upper_ms for timeline in early) - 1
            raise NotReadable(
                f'hold "{hold.name}" cannot be at {at_ms} yet: its CHECK would not see all rows of that time',
                detail=f"Rows may still come until then. Readable: {'; '.join(timeline.window for timeline in found)}.",
                hint=f"Choose {last_ms} ({iso(last_ms)} UTC) or earlier, or try again when all tables are readable at {at_ms}: "
                "ingest tables of a source until then. CHECK = 'record' does not wait.",
            )

    def _window(self, timeline: Timeline, back_to_ms: int | None) -> HeldWindow:
        if back_to_ms is not None:
            timeline = self.timelines.reaching(timeline, back_to_ms)
        definitions = self.timelines.definitions.definitions()
        keeps_ms = retention_ms(definitions, timeline.table.properties, timeline.full_name, self.settings)
        retained_ms = max(timeline.since_ms, reached_ms(timeline.upper_ms, self.timelines.clock()) - 1 - keeps_ms)
        own = definitions.own_table(timeline.full_name)
        held = _held(timeline) if own is None else HeldTable(own.object_id, timeline.full_name, is_fed=True)
        return HeldWindow(held, timeline.since_ms, timeline.upper_ms, retained_ms, timeline.changes, timeline.stops)


def _held(timeline: Timeline) -> HeldTable:
    return HeldTable(str(timeline.table.metadata.table_uuid), timeline.full_name)


def _not_holdable(full_name: str, detail: str, hint: str = "") -> DefinitionError:
    return DefinitionError(f'"{full_name}" cannot be held', code="not-holdable", detail=detail, hint=hint)
