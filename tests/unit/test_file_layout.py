"""The layout of a new table as SQL: partitions and order, and what a table cannot have."""

from __future__ import annotations

import pytest
from pyiceberg.types import DateType, IcebergType, ListType, LongType, StringType, TimestamptzType

from lakehold.table_layout import Layout, PartitionField, SortField, layout_of
from lakehold.tables.column_types import ColumnType
from lakehold.tables.file_layout import LayoutUnfit, file_layout

TAGS = ListType(9, StringType())


def columns(**types: IcebergType) -> list[ColumnType]:
    return [ColumnType(name, of) for name, of in types.items()]


COLUMNS = columns(id=LongType(), Day=DateType(), region=StringType(), tags=TAGS)


def partitioned(*fields: PartitionField) -> Layout:
    return Layout(4, fields)


def test_without_options_a_table_has_buckets_and_the_order_of_its_key() -> None:
    found = file_layout(layout_of({"buckets": 8}, 4), ["id", "region"], COLUMNS)
    assert found.clause == " PARTITIONED BY (bucket(8, `id`))"
    assert found.properties == {"format-version": "3"}
    assert [text.split("BY")[-1] for text in found.statements("t")] == [" `id`, `region`"]


def test_names_of_columns_are_found_in_any_case() -> None:
    layout = Layout(4, (PartitionField("month", "day"),), (SortField("REGION", descending=True, nulls_first=False),), 2)
    found = file_layout(layout, ["id"], COLUMNS)
    assert found.clause == " PARTITIONED BY (month(`Day`))"
    assert found.statements("t")[-1].endswith(" `region` DESC")
    assert found.properties["format-version"] == "2"


def test_a_partition_whose_name_is_a_columns_gets_another_one() -> None:
    named = columns(id=LongType(), at=TimestamptzType(), at_day=StringType(), at_day_2=StringType())
    found = file_layout(partitioned(PartitionField("identity", "id"), PartitionField("day", "at")), [], named)
    assert found.clause == ""
    first, second = found.statements("t")
    assert first.endswith("ADD PARTITION FIELD `id`")
    assert second.endswith("ADD PARTITION FIELD day(`at`) AS `at_day_3`")
    assert found.statements("t", 1) == (second,)


def test_a_column_with_an_initial_value_partitions_after_it_was_added() -> None:
    added = [*COLUMNS, ColumnType("kind", StringType(), initial="a")]
    found = file_layout(partitioned(PartitionField("identity", "kind")), ["id"], added)
    assert found.clause == ""
    assert found.statements("t")[0].endswith("ADD PARTITION FIELD `kind`")


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (partitioned(PartitionField("day", "region")), "cannot be partitioned by day(region)"),
        (partitioned(PartitionField("hour", "Day")), "cannot be partitioned by hour(Day)"),
        (partitioned(PartitionField("truncate", "Day", 2)), "cannot be partitioned by truncate(2, Day)"),
        (partitioned(PartitionField("identity", "tags")), "cannot be partitioned by tags"),
        (partitioned(PartitionField("identity", "area")), 'has no column "area", by which it is to be partitioned'),
        (Layout(4, (), (SortField("tags"),)), "cannot be sorted by tags"),
        (Layout(4, (), (SortField("area"),)), 'has no column "area", by which it is to be sorted'),
    ],
)
def test_a_layout_that_the_columns_do_not_fit_is_refused(layout: Layout, message: str) -> None:
    with pytest.raises(LayoutUnfit) as refused:
        file_layout(layout, ["id"], COLUMNS)
    assert str(refused.value) == message
    assert refused.value.detail
