"""Prometheus metrics of SUBSCRIBE: how many statements begin, and how the diffs that they need are read."""

from __future__ import annotations

from prometheus_client import Counter

from lakehold.subscribe.statement import (
    DebeziumEnvelope,
    OrderedWithin,
    OutputShape,
    Raw,
    Subscribe,
    UpsertEnvelope,
)

SUBSCRIBES = Counter(
    "lakehold_subscribes",
    "SUBSCRIBE statements begun, by output option.",
    labelnames=("output", "snapshot", "progress"),
)
"""Exported as `lakehold_subscribes_total`.

`output` is a name of `_OUTPUTS`: `raw` stands for a statement without `WITHIN TIMESTAMP ORDER BY` and without an envelope, whose
rows are the diffs as they are. `snapshot` and `progress` are the options of these names, `true` or `false`.
"""

DIFFS = Counter(
    "lakehold_subscribe_diffs",
    "Diffs between two snapshots of a table that subscriptions used, by how they were read.",
    labelnames=("read",),
)
"""Exported as `lakehold_subscribe_diffs_total`.

`read` is `here` (by Arrow, in this process), `by_spark` (more rows than this process reads itself, or files that only Spark can
read) or `shared` (cached after another subscription read the diff).
"""

_OUTPUTS: dict[type[OutputShape], str] = {
    Raw: "raw",
    OrderedWithin: "within_timestamp_order_by",
    UpsertEnvelope: "envelope_upsert",
    DebeziumEnvelope: "envelope_debezium",
}


def output_name(shape: OutputShape) -> str:
    """Return the name of an output option, as the label `output` and the settings `enable_<name>_in_subscribe` use it."""
    return _OUTPUTS[type(shape)]


def count(statement: Subscribe) -> None:
    """Count a subscription that begins."""
    SUBSCRIBES.labels(
        output=output_name(statement.shape),
        snapshot=str(statement.snapshot).lower(),
        progress=str(statement.progress).lower(),
    ).inc()
