"""lakehold as a provider of Airflow, which every process of Airflow imports: it imports nothing."""

from __future__ import annotations

from typing import Any

TOPIC = "lakehold-topic"
"""The scheme of URIs of Kafka's topics, as `lineage.py` reports them."""


def provider_info() -> dict[str, Any]:
    """Describe what lakehold adds to Airflow: it translates the URIs of its assets for OpenLineage."""
    return {
        "package-name": "lakehold",
        "name": "lakehold",
        "description": "Tables of lakehold in lineage.",
        "asset-uris": [
            {
                "schemes": ["lakehold", TOPIC],
                "handler": None,
                "to_openlineage_converter": "lakehold.orchestration.lineage.dataset_of",
            }
        ],
    }
