"""What all DAGs have in common: retries that are safe because every step is, and limits."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import timezone

STANDARD: dict[str, Any] = {
    "start_date": datetime(2026, 1, 1, tzinfo=timezone.utc),
    "catchup": False,
    # A second run would find nothing to do, or wait for the first one's lease.
    "max_active_runs": 1,
    "tags": ["lakehold"],
    # A failed step did a part or nothing, and the next try does the rest: nothing is done twice.
    "default_args": {
        "retries": 3,
        "retry_delay": timedelta(seconds=10),
        "retry_exponential_backoff": 2.0,
        "max_retry_delay": timedelta(minutes=5),
        "execution_timeout": timedelta(hours=6),
    },
}
"""Arguments of `airflow.sdk.dag`."""
