"""Prometheus metrics of the requests that this process makes of the catalog and of the object store, without Spark's own."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter

CATALOG_REQUESTS = Counter(
    "lakehold_catalog_requests",
    "Requests to the catalog: statements in its database, or requests to its REST endpoint.",
    labelnames=("request",),
)
"""Exported as `lakehold_catalog_requests_total`; `request` is the first word of a statement, or the method of HTTP."""

STORE_REQUESTS = Counter(
    "lakehold_store_requests",
    "Files of an object store that PyIceberg opened, wrote, looked up or deleted.",
    labelnames=("request",),
)
"""Exported as `lakehold_store_requests_total`; `request` is `read`, `write`, `exists` or `delete`."""

_VERBS = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})


def count_statement(_connection: Any, _cursor: Any, statement: str, *_arguments: Any) -> None:
    """Count a statement, as SQLAlchemy calls it before it runs one."""
    verb = statement.lstrip()[:6].upper()
    CATALOG_REQUESTS.labels(verb if verb in _VERBS else "OTHER").inc()


def count_response(response: Any, *_arguments: Any, **_options: Any) -> None:
    """Count a request that was answered, as `requests` calls it."""
    CATALOG_REQUESTS.labels(response.request.method).inc()
