"""EXPLAIN of a SUBSCRIBE: describes from metadata alone how it would be read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from lakehold.subscribe.diffed_rows import DiffedRows
from lakehold.subscribe.grouped_rows import GroupedRows
from lakehold.subscribe.incremental_plan import ColumnName, RowQuery
from lakehold.subscribe.joined_rows import JoinedRows
from lakehold.subscribe.metrics import output_name
from lakehold.subscribe.query_relation import QueryRelation
from lakehold.subscribe.relation import Relation, TableRelation
from lakehold.subscribe.row_by_row_changes import RowByRow
from lakehold.subscribe.subscription_opening import Opened
from lakehold.subscribe.table_diffs import DiffReading, TableDiffs
from lakehold.subscribe.timeline_steps import steps
from lakehold.subscribe.touched_rows import TouchedRows
from lakehold.timeline.table_timeline import Timeline
from lakehold.times import iso

_TIMESTAMPS_SHOWN = 100


def explained(opened: Opened) -> Iterator[str]:
    """Yield the lines of the plan: the output's columns, its window, how its diffs are found, and each table's changes."""
    subscription, window = opened.subscription, opened.window
    relation, statement = subscription.relation, subscription.statement
    yield f"output {output_name(statement.shape).replace('_', ' ')}: {', '.join(opened.columns)}"
    yield (
        f"from {window.as_of_ms} ({iso(window.as_of_ms)} UTC) "
        f"to {window.until_ms} ({iso(window.until_ms)} UTC), exclusive"
    )
    reading = relation.reading if isinstance(relation, TableRelation | DiffedRows) else None
    yield described(relation)
    for name, timeline in opened.timelines.items():
        yield f"table {name}: readable on [{timeline.since_ms}, {timeline.upper_ms})"
        if statement.snapshot:
            version = timeline.at(window.as_of_ms)
            yield f"  snapshot {version.snapshot_id if version else 'none'}: {_rows(timeline, window.as_of_ms)} rows"
        yield from _changes(timeline, opened, reading)


def _rows(timeline: Timeline, at_ms: int) -> str:
    version = timeline.at(at_ms)
    snapshot = timeline.table.snapshot_by_id(version.snapshot_id) if version is not None else None
    if snapshot is None or snapshot.summary is None:
        return "0"
    properties = snapshot.summary.additional_properties
    total = int(properties.get("total-records") or 0) - int(properties.get("total-position-deletes") or 0)
    return f"about {total}"


def _changes(timeline: Timeline, opened: Opened, reading: DiffReading | None) -> Iterator[str]:
    window = opened.window
    found = list(steps(timeline, window.as_of_ms, window.until_ms))
    for step in itertools.islice(found, _TIMESTAMPS_SHOWN):
        description = (
            f"  {step.mz_timestamp} ({iso(step.mz_timestamp)} UTC): snapshot {step.before or 'none'} to {step.after}"
        )
        if reading is not None:
            description += f", {TableDiffs(timeline, timeline.table.schema(), reading).describe(step)}"
        yield description
    if len(found) > _TIMESTAMPS_SHOWN:
        yield f"  and {len(found) - _TIMESTAMPS_SHOWN} more timestamps"


def described(relation: Relation) -> str:
    """Describe how the changes of a relation are found: `incremental` or `whole`, and from what."""
    match relation:
        case TableRelation():
            return "diffs of the files that changed"
        case RowByRow():
            return "incremental: the query over the diffs of the files that changed"
        case JoinedRows(plan=plan):
            return f"incremental: the query over the diffs of one table and the rows of the others{_joined_by(plan)}"
        case TouchedRows(query=query, touched=touched):
            columns = ", ".join(column.name for column in touched)
            return f"incremental: the query at both ends, over rows whose {columns} changed{_joined_by(query)}"
        case GroupedRows():
            by = ", ".join(relation.plan.keys) or "no key"
            before = relation.rows_before
            joined = _joined_by(before.plan) if isinstance(before, JoinedRows) else ""
            return f"incremental: the groups that changed, by {by}{joined}"
        case QueryRelation(reason=reason):
            return f"whole: the query at both ends of each timestamp, subtracted, because {reason}"
        case _:
            raise TypeError(type(relation))


def _joined_by(plan: RowQuery) -> str:
    """Describe what the joins of a query compare."""
    compared = dict.fromkeys(
        " = ".join(_shown(column, plan) for column in (equality.left, equality.right)) for equality in plan.equalities
    )
    return f", joined by {', '.join(compared)}" if compared else ""


def _shown(column: ColumnName, plan: RowQuery) -> str:
    return column.name if column.source is None else f"{plan.sources[column.source].name}.{column.name}"
