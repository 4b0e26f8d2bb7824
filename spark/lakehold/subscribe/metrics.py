"""Prometheus metrics of subscriptions: how many begin, and which diffs are read."""

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
"""Exported as `lakehold_subscribes_total`."""

DIFFS = Counter(
    "lakehold_subscribe_diffs",
    "Diffs between two snapshots of a table that subscriptions used, by how they were read.",
    labelnames=("read",),
)
"""Exported as `lakehold_subscribe_diffs_total`; `read` is `here`, `by_spark` or `shared`."""

_OUTPUTS: dict[type[OutputShape], str] = {
    Raw: "raw",
    OrderedWithin: "within_timestamp_order_by",
    UpsertEnvelope: "envelope_upsert",
    DebeziumEnvelope: "envelope_debezium",
}


def output_name(shape: OutputShape) -> str:
    """Return the name of an output option, as labels and the settings that disable it use it."""
    return _OUTPUTS[type(shape)]


def count(statement: Subscribe) -> None:
    """Count a subscription that begins."""
    SUBSCRIBES.labels(
        output=output_name(statement.shape),
        snapshot=str(statement.snapshot).lower(),
        progress=str(statement.progress).lower(),
    ).inc()
