"""Every metric that lakehold has, with its labels, and the metrics that expressions of Prometheus name."""

from __future__ import annotations

import re

import promql_parser
from prometheus_client.metrics import MetricWrapperBase

from lakehold.iceberg import metrics as of_iceberg
from lakehold.ingest import metrics as of_ingest
from lakehold.metrics.status_families import STATUS_FAMILIES
from lakehold.publish import metrics as of_publish
from lakehold.subscribe import metrics as of_subscribe


def families() -> dict[str, tuple[str, ...]]:
    """Return the labels of each metric by the name that the documentation has: counters end in `_total`."""
    found = {name: family.labels for name, family in STATUS_FAMILIES.items()}
    for module in (of_iceberg, of_ingest, of_publish, of_subscribe):
        for metric in vars(module).values():
            if isinstance(metric, MetricWrapperBase):
                suffix = "_total" if metric._type == "counter" else ""
                found[f"{metric._name}{suffix}"] = tuple(metric._labelnames)
    return found


def selectors(expression: str) -> list[tuple[str, frozenset[str]]]:
    """Return each metric that an expression reads, with the labels that it selects by.

    Raises:
        ValueError: The expression is not one of Prometheus.
    """
    found: list[tuple[str, frozenset[str]]] = []

    def visit(part: object) -> bool:
        if isinstance(part, promql_parser.VectorSelector):
            # A summary is two series.
            name = re.sub("_(sum|count)$", "", part.name or "")
            found.append((name, frozenset(matcher.name for matcher in part.matchers.matchers)))
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


def groupings(expression: str) -> frozenset[str]:
    """Return the labels by which an expression groups."""
    found: set[str] = set()

    def visit(part: object) -> bool:
        if isinstance(part, promql_parser.AggregateExpr) and part.modifier is not None:
            found.update(part.modifier.labels)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return frozenset(found)
