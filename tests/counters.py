"""What Prometheus counters say."""

from __future__ import annotations

from prometheus_client import REGISTRY


def decodes(*sources: str) -> tuple[float, float]:
    """How many topics batches of `sources` decoded so far, and how often one was shared."""
    own, shared = (
        sum(
            REGISTRY.get_sample_value("lakehold_ingest_decodes_total", {"source": source, "by": by}) or 0.0
            for source in sources
        )
        for by in ("own", "shared")
    )
    return own, shared
