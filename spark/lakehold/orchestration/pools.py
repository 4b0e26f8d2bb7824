"""The pool of tasks that write."""

from __future__ import annotations

WRITERS = "lakehold_writers"
"""Pool of tasks that write tables of sources. With one slot, two never write the same source. With more slots, sources run in
parallel, and the second task of a source waits for its next try."""
