"""Changes of joins and of UNION ALL: the query over the diffs of one table and versions of the others, summed over the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import DataFrame

from lakehold.subscribe.delta_terms import Pieces, RowTerms
from lakehold.subscribe.diffed_rows import Job, JobRows
from lakehold.subscribe.incremental_plan import RowQuery
from lakehold.subscribe.on_spark import LargeDiffs
from lakehold.subscribe.query_relation import QueryRelation, here_or_large
from lakehold.subscribe.relation import TimelinesByName
from lakehold.subscribe.sorting import Sorting
from lakehold.subscribe.table_diffs import DiffReading, TableDiffs
from lakehold.subscribe.timeline_steps import steps
from lakehold.subscribe.version_reads import VersionReads

_TERMS_A_JOB = 16
"""Terms that Spark computes in one job: the plan contains the query once per term."""

_TIMES_A_JOB = 32
"""Timestamps whose diffs are in memory at once."""

_Term = tuple[int, tuple[int | None, ...], int | None]
"""A source, the snapshots of the other ones, and the timestamp if the term is only of one."""


@dataclass(frozen=True)
class JoinedRows(JobRows):
    """A join or a UNION ALL.

    Args:
        plan: The query.
        whole: Computes the query's result.
        terms: Makes the terms of its diffs.
        reading: Reads diffs.
        result: The columns of the query's result.
    """

    plan: RowQuery
    whole: QueryRelation
    terms: RowTerms
    reading: DiffReading
    result: pa.Schema = field(compare=False)

    @property
    def unknown(self) -> str:
        """Return why the diffs are not known, empty if they are."""
        for place, source in enumerate(self.plan.sources):
            if source.is_optional and self.terms.preserved(place) is None:
                return f"its LEFT JOIN with {source.name} compares no column with one of a table that is not optional itself"
        return ""

    def rows(self, timelines: TimelinesByName, at_ms: int, sorting: Sorting) -> Iterator[pa.Table]:
        """Compute the query's result at `at_ms`."""
        return self.whole.rows(timelines, at_ms, sorting)

    def frame_at(self, timelines: TimelinesByName, at_ms: int) -> DataFrame:
        """Compute the query's result at `at_ms` on Spark."""
        return self.whole.result_at(timelines, at_ms)

    def jobs(self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int) -> Iterator[Job]:
        """Yield jobs that compute the terms of the diffs."""
        times = _Times(self.plan, timelines, after_exclusive_ms, until_exclusive_ms)
        for some in times.jobs():
            yield Job(times.before(some[0]), some[-1], partial(self._diffs, timelines, times, some))

    def _diffs(self, timelines: TimelinesByName, times: _Times, some: Sequence[int]) -> Iterator[pa.Table | LargeDiffs]:
        pieces = {
            name: Pieces(
                self.terms.schemas[name],
                tuple(
                    TableDiffs(timeline, self.terms.schemas[name], self.reading, exact=True).along(
                        steps(timeline, times.before(some[0]), some[-1] + 1)
                    )
                ),
            )
            for name, timeline in timelines.items()
        }
        reads = VersionReads(self.reading.spark, self.terms.schemas, timelines)
        terms = list(self._terms(reads, times, some, pieces))
        if terms:
            yield from here_or_large(reduce(DataFrame.unionAll, terms), self.result, self.reading.driver_rows, some)

    def _terms(
        self, reads: VersionReads, times: _Times, some: Sequence[int], pieces: dict[str, Pieces]
    ) -> Iterator[DataFrame]:
        of_term: dict[_Term, list[int]] = {}
        for at_ms in some:
            for term in times.terms(at_ms):
                of_term.setdefault(term, []).append(at_ms)
        for (changed, _, _), at in of_term.items():
            source = self.plan.sources[changed]
            found = pieces[source.full_name].at(at)
            if not found.found:
                continue
            others = times.others(changed, at[0])
            if source.is_optional:
                yield from self.terms.optional(reads, changed, found, (times.before(at[0]), at[0]), others)
            else:
                yield self.terms.linear(reads, changed, found, others)


class _Times:
    """The timestamps of an interval, and what the sources of a query show at each of them."""

    def __init__(
        self, plan: RowQuery, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int
    ) -> None:
        self._plan, self._timelines = plan, timelines
        self._changes = {
            name: {step.mz_timestamp for step in steps(timeline, after_exclusive_ms, until_exclusive_ms)}
            for name, timeline in timelines.items()
        }
        self._times = sorted(set().union(*self._changes.values()))
        self._before = dict(zip(self._times, [after_exclusive_ms, *self._times], strict=False))

    def before(self, at_ms: int) -> int:
        """Return the timestamp before `at_ms`."""
        return self._before[at_ms]

    def others(self, changed: int, at_ms: int) -> list[int]:
        """Return when each source is read while `changed` changes at `at_ms`: those before it after the change of `at_ms`."""
        return [at_ms if place < changed else self.before(at_ms) for place in range(len(self._plan.sources))]

    def terms(self, at_ms: int) -> Iterator[_Term]:
        """Yield the terms of a timestamp. A term whose other sources show the same at two timestamps is the same one."""
        for changed, source in enumerate(self._plan.sources):
            if at_ms in self._changes[source.full_name]:
                yield changed, self._snapshots(changed, at_ms), at_ms if source.is_optional else None

    def _snapshots(self, changed: int, at_ms: int) -> tuple[int | None, ...]:
        found = []
        for place, (source, when) in enumerate(zip(self._plan.sources, self.others(changed, at_ms), strict=True)):
            is_read = place != changed and not self._plan.are_added(place, changed)
            version = self._timelines[source.full_name].at(when) if is_read else None
            found.append(None if version is None else version.snapshot_id)
        return tuple(found)

    def jobs(self) -> Iterator[list[int]]:
        """Yield the timestamps of each job."""
        some: list[int] = []
        terms: set[_Term] = set()
        for at_ms in self._times:
            more = terms | set(self.terms(at_ms))
            if some and (len(some) == _TIMES_A_JOB or len(more) > _TERMS_A_JOB):
                yield some
                some, more = [], set(self.terms(at_ms))
            some, terms = [*some, at_ms], more
        if some:
            yield some
