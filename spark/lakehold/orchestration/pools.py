"""The pool of those who write."""

from __future__ import annotations

WRITERS = "lakehold_writers"
"""Pool of tasks that write tables of sources. With one slot there are never two in one source; with more, sources run side by
side, and of two in one source the second waits for its next try."""
