"""Keys by which lakehold finds its own commits again, in summaries of Iceberg snapshots and in properties of tables.

They are the memory of the exactly-once protocol: never change one, or lakehold repeats what is already in the tables of a lake.
"""

from __future__ import annotations

OBJECT_ID = "lakehold.object-id"
"""A property of a table that a source feeds: the definition for which the Iceberg table was created."""

TIMESTAMP_PROPERTY = "lakehold.timestamp"
"""In a snapshot's summary: the `mz_timestamp` of the batch that made it."""

SOURCE_PROPERTY = "lakehold.source"
"""In a snapshot's summary: the source of the batch that made it, or the object id of the view that it belongs to."""

OFFSETS_PROPERTY = "lakehold.offsets"
"""In a snapshot's summary: the end offset (exclusive) of each partition that its batch read, as JSON."""

STEP_PROPERTY = "lakehold.step"
"""In a snapshot's summary: the number of the batch's commit to the table."""

HIGH_WATER_MARKS_PROPERTY = "lakehold.marks"
"""In a snapshot's summary: the table's high-water marks after the batch, as JSON."""

SUBSCRIPTION_PROPERTY = "lakehold.subscription"
"""In snapshot summaries and properties of output tables: the object id of the subscription that publishes to the table."""

POSITION_PROPERTY = "lakehold.position"
"""In snapshot summaries and properties of output tables and views: all below it (exclusive, epoch milliseconds) is published."""

SINCE_PROPERTY = "lakehold.since"
"""A property of a view's table: the first time at which the table shows the query's result, epoch milliseconds."""

EPOCH_PROPERTY = "lakehold.epoch"
"""Counts how often publishers took over the subscription or view: a publisher of an earlier epoch cannot commit."""

PUBLISHER_PROPERTY = "lakehold.publisher"
"""In snapshot summaries: the process that made the snapshot."""

RESTARTED_PROPERTY = "lakehold.restarted-at"
"""In table properties, and in snapshot summaries of appended outputs: the time of the last snapshot taken after a lapse."""
