"""The survey of a lake: which tables are maintained, and the facts from which their plans are made."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from lakehold.errors import DefinitionError, UpstreamUnavailable
from lakehold.holds.retention import own_retention_ms, retention_ms
from lakehold.holds.rules import needed_from_ms, protecting
from lakehold.holds.tags import TableTags, holds_on
from lakehold.maintenance.file_layout import Rewrite, has_few_files, rewrite_of
from lakehold.maintenance.history import Needs, kept_from_ms
from lakehold.maintenance.maintenance_plan import TablePlan, plan_table
from lakehold.maintenance.procedures import ORPHANS_SEARCHED_PROPERTY
from lakehold.maintenance.record_expiry import SOURCE_ERRORS
from lakehold.model.lake_definitions import Definitions
from lakehold.model.summary_keys import SUBSCRIPTION_PROPERTY
from lakehold.settings import Settings
from lakehold.state.batch_protocol import BatchStore
from lakehold.state.holds import Holds, HoldStore
from lakehold.state.read_lease_store import ReadLeaseStore, StoredReadLease
from lakehold.state.schema_files import SYSTEM_NAMESPACE
from lakehold.subscribe.live_files import LiveFiles, RememberedFiles
from lakehold.timeline.table_timeline import Timeline
from lakehold.timeline.tagged_versions import own_tags
from lakehold.timeline.timelines import Timelines
from lakehold.times import now_ms

ORPHANS_EVERY_MS = 24 * 60 * 60 * 1000
"""How often a table is searched for orphans: the search lists all of its files, and rarely finds any."""

SYSTEM_RETENTION_MS = 60 * 60 * 1000
"""History that a system table keeps: subscriptions do not read system tables."""


@dataclass(frozen=True)
class MaintenanceScope:
    """The maintenance that a table gets.

    Attributes:
        full_name: `namespace.table`.
        retention_ms: How much of its history stays; None: another program decides about its history.
        rewrites: Whether its files are rewritten.
        orphans: Whether files that it does not refer to are searched for.
        alone: Returns the tables whose location has no files of another table or view: only their orphans are deleted.
    """

    full_name: str
    retention_ms: int | None
    rewrites: bool
    orphans: bool
    alone: Callable[[], Collection[str]] = field(default=tuple, compare=False)


@dataclass(frozen=True)
class Survey:
    """The survey of a lake, which changes nothing.

    Args:
        catalog: The lake's catalog.
        timelines: The tables' histories.
        batches: Shows which batches are open.
        holds: The holds.
        read_leases: The read leases.
        tags: Shows which tags no hold needs.
        settings: How much history is kept, and how old an orphan is.
        clock: Epoch milliseconds.
    """

    catalog: Catalog
    timelines: Timelines
    batches: BatchStore
    holds: HoldStore
    read_leases: ReadLeaseStore
    tags: TableTags
    settings: Settings
    clock: Callable[[], int] = now_ms

    def scopes(self, names: Sequence[str] | None, *, orphans: bool = False) -> list[MaintenanceScope]:
        """Return the maintenance of each table.

        Without names, these are all of lakehold's own tables, and tables of others that declare how much history they keep.
        Tables that are or were held are among them for their tags only, and tables that cannot be read, to be reported.

        Orphans are searched for once in `ORPHANS_EVERY_MS`; always in named tables, or with `orphans`.
        """
        definitions = self.timelines.definitions.definitions()
        held = {t.full_name for hold in protecting(self.holds.holds(), definitions) for t in hold.tables}
        alone = cache(self._alone)
        found = []
        wanted = tuple(dict.fromkeys(names)) if names is not None else self.timelines.tables.all_names()
        self.timelines.tables.read_ahead(wanted)
        for name in wanted:
            table = self._table(name)
            searches = orphans or names is not None or self._is_search_due(table)
            scope = self._scope(name, table, definitions, named=names is not None, searches=searches)
            is_tagged = table is not None and bool(own_tags(table))
            if scope.retention_ms is not None or _is_system(name) or name in held or is_tagged or table is None:
                found.append(replace(scope, alone=alone))
        return found

    def plan(self, scope: MaintenanceScope) -> TablePlan:
        """Plan the maintenance of a table as of now.

        Raises:
            DefinitionError: It does not exist, or is not readable yet.
        """
        # Read holds, reads, intents and the clock before the table: later ones need no history older than these.
        clock_ms = self.clock()
        definitions = self.timelines.definitions.definitions()
        holds = protecting(self.holds.holds(), definitions)
        leases = self.read_leases.leases()
        is_written = self._is_written(scope.full_name)
        timeline = self.timelines.of([scope.full_name])[scope.full_name]
        needs = None
        if scope.retention_ms is not None:
            from_ms = self._kept_from_ms(timeline, scope.retention_ms, holds, leases, clock_ms)
            needs = Needs(
                kept_from_ms=from_ms,
                abandoned_before_ms=clock_ms - self.settings.expire_grace_ms,
                staged_before_ms=clock_ms - self.settings.orphan_age_ms,
                is_written=is_written,
            )
            timeline = self.timelines.reaching(timeline, from_ms)
        return plan_table(
            timeline,
            needs,
            self.tags.unneeded(timeline, holds),
            _rewrite(timeline.table) if scope.rewrites else Rewrite(),
            clock_ms - self.settings.orphan_age_ms if scope.orphans else None,
        )

    def read_manifests(self, full_name: str) -> None:
        """Read the manifests of a table's newest snapshot.

        Raises:
            OSError: A file is gone.
            DefinitionError: A file is damaged.
        """
        table = self._table(full_name)
        snapshot = table.current_snapshot() if table is not None else None
        if table is not None and snapshot is not None:
            LiveFiles(table, RememberedFiles()).manifests(snapshot.snapshot_id)

    def _alone(self) -> frozenset[str]:
        """Return the tables whose location has no location of another table or view in it; this loads all of them.

        There are none while some table or view cannot be read: its files might lie among another's.
        """
        tables = {name: self._table(name) for name in self.timelines.tables.all_names()}
        locations = {name: table.location() if table is not None else None for name, table in tables.items()}
        locations |= self.timelines.tables.view_locations()
        located = sorted((_directory(location), name) for name, location in locations.items() if location is not None)
        if len(located) < len(locations):
            return frozenset()
        # In this order what is below a location follows it.
        shared = {outer for (outer, _), (inner, _) in pairwise(located) if inner.startswith(outer)}
        return frozenset(name for location, name in located if location not in shared)

    def _table(self, full_name: str) -> Table | None:
        try:
            state = self.timelines.tables.table_state(full_name)
        except DefinitionError:
            return None
        except UpstreamUnavailable as error:
            if error.code != "store-failed":
                raise
            return None  # Planning its maintenance reports the error.
        return state.table if state is not None else None

    def _scope(
        self, name: str, table: Table | None, definitions: Definitions, *, named: bool, searches: bool
    ) -> MaintenanceScope:
        properties = table.properties if table is not None else {}
        if _is_system(name):
            # Only Spark's table needs maintenance: the others expire their own history, commit by commit.
            is_by_spark = name == SOURCE_ERRORS
            return MaintenanceScope(
                name, SYSTEM_RETENTION_MS if is_by_spark else None, rewrites=is_by_spark, orphans=searches
            )
        own_ms = own_retention_ms(definitions, properties, name)
        if not named and not _is_own(name, properties, definitions) and own_ms is None:
            return MaintenanceScope(name, None, rewrites=False, orphans=False)
        retained_ms = retention_ms(definitions, properties, name, self.settings)
        return MaintenanceScope(name, retained_ms, rewrites=True, orphans=searches)

    def _is_search_due(self, table: Table | None) -> bool:
        searched = table.properties.get(ORPHANS_SEARCHED_PROPERTY, "") if table is not None else ""
        return not searched.isdecimal() or self.clock() - int(searched) >= ORPHANS_EVERY_MS

    def _kept_from_ms(
        self, timeline: Timeline, retained_ms: int, holds: Holds, leases: Iterable[StoredReadLease], clock_ms: int
    ) -> int:
        needed_ms = [needed_from_ms(hold, timeline.since_ms, timeline.upper_ms) for hold in holds_on(timeline, holds)]
        needed_ms += [lease.from_ms for lease in leases if timeline.full_name in lease.tables]
        grace_ms = self.settings.expire_grace_ms
        return kept_from_ms(timeline.upper_ms, clock_ms, retained_ms, grace_ms, needed_ms)

    def _is_written(self, full_name: str) -> bool:
        intents = (state.intent for state in self.batches.all_readers())
        return any(intent is not None and full_name in intent.tables for intent in intents)


def _directory(location: str) -> str:
    """Return a location in one spelling: Spark writes `file:/` where others write `file:///`, and `s3a` is `s3`."""
    location = re.sub("^file:/+", "/", location)
    return re.sub("^s3[an]:", "s3:", location).rstrip("/") + "/"


def _is_own(full_name: str, properties: Mapping[str, str], definitions: Definitions) -> bool:
    """Return whether lakehold alone writes a table: a source feeds it, or it belongs to a view or a subscription."""
    publishing = definitions.all_derived.get(properties.get(SUBSCRIPTION_PROPERTY, ""))
    is_output = publishing is not None and publishing.definition.into == full_name
    return is_output or definitions.own_table(full_name) is not None


def _is_system(full_name: str) -> bool:
    return full_name.startswith(f"{SYSTEM_NAMESPACE}.")


def _rewrite(table: Table) -> Rewrite:
    snapshot = table.current_snapshot()
    if snapshot is None or (snapshot.summary is not None and has_few_files(snapshot.summary.additional_properties)):
        return Rewrite()
    files = LiveFiles(table, RememberedFiles())
    manifests = files.manifests(snapshot.snapshot_id).values()
    return rewrite_of(
        files.of(manifests, ManifestContent.DATA),
        files.of(manifests, ManifestContent.DELETES),
        len(manifests),
        table.properties,
    )
