"""The shop's rows as exact text, from PostgreSQL and from a lake, and their differences: the demo compares them at its end.

Each column has one text in both: PostgreSQL's cast to text, times in UTC, arrays as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import LiteralString

Row = tuple[str | None, ...]


@dataclass(frozen=True)
class ShopTable:
    """A table of the shop.

    Attributes:
        name: Name in PostgreSQL and, within the namespace `shop`, in the lake.
        key: Columns of the primary key.
        columns: All columns that the table has at the end; those of the key come first.
        arrays: Columns that are arrays.
        zoned: Columns that are timestamps with a time zone.
    """

    name: LiteralString
    key: tuple[LiteralString, ...]
    columns: tuple[LiteralString, ...]
    arrays: tuple[LiteralString, ...] = ()
    zoned: tuple[LiteralString, ...] = ()

    def in_postgres(self) -> LiteralString:
        """Build the query for all rows in PostgreSQL, in the order of the key."""
        columns = [
            f"array_to_json({column})::text"
            if column in self.arrays
            else f"({column} AT TIME ZONE 'UTC')::text"
            if column in self.zoned
            else f"{column}::text"
            for column in self.columns
        ]
        return f"SELECT {', '.join(columns)} FROM {self.name} ORDER BY {', '.join(self.key)}"

    def in_lake(self) -> LiteralString:
        """Build the query for all rows in a lake, in the order of the key."""
        columns = [
            f"to_json({column})" if column in self.arrays else f"CAST({column} AS STRING)" for column in self.columns
        ]
        return f"SELECT {', '.join(columns)} FROM shop.{self.name} ORDER BY {', '.join(self.key)}"


CUSTOMERS = ShopTable(
    "customers",
    ("id",),
    (
        *("id", "account", "name", "email", "born", "newsletter", "tags", "preferences", "balance", "registered_at"),
        "phone",
    ),
    arrays=("tags",),
    zoned=("registered_at",),
)
ORDERS = ShopTable(
    "orders",
    ("id",),
    ("id", "customer_id", "status", "total", "note", "deliver_on", "letter", "placed_at", "changed_at"),
    zoned=("changed_at",),
)
ORDER_ITEMS = ShopTable("order_items", ("order_id", "line"), ("order_id", "line", "sku", "quantity", "price", "gift"))

SHOP_TABLES = (CUSTOMERS, ORDERS, ORDER_ITEMS)


def differences(table: ShopTable, expected: list[Row], found: list[Row]) -> list[str]:
    """List a line for each row that only one of the two has, or that differs."""
    wanted, present = _by_key(table, expected), _by_key(table, found)
    lines = []
    for key in sorted(wanted.keys() | present.keys(), key=str):
        if key not in present:
            lines.append(f"{table.name} {_named(table.key, key)}: not in the lake")
        elif key not in wanted:
            lines.append(f"{table.name} {_named(table.key, key)}: in the lake only")
        elif wanted[key] != present[key]:
            pairs = zip(table.columns, wanted[key], present[key], strict=True)
            unequal = ", ".join(f"{column} is {have!r}, not {want!r}" for column, want, have in pairs if want != have)
            lines.append(f"{table.name} {_named(table.key, key)}: {unequal}")
    if not lines and len(expected) != len(found):
        lines.append(f"{table.name}: {len(found)} rows, not {len(expected)}")
    return lines


def _by_key(table: ShopTable, rows: list[Row]) -> Mapping[Row, Row]:
    return {row[: len(table.key)]: row for row in rows}


def _named(columns: tuple[str, ...], key: Row) -> str:
    return ", ".join(f"{column} {value}" for column, value in zip(columns, key, strict=True))
