"""Compares a materialized view with its query, at the last time that the view shows.

The query is computed whole, over its tables as they were at that time. So the comparison shares nothing with the way in which
a refresh finds what changed. Both sides are reduced to digests, as for the comparison of a table with its database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from lakehold.definitions import MaterializedView
from lakehold.errors import DefinitionError
from lakehold.iceberg.data_tables import TableState, state_of
from lakehold.model.lake_definitions import Entry
from lakehold.progress import Progress
from lakehold.spark_sql import quoted_table
from lakehold.subscribe.on_spark import OnSpark
from lakehold.subscribe.query_relation import QueryRelation
from lakehold.subscribe.relation import TimelinesByName
from lakehold.subscribe.statement import Query, Subscribe
from lakehold.subscribe.subscription_opening import Subscribing
from lakehold.tables.stored_key import stored_columns
from lakehold.timeline.table_timeline import Timeline
from lakehold.timeline.timelines import check_readable
from lakehold.times import iso
from lakehold.verify.comparison import KEYS_SHOWN, QUERY, Comparison, Difference, Side, in_order
from lakehold.verify.frame_rows import FrameRows, numbered, snapshot_frame
from lakehold.verify.lake_rows import LakeRows
from lakehold.verify.resolving import difference
from lakehold.verify.seeming import seeming
from lakehold.verify.selected_rows import Selection, by_key

_SIDES = {Side.ONLY_IN_DATABASE: Side.ONLY_IN_QUERY, Side.ONLY_IN_LAKE: Side.ONLY_IN_VIEW}
_REPLACES = "replace"
"""The operation of a snapshot that rewrites files and changes no row."""


@dataclass(frozen=True, kw_only=True)
class ViewComparing:
    """The comparison of the materialized views of one lake with their queries.

    Args:
        subscribing: Reads tables at a time, and keeps what is read.
        parse: Parses the SUBSCRIBE of a view.
    """

    subscribing: Subscribing
    parse: Callable[[str], Subscribe]

    def compare(self, entry: Entry[MaterializedView], progress: Progress) -> Comparison:
        """Compare a view with its query.

        Raises:
            NotReadable: The view was never refreshed, or its tables are no longer readable at the last time that it shows.
            DefinitionError: A table is gone, or the query has other columns than the view.
        """
        view, timelines = entry.definition, self.subscribing.timelines
        found = timelines.of([view.full_name, *view.tables])
        at_ms = found[view.full_name].upper_ms - 1
        found = {name: timelines.reaching(timeline, at_ms) for name, timeline in found.items()}
        check_readable(list(found.values()), at_ms, timelines.holds)
        shown = found.pop(view.full_name)
        with self.subscribing.read_leases.acquire((view.full_name, *found), at_ms):
            return self._compare(entry, shown, found, at_ms, progress)

    def _compare(
        self,
        entry: Entry[MaterializedView],
        shown: Timeline,
        tables: TimelinesByName,
        at_ms: int,
        progress: Progress,
    ) -> Comparison:
        view, current = entry.definition, shown.table.current_snapshot()
        state = state_of(view.full_name, shown.table)
        stored = [column.name for column in stored_columns(state)]
        key = [name for name in stored if name.lower() in {each.lower() for each in view.key}] or stored
        columns = [*key, *(name for name in stored if name not in key)]
        wanted = self._query_rows(view, tables, at_ms)
        _check_columns(view, stored, wanted.columns)
        # The current rows, not those of the last refresh: what another program changed since is to be found.
        name = quoted_table(self._spark.catalog_name, view.full_name)
        ours = LakeRows(
            shown.table,
            current.snapshot_id if current is not None else None,
            tuple(columns),
            len(key),
            lambda snapshot_id: snapshot_frame(self._spark.session(), name, snapshot_id),
            one_zero=True,
        )
        theirs = FrameRows(numbered(wanted, columns), len(key), one_zero=True)
        with progress.task(f"compute {QUERY} of {view.full_name}", unit="rows", total=None) as task:
            their_sums = theirs.sums(task)
        with progress.task(f"read {view.full_name}", unit="rows", total=None) as task:
            our_sums = ours.sums(task)
        differences, different, is_whole = list[Difference](), 0, True
        for each in seeming(theirs, ours, their_sums, our_sums):
            if different >= KEYS_SHOWN:
                is_whole = False
                break
            some = sorted({*each.wanted, *each.lake})[: KEYS_SHOWN - different]
            differences += _differences(theirs, ours, some, columns)
            different += len({*each.wanted, *each.lake})
        return Comparison(
            full_name=view.full_name,
            upstream=QUERY,
            at_ms=at_ms,
            snapshot_id=current.snapshot_id if current is not None else None,
            rows_in_database=int(their_sums.rows.sum()),
            rows_in_lake=int(our_sums.rows.sum()),
            key=tuple(key),
            columns=tuple(columns),
            skipped=(),
            differences=in_order(differences),
            different=different,
            is_whole=is_whole,
            unresolved=0,
            reasons=tuple(_reasons(entry, state)) if differences else (),
        )

    @property
    def _spark(self) -> OnSpark:
        return self.subscribing.reading.spark

    def _query_rows(self, view: MaterializedView, tables: TimelinesByName, at_ms: int) -> DataFrame:
        query = self.parse(view.subscribe).relation
        assert isinstance(query, Query)
        schemas = {name: timeline.table.schema() for name, timeline in tables.items()}
        return QueryRelation(query, schemas, self.subscribing.reading, pa.schema([])).result_at(tables, at_ms)


def _differences(
    theirs: FrameRows, ours: LakeRows, keys: Sequence[int], columns: Sequence[str]
) -> Iterator[Difference]:
    digests = np.array(keys, np.int64).view(np.uint64)
    digests.sort()
    selection = Selection(keys=digests, with_columns=True)
    wanted, found = (by_key(side.selected(selection), digests) for side in (theirs, ours))
    for key in keys:
        each = difference(wanted.get(key, ()), found.get(key, ()), columns)
        yield replace(each, side=_SIDES.get(each.side, each.side))


def _check_columns(view: MaterializedView, stored: Sequence[str], found: Sequence[str]) -> None:
    if sorted(stored) != sorted(found):
        raise DefinitionError(
            f'the query of materialized view "{view.full_name}" has other columns than its table',
            code="view-columns",
            detail=f"The table has {', '.join(stored)}; the query has {', '.join(found)}.",
            hint=f"lakehold publish {view.full_name}",
        )


def _reasons(entry: Entry[MaterializedView], state: TableState) -> Iterator[str]:
    foreign = [s for s in state.history if not s.is_of(entry.object_id) and s.summary.get("operation") != _REPLACES]
    if foreign:
        newest = foreign[0]
        yield (
            f"snapshots of the view that no refresh wrote: {len(foreign)}, the newest at {iso(newest.committed_at_ms)} UTC "
            f"(snapshot {newest.snapshot_id}): somebody else changed the table. DROP MATERIALIZED VIEW, and create it again."
        )
