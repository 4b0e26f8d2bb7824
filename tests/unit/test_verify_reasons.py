"""A difference from the database comes with the reasons that lakehold knows of."""

from __future__ import annotations

from pyiceberg.types import IntegerType

from lakehold.definitions import ConnectionType, Envelope, Table
from lakehold.model.readers import TableProgress
from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.verify.compared_columns import ComparedColumn
from lakehold.verify.comparison import Difference, Side
from lakehold.verify.database_texts import text_of
from lakehold.verify.reasons import reasons


def _reasons(side: Side, **options: str) -> list[str]:
    table = Table("shop", "orders", "shop", "", Envelope.DEBEZIUM, options=options, upstream="public.orders")
    differences = [Difference(("1",), side)]
    return list(reasons(table, differences, [], ConnectionType.POSTGRES, TableProgress(), []))


def test_a_table_that_ignores_truncate_may_have_rows_that_the_database_lacks() -> None:
    (reason,) = _reasons(Side.ONLY_IN_LAKE, truncate="ignore")
    assert reason.startswith("shop.orders ignores TRUNCATE")
    assert reason.endswith("ALTER SOURCE shop RESNAPSHOT.")


def test_truncate_explains_neither_missing_rows_nor_those_of_a_table_that_applies_it() -> None:
    assert _reasons(Side.ONLY_IN_DATABASE, truncate="ignore") == []
    assert _reasons(Side.ONLY_IN_LAKE) == []


def test_a_column_that_the_lake_does_not_have_yet_has_a_way_to_get_there() -> None:
    column = FoundColumn("c", "integer", FoundType("int4", "integer"), has_default=True)
    text = text_of(column, ConnectionType.POSTGRES)
    assert text is not None
    missing = ComparedColumn("c", IntegerType(), text, column, is_missing=True)
    table = Table("shop", "orders", "shop", "", Envelope.DEBEZIUM, upstream="public.orders")
    for difference in (
        Difference(("1",), Side.VALUES_DIFFER, columns=("c",), nulls=("c",)),
        Difference(("1",), Side.SEVERAL_ROWS),
    ):
        (reason,) = reasons(table, [difference], [missing], ConnectionType.POSTGRES, TableProgress(), [])
        assert reason.startswith(
            "column c is in the database and not in the lake's table: it comes with the next change"
        )
    only = [Difference(("1",), Side.ONLY_IN_LAKE)]
    assert list(reasons(table, only, [missing], ConnectionType.POSTGRES, TableProgress(), [])) == []
