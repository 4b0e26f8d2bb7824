"""The placeholder of values that a message lacks: connectors are configured with it, and decoding recognises it."""

from __future__ import annotations

PLACEHOLDER = "__debezium_unavailable_value"
"""The text that Debezium sends for a value that the database's log lacks, such as an unchanged large one of PostgreSQL."""
