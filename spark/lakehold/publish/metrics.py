"""Prometheus metrics of publishing subscriptions and refreshing materialized views."""

from __future__ import annotations

from prometheus_client import Counter

COMMITS = Counter(
    "lakehold_publish_commits", "Commits to output tables and materialized views.", labelnames=("subscription",)
)
"""Exported as `lakehold_publish_commits_total`; `subscription` may be the full name of a view."""

ROWS = Counter(
    "lakehold_publish_rows",
    "Rows in commits to output tables and materialized views.",
    labelnames=("subscription",),
)
"""Exported as `lakehold_publish_rows_total`."""

FAILURES = Counter(
    "lakehold_publish_failures",
    "Attempts to publish a subscription or refresh a view that ended with an error.",
    labelnames=("subscription", "code"),
)
"""Exported as `lakehold_publish_failures_total`; `code` is the code of the error."""
