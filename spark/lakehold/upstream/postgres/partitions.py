"""Fetches what PostgreSQL logs of a table's rows, and the partitions that store the rows of partitioned tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import psycopg

from lakehold.upstream.found.found import FULL, NOTHING, OTHER_COLUMNS, UNLOGGED, FoundLeaf
from lakehold.upstream.postgres.columns import key_index_sql

_WEAKEST_FIRST = (NOTHING, OTHER_COLUMNS, "i", "d", FULL)
_UNLOGGED = {"u": UNLOGGED, "f": "foreign table"}


def identity_sql(of: str) -> str:
    """Write the SQL of the replica identity of `pg_class` row `of`, as `FoundTable` has it.

    Without the index that it names, it is that of nothing.
    """
    index = f"SELECT FROM pg_index r WHERE r.indrelid = {of}.oid AND"
    return (
        f"CASE WHEN {of}.relreplident = 'd' AND NOT EXISTS ({index} r.indisprimary AND r.indimmediate)"
        f" OR {of}.relreplident = 'i' AND NOT EXISTS ({index} r.indisreplident) THEN '{NOTHING}'"
        f" WHEN {of}.relreplident = 'i' AND EXISTS ({index} r.indisreplident AND NOT"
        f" (SELECT columns FROM ({key_index_sql(of)}) k) <@ (r.indkey::int2[])[0 : r.indnkeyatts - 1]) THEN '{OTHER_COLUMNS}'"
        f" ELSE {of}.relreplident::text END"
    )


_LEAVES = f"""
    SELECT n.nspname || '.' || c.relname, ln.nspname || '.' || l.relname, {identity_sql("l")},
           CASE l.relkind WHEN 'f' THEN 'f' ELSE l.relpersistence::text END
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, LATERAL pg_partition_tree(c.oid) p
    JOIN pg_class l ON l.oid = p.relid AND l.relkind <> 'p' JOIN pg_namespace ln ON ln.oid = l.relnamespace
    WHERE c.relkind = 'p' AND n.nspname || '.' || c.relname = ANY(%s)
    ORDER BY 1, 2
"""


def leaves_of(connection: psycopg.Connection[tuple[Any, ...]], tables: Sequence[str]) -> dict[str, list[FoundLeaf]]:
    """Fetch the partitions that store the rows of partitioned tables, by `schema.name`; other tables have none."""
    found: dict[str, list[FoundLeaf]] = defaultdict(list)
    for name, leaf, identity, kind in connection.execute(_LEAVES, [list(tables)]):
        found[name].append(FoundLeaf(leaf, identity, _UNLOGGED.get(kind, "")))
    return found


def weakest_identity(of_table: str, leaves: Sequence[FoundLeaf]) -> str:
    """Return the replica identity by which some rows of a table are logged: partitions do not have their parent's."""
    logged = (leaf.replica_identity for leaf in leaves if not leaf.unlogged)
    return min(logged, key=_WEAKEST_FIRST.index, default=of_table)
