"""Metrics of ingesting, for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter

DECODES = Counter(
    "lakehold_ingest_decodes",
    "Topics that batches brought to tables, by whether they were decoded for the table or shared with another one.",
    labelnames=("source", "by"),
)
"""Exported as `lakehold_ingest_decodes_total`; `by` is `own` or `shared`."""
