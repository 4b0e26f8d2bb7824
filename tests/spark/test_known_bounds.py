"""A batch whose keys the table most likely has is merged without reading the bounds of the table's keys."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from lakehold.iceberg.column_bounds import ColumnBounds
from lakehold.iceberg.data_tables import DataTables, TableState
from tests.debezium_messages import Topic
from tests.debezium_shop import Shop, row
from tests.debezium_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.debezium_shop import topic as topic  # noqa: PLC0414

pytestmark = pytest.mark.spark


def test_changes_of_known_keys_read_no_bounds_and_new_keys_do(
    shop: Shop, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, column_bounds = list[str](), DataTables.column_bounds

    def counted(tables: DataTables, state: TableState, columns: Iterable[str]) -> dict[str, ColumnBounds | None]:
        read.append(state.full_name)
        return column_bounds(tables, state, columns)

    monkeypatch.setattr(DataTables, "column_bounds", counted)
    shop.table(topic, "DEBEZIUM UPSERT")
    topic.snapshot([row(1), row(9)])
    shop.ingest(topic)
    read.clear()
    for n, bounds_read in ((1, 1), (2, 1), (3, 1)):
        topic.update(row(1), row(1, n=n))
        shop.ingest(topic)
        assert len(read) == bounds_read
    topic.create(row(20))
    shop.ingest(topic)
    assert len(read) == 2
    for n in (5, 6):
        topic.update(row(20), row(20, n=n))
        shop.ingest(topic)
    assert len(read) == 3, "the bounds that were read last have no 20"
    assert shop.rows() == [(1, "a", 3), (20, "a", 6), (9, "a", 0)]
