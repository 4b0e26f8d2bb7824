"""Changes of queries that group and aggregate: the state of the groups at the beginning, then only the diffs of their rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from lakehold.arrow_frames import frame_of
from lakehold.spark_errors import is_sparks
from lakehold.subscribe.consolidate import consolidated
from lakehold.subscribe.delta_terms import CARRIED, DIFF, TIME, as_diffs, run_over_diffs
from lakehold.subscribe.diffed_rows import DiffedRows
from lakehold.subscribe.group_state import GroupColumns, GroupState, Inexact, Key, Values, decoded, diff_rows
from lakehold.subscribe.incremental_plan import Aggregation
from lakehold.subscribe.on_spark import LargeDiffs, frame_of_diffs, view_name
from lakehold.subscribe.query_relation import QueryRelation, typed, with_diff
from lakehold.subscribe.relation import Relation, TimelinesByName
from lakehold.subscribe.sorting import Sorting
from lakehold.subscribe.spark_types import spark_schema
from lakehold.subscribe.table_diffs import DiffReading
from lakehold.subscribe.version_reads import VersionReads

MOST_GROUPS = 200_000
"""Number of groups up to which their state is kept in this process."""

_Dated = tuple[int, int, Key, Values]
"""Timestamp, diff, key and what is kept of a group."""


class _NotHere(Exception):
    """A signal that the next changes have to be found in another way."""


def _has_another_way(error: Exception) -> bool:
    """Return whether the query may succeed in another way than from a state."""
    return isinstance(error, _NotHere | Inexact) or is_sparks(error)


@dataclass(frozen=True)
class GroupedRows(DiffedRows):
    """A query that groups rows and aggregates them.

    Args:
        plan: The query.
        rows_before: The rows before they are grouped.
        group_columns: The columns of the groups.
        otherwise: Computes what cannot be computed from a state.
        whole: Computes the query's result.
        reading: Reads diffs.
        result: The columns of the query's result.
        names_in_subquery: The names of the groups' columns, if the groups are a subquery.
    """

    plan: Aggregation
    rows_before: DiffedRows
    group_columns: GroupColumns
    otherwise: Relation
    whole: QueryRelation
    reading: DiffReading
    result: pa.Schema = field(compare=False)
    names_in_subquery: tuple[str, ...] = ()

    def rows(self, timelines: TimelinesByName, at_ms: int, sorting: Sorting) -> Iterator[pa.Table]:
        """Compute the query's result at `at_ms`, from the state of the groups if there are not too many."""
        try:
            state = self._state(timelines, at_ms)
            found = self._finished([(at_ms, 1, key, values) for key, values in state.groups.items()])
        except Exception as error:
            if not _has_another_way(error):
                raise
            yield from self.whole.rows(timelines, at_ms, sorting)
            return
        self._remember(timelines, at_ms, state)
        if found.num_rows:
            yield sorting.sort_here(found, self.reading.spark.session)

    def changes(
        self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int, sorting: Sorting
    ) -> Iterator[pa.Table]:
        """Compute the changes of the groups that are touched."""
        done_ms = after_exclusive_ms
        try:
            for found in self.diffs(timelines, after_exclusive_ms, until_exclusive_ms):
                sorted_rows = sorting.sort_here(found, self.reading.spark.session)
                # Only now: if Spark cannot sort them, the other way begins with these timestamps.
                done_ms = pc.max(found.column(0)).as_py()
                yield sorted_rows
        except Exception as error:
            if not _has_another_way(error):
                raise
            yield from self.otherwise.changes(timelines, done_ms, until_exclusive_ms, sorting)

    def diffs(self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int) -> Iterator[pa.Table]:
        """Compute the changes of the groups that are touched, as far as this can be done here.

        Raises:
            _NotHere: The next changes have to be found in another way.
            Inexact: The same.
            PySparkException: The same, unless the query itself fails. Spark may filter rows by HAVING before it computes values,
                but a state is of all groups.
        """
        state: GroupState | None = None
        for diffs in self.rows_before.diffs(timelines, after_exclusive_ms, until_exclusive_ms):
            if isinstance(diffs, LargeDiffs):
                raise _NotHere
            if state is None:
                state = self._state(timelines, after_exclusive_ms)
            found = self._finished(list(self._changed_groups(state, consolidated(diffs), timelines)))
            if found.num_rows:
                yield found
        if state is None:
            # The snapshots changed no rows of the groups: what was kept describes the last one, too.
            state = self.reading.groups.take(self._place(timelines, after_exclusive_ms))
        if state is not None:
            self._remember(timelines, until_exclusive_ms - 1, state)

    def frame_at(self, timelines: TimelinesByName, at_ms: int) -> DataFrame:
        """Compute the query's result at `at_ms` on Spark."""
        return self.whole.result_at(timelines, at_ms)

    def _changed_groups(self, state: GroupState, rows: pa.Table, timelines: TimelinesByName) -> Iterator[_Dated]:
        """Add diffs to the state, and yield what the touched groups were and are."""
        for at_ms, dated in diff_rows(rows, self.group_columns):
            before, lost = state.add(dated)
            if lost:
                state.replace(lost, self._read(timelines, at_ms, lost))
            for key, values in before.items():
                now = state.groups.get(key)
                if values == now:
                    continue
                if values is not None:
                    yield at_ms, -1, key, values
                if now is not None:
                    yield at_ms, 1, key, list(now)
        if len(state.groups) > MOST_GROUPS:
            raise self._too_many()

    def _finished(self, dated: Sequence[_Dated]) -> pa.Table:
        """Compute the select list and HAVING over groups: here if they only select columns, else by Spark."""
        columns = self.group_columns
        kept = [(at_ms, diff, *key, *columns.results_of(values)) for at_ms, diff, key, values in dated]
        groups = pa.Table.from_arrays(
            [
                decoded(values, of.type)
                for values, of in zip(
                    zip(*kept, strict=True) if kept else [()] * len(self._schema), self._schema, strict=True
                )
            ],
            schema=self._schema,
        )
        if self._is_selection:
            names = groups.column_names
            selected = groups.select([0, 1, *(names.index(item) for item in self.plan.items)])
            return typed(selected, with_diff(self.result))
        frame = frame_of_diffs(groups, self.reading.spark.session())
        return typed(self._select_list(frame).toArrow(), with_diff(self.result))

    def select_list_types(self) -> list[pa.DataType]:
        """Return the types of the select list, as Spark computes it over groups."""
        if self._is_selection:
            return [self._schema.field(item).type for item in self.plan.items]
        empty = frame_of_diffs(self._schema.empty_table(), self.reading.spark.session())
        return list(self._select_list(empty).limit(0).toArrow().schema.types[2:])

    @property
    def _is_selection(self) -> bool:
        """Return whether the query only selects keys and aggregates, so that Spark has nothing to compute over groups."""
        is_whole = not self.plan.having and self.plan.around is None
        return is_whole and all(item in self._schema.names for item in self.plan.items)

    def _select_list(self, groups: DataFrame) -> DataFrame:
        time, diff = CARRIED
        visible = groups.toDF(time, diff, *self._schema.names[2:])
        view = view_name()
        carried = [f"{name} AS {shown}" for name, shown in CARRIED.items()]
        listed = [f"{item} AS c{place}" for place, item in enumerate(self.plan.items)]
        having = f" WHERE {self.plan.having}" if self.plan.having else ""
        text = f"SELECT {', '.join([*carried, *listed])} FROM {view}{having}"
        found = as_diffs(self.reading.spark.select(text, {view: visible}))
        if self.plan.around is None:
            return found
        reads = VersionReads(self.reading.spark, {}, {})
        subquery = reads.view(found.toDF(TIME, DIFF, *self.names_in_subquery))
        return run_over_diffs(self.plan.around.query, 0, [f"SELECT * FROM {subquery}"], reads)

    @property
    def _schema(self) -> pa.Schema:
        columns = self.group_columns
        fields = [(f"k{place}", of) for place, of in enumerate(columns.keys)]
        fields += [(f"g{place}", of) for place, of in enumerate(columns.results)]
        return with_diff(pa.schema(fields))

    def _state(self, timelines: TimelinesByName, at_ms: int) -> GroupState:
        """Return the state of the groups at `at_ms`: the one that was kept, or one that Spark computes."""
        if self.reading.groups.has_too_many(self.whole.query.text):
            raise _NotHere
        kept = self.reading.groups.take(self._place(timelines, at_ms))
        if kept is not None:
            return kept
        return GroupState(self.group_columns, self._read(timelines, at_ms, None), has_one_group=self.plan.has_one_group)

    def _too_many(self) -> _NotHere:
        self.reading.groups.refuse(self.whole.query.text)
        return _NotHere()

    def _remember(self, timelines: TimelinesByName, at_ms: int, state: GroupState) -> None:
        self.reading.groups.keep(self._place(timelines, at_ms), state)

    def _place(self, timelines: TimelinesByName, at_ms: int) -> tuple[object, ...]:
        """Return what tells the states of this query at different times, and those of other queries, apart."""
        found: list[object] = [self.whole.query.text, self.reading.spark.evaluation_settings()]
        for name, timeline in timelines.items():
            version = timeline.at(at_ms)
            snapshot_id = None if version is None else version.snapshot_id
            found += [timeline.table.metadata.table_uuid, self.whole.schemas[name].schema_id, snapshot_id]
        return tuple(found)

    def _read(self, timelines: TimelinesByName, at_ms: int, keys: Collection[Key] | None) -> Mapping[Key, Values]:
        """Compute what is kept of groups at `at_ms`, by Spark; None stands for all groups.

        Raises:
            _NotHere: There are too many groups.
        """
        columns = self.group_columns
        names = [f"k{place}" for place in range(len(columns.keys))]
        rows, view = self.rows_before.frame_at(timelines, at_ms), view_name()
        views = {view: rows.toDF(*self.rows_before.columns.names)}
        condition = ""
        if keys is not None and names:
            listed = view_name()
            schema = pa.schema(list(zip(names, columns.keys, strict=True)))
            arrays = [decoded(values, of.type) for values, of in zip(zip(*keys, strict=True), schema, strict=True)]
            table = pa.Table.from_arrays(arrays, schema=schema)
            views[listed] = frame_of(table, self.reading.spark.session(), spark_schema(schema))
            equal = " AND ".join(f"r.{name} <=> l.{name}" for name in names)
            condition = f" WHERE EXISTS (SELECT 1 FROM {listed} AS l WHERE {equal})"
        kept = [f"{sql} AS s{place}" for place, sql in enumerate(columns.sql)]
        grouped = f" GROUP BY {', '.join(names)}" if names else ""
        text = f"SELECT {', '.join([*names, *kept])} FROM {view} AS r{condition}{grouped}"
        found = self.reading.spark.select(text, views).limit(MOST_GROUPS + 1).toArrow()
        if found.num_rows > MOST_GROUPS:
            raise self._too_many()
        return dict(columns.of_table(found))
