"""Values of Prometheus counters."""

from __future__ import annotations

from prometheus_client import REGISTRY


def decodes(*sources: str) -> tuple[float, float]:
    """Return how many topics the batches of `sources` decoded so far, and how many decoded topics they shared."""
    own, shared = (
        sum(
            REGISTRY.get_sample_value("lakehold_ingest_decodes_total", {"source": source, "by": by}) or 0.0
            for source in sources
        )
        for by in ("own", "shared")
    )
    return own, shared
