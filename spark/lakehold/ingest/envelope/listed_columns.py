"""Finds the columns that a column list or a contract declares among those of messages, and converts their values."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql.types import DataType

from lakehold.definitions import Table
from lakehold.errors import TableStopped
from lakehold.kafka.faults import STAYS_IN_TOPIC
from lakehold.tables.column_types import ColumnType, spark_text
from lakehold.tables.spark_types import from_spark
from lakehold.tables.unify import TypeConflict, cast, same, unify


def listed_columns(
    table: Table, key: Collection[str], found: Mapping[str, tuple[str, ColumnType]]
) -> tuple[dict[str, tuple[str, ColumnType]], list[str]]:
    """Return the columns of a table with a column list: those of the key and the declared ones.

    Other columns of messages are skipped, and declared ones that messages lack are null, as are such fields of structures, which
    go by name. Returns the columns with their values in SQL, and their names in order.

    Raises:
        TableStopped: The messages have a column in a type that the declared one does not hold.
    """
    columns: dict[str, tuple[str, ColumnType]] = {}
    for declared in table.columns:
        wanted = from_spark(DataType.fromDDL(declared.type))
        absent = (f"CAST(NULL AS {spark_text(wanted)})", ColumnType(declared.name, wanted))
        value, incoming = found.get(declared.name, absent)
        try:
            fits = same(unify(wanted, incoming.type, declared.name), wanted)
        except TypeConflict:
            fits = False
        if not fits:
            raise TableStopped(
                f'column "{declared.name}" of table "{table.full_name}" is declared as {declared.type}, '
                f"the messages have {incoming.spark_type}",
                table=table.full_name,
                code="contract-broken",
                detail="Some values of the messages' type do not fit the declared type.",
                hint=f"Drop the table and create it with the messages' type, or change the column upstream. {STAYS_IN_TOPIC}",
            )
        columns[declared.name] = (cast(value, incoming.type, wanted), ColumnType(declared.name, wanted))
    missing = {name: found[name] for name in key if name not in columns and name in found}
    return {**missing, **columns}, [*missing, *columns]
