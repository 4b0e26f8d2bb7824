"""Common arguments of all DAGs: limits, and retries, which are safe because every step can be repeated."""

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
    # The next try of a failed step does what is left: nothing is done twice.
    "default_args": {
        "retries": 3,
        "retry_delay": timedelta(seconds=10),
        "retry_exponential_backoff": 2.0,
        "max_retry_delay": timedelta(minutes=5),
        "execution_timeout": timedelta(hours=6),
    },
}
"""Arguments of `airflow.sdk.dag`."""
