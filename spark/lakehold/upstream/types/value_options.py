"""Options of Debezium's connectors that decide how values are sent; docs/reference/types.md explains each. Pure.

Options at Debezium's default are written as well, because a later default could change tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from lakehold.ingest.decode.placeholder import PLACEHOLDER
from lakehold.upstream.types.postgres_types import TYPES

TYPED: Final = "datatype.propagate.source.type"
UNSIGNED: Final = "bigint.unsigned.handling.mode"
INTERVALS: Final = "interval.handling.mode"
KEPT: Final = frozenset({UNSIGNED, INTERVALS})
"""Options that an existing connector keeps: others would give its columns types that tables cannot follow."""
EXCLUDED: Final = "column.exclude.list"
NO_COLUMN: Final = "lakehold.no.column"
"""Names no column of a captured table.

With a list of columns, Debezium snapshots one table by the names of its columns; without one by `SELECT *`, which returns no
invisible columns (DBZ-8430).
"""
_NOT_OF_A_WORD = re.compile(r"[^\w]")


def typed_unless(names: Iterable[str] = ()) -> dict[str, str]:
    """Make PostgreSQL's columns carry the name of their type, unless Debezium knows the type or `names` has its name.

    Values of a type that Debezium does not know arrive as bytes. Only the type's name distinguishes them from binary values.
    """
    known = "|".join(re.escape(name) for name in sorted({*TYPES, *names}))
    return {TYPED: rf'.*\.(?!"?_?(?:{known})"?$)[^.]*'}


def without_columns(columns: Iterable[str]) -> dict[str, str]:
    """Leave some columns out, `schema.table.column`."""
    listed = [f"(?-i:{_NOT_OF_A_WORD.sub(_escaped, column)})" for column in sorted(columns)]
    return {EXCLUDED: ",".join(listed)} if listed else {}


def _escaped(character: re.Match[str]) -> str:
    return f"\\{character[0]}"


COMMON: Final = {
    "decimal.handling.mode": "precise",
    "binary.handling.mode": "bytes",
    "schema.name.adjustment.mode": "avro",
    "unavailable.value.placeholder": PLACEHOLDER,
    "event.processing.failure.handling.mode": "fail",
    "event.converting.failure.handling.mode": "warn",
}
POSTGRES: Final = {
    "time.precision.mode": "adaptive",
    INTERVALS: "string",
    "hstore.handling.mode": "json",
    "money.fraction.digits": "2",
    "include.unknown.datatypes": "true",
    **typed_unless(),
}
MYSQL: Final = {
    "time.precision.mode": "adaptive_time_microseconds",
    UNSIGNED: "precise",
    "enable.time.adjuster": "false",
    "driver.yearIsDateType": "false",
    "inconsistent.schema.handling.mode": "fail",
    "event.deserialization.failure.handling.mode": "fail",
}
