"""The tables of docs/reference/types.md, made from the code's tables; `python -m tests.type_tables` writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby

from lakehold.ingest.decode.connect_schema import ConnectSchema
from lakehold.upstream.found.columns import FoundColumn, FoundType, TypeKind
from lakehold.upstream.types import mysql_types, postgres_types
from lakehold.upstream.types.sent_types import SentType
from tests.doc_pages import ROOT

_FIELD_ID = re.compile(r"\d+: ")
PAGE = ROOT / "docs" / "reference" / "types.md"

_POSTGRES_FORMS: Mapping[str, tuple[str, ...]] = {
    "int2": ("smallint",),
    "int4": ("integer",),
    "int8": ("bigint",),
    "float4": ("real",),
    "float8": ("double precision",),
    "bool": ("boolean",),
    "char": ('"char"',),
    "bpchar": ("char(5)",),
    "numeric": ("numeric(12,2)", "numeric(50,10)", "numeric", "numeric(5,-2)"),
    "bit": ("bit(1)", "bit(8)"),
    "varbit": ("bit varying(1)", "bit varying"),
    "time": ("time(3)", "time"),
    "timetz": ("time with time zone",),
    "timestamp": ("timestamp(3)", "timestamp"),
    "timestamptz": ("timestamp with time zone",),
}
"""Declared forms of the types that have another name in the catalogue, or several forms."""
_MYSQL_FORMS: Mapping[str, tuple[str, ...]] = {
    **{name: (name, f"{name} unsigned") for name in ("tinyint", "smallint", "mediumint", "int", "bigint")},
    "decimal": ("decimal(12,2)", "decimal(65,30)"),
    "float": ("float", "float(7,2)"),
    "bit": ("bit(1)", "bit(8)"),
    "datetime": ("datetime(3)", "datetime(6)"),
}
_ARRAYS = (
    (
        "arrays of enums, `ltree[]`, `tsvector[]`",
        FoundColumn("c", "mood[]", FoundType("mood", "mood", TypeKind.ENUM), is_array=True),
    ),
    (
        "other arrays: of domains, of composites, of types that Debezium does not know",
        FoundColumn("c", "pair[]", FoundType("pair", "pair", TypeKind.COMPOSITE), is_array=True),
    ),
    (
        "arrays declared with several dimensions, `int[][]`",
        FoundColumn("c", "int[]", FoundType("int4", "integer"), is_array=True, dimensions=2),
    ),
    ("generated columns", FoundColumn("c", "int", FoundType("int4", "integer"), is_generated=True)),
)


def postgres_table() -> str:
    """Build the table of PostgreSQL's types."""
    rows = [*_rows(postgres_types.TYPES, _POSTGRES_FORMS, postgres_types.sent)]
    enum = FoundColumn("c", "mood", FoundType("mood", "mood", TypeKind.ENUM))
    pair = FoundColumn("c", "pair", FoundType("pair", "pair", TypeKind.COMPOSITE))
    rows += [
        ("enums", *_cells(postgres_types.sent(enum))),
        (
            "all others: composites, multiranges, ranges of your own, `pg_lsn`, `xid8`, `tsquery`, `cube`, …",
            "bytes of a text",
            *_cells(postgres_types.sent(pair))[1:],
        ),
    ]
    return _table("PostgreSQL", rows)


def postgres_arrays_table() -> str:
    """Build the table of PostgreSQL's arrays."""
    names = (postgres_types.ARRAYS_WITH_NULLS, postgres_types.UNSENT_ARRAYS, postgres_types.LOST_ARRAYS)
    by_cells: dict[tuple[str, ...], list[str]] = {}
    for name in (name for of_kind in names for name in sorted(of_kind)):
        cells = _array_cells(FoundColumn("c", name, FoundType(name, name), is_array=True, dimensions=1))
        by_cells.setdefault(cells, []).append(f"`{_POSTGRES_FORMS.get(name, (name,))[0].partition('(')[0]}[]`")
    rows = [(", ".join(shown), *cells) for cells, shown in by_cells.items()]
    rows += [(shown, *_array_cells(column)) for shown, column in _ARRAYS]
    return _table("PostgreSQL", rows)


def mysql_table() -> str:
    """Build the table of the types of MySQL and MariaDB."""
    return _table("MySQL, MariaDB", _rows(mysql_types.TYPES, _MYSQL_FORMS, mysql_types.sent))


def _rows(
    types: Iterable[str], forms: Mapping[str, tuple[str, ...]], sent: Callable[[FoundColumn], SentType]
) -> Iterator[tuple[str, ...]]:
    declared = [
        (text, _cells(sent(FoundColumn("c", text, FoundType(name, text)))))
        for name in types
        for text in forms.get(name, (name,))
    ]
    for cells, alike in groupby(declared, key=lambda each: each[1]):
        yield (", ".join(f"`{text}`" for text, _ in alike), *cells)


def _cells(sent: SentType) -> tuple[str, str, str]:
    column = "the connector fails" if sent.stops else f"`{sent.column}`" if sent.column is not None else "left out"
    return _sent(sent.schema), _FIELD_ID.sub("", column), sent.lost_text


def _array_cells(column: FoundColumn) -> tuple[str, str, str]:
    sent = postgres_types.sent(column)
    into = ("", "left out") if sent.schema is None else ("array", "list of what the elements become")
    return *into, sent.lost_text


def _sent(schema: ConnectSchema | None) -> str:
    if schema is None:
        return ""
    if schema.items is not None:
        return f"array of `{schema.items.type}`"
    return f"`{schema.type}`" if schema.name is None else f"`{schema.name}`"


def _table(heading: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {heading} | sent as | Iceberg | what is lost |", "|---|---|---|---|"]
    return "\n".join(
        [*lines, *(f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |") for cells in rows)]
    )


TABLES: Mapping[str, Callable[[], str]] = {
    "types of PostgreSQL": postgres_table,
    "arrays of PostgreSQL": postgres_arrays_table,
    "types of MySQL and MariaDB": mysql_table,
}


def _place_in_page(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- {name} -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)


def written(name: str) -> str:
    """Return a table as the page has it."""
    found = _place_in_page(name).search(PAGE.read_text())
    assert found is not None, f"the page has no table of {name}"
    return found[0]


if __name__ == "__main__":
    text = PAGE.read_text()
    for name, table in TABLES.items():
        text = _place_in_page(name).sub(table().replace("\\", r"\\"), text)
    PAGE.write_text(text)
