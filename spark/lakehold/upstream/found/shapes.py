"""The shape of a table in PostgreSQL's catalogue, by which `silent_changes.py` finds changes of rows without events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Shape = Mapping[str, Any]
"""A table in PostgreSQL's catalogue, as JSON.

table: Object id of the table.
name: Its owner, and the transaction that named it last.
columns: For each number of a column: its name, the transaction that wrote its record last, whether the catalogue shows that
    rows older than the column may have a value there, and whether it certainly has the name with which it was added.
files: For each object id of the table, or of its partitions: its file, and the object id of the table for its long values.
partitions: For each object id of a partition: whether it was created as a partition of this table, without rows.
labels: The labels of the columns' enums, by object id.
records: For each kind of record, `columns`, `labels`, `partitions` and `schemas`, and each id: the transaction that wrote
    the record last, and a hash of the record.
gone: Only in a recorded shape: the numbers of columns that were dropped or renamed, by the name that no column has now.
filled: Only in a recorded shape: the numbers of columns of which the catalogue no longer shows that older rows may have a value.
"""
