"""The pools of tasks that write."""

from __future__ import annotations

WRITERS = "lakehold_writers"
"""Pool of tasks that ingest sources: its slots say how many run side by side."""

BACKFILLS = "lakehold_backfills"
"""Pool of backfills, which may take hours: in the pool `WRITERS` they would keep all sources from being ingested."""
