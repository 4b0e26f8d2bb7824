"""A difference from the database comes with the reasons that lakehold knows of."""

from __future__ import annotations

from lakehold.definitions import ConnectionType, Envelope, Table
from lakehold.model.readers import TableProgress
from lakehold.verify.comparison import Difference, Side
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
