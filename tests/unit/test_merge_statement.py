"""The MERGE's text for each kind of batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, StringType

from lakehold.ingest.write.merge import Merge, merge_statement
from lakehold.tables.bounds import Bounds

BASE = Merge(
    "`lake`.`s`.`t`",
    ("k",),
    null_safe=False,
    bounds={"k": Bounds(LongType(), 3, 9)},
    has_deletes=False,
    has_upserts=True,
    keeps_values=False,
    replaces_all=False,
)


def with_(**changes: object) -> str:
    return merge_statement(replace(BASE, **changes), ["k", "v"])  # type: ignore[arg-type]


def test_upserts_prune_by_key_range_and_have_no_delete_clause() -> None:
    assert with_() == (
        "MERGE INTO `lake`.`s`.`t` t USING lakehold_changes s ON t.`k` = s.`k` AND t.`k` BETWEEN 3 AND 9 "
        "WHEN MATCHED THEN UPDATE SET t.`v` = s.`v` WHEN NOT MATCHED THEN INSERT (`k`, `v`) VALUES (s.`k`, s.`v`)"
    )


@pytest.mark.parametrize(
    ("kind", "lowest", "highest", "around"),
    [
        (LongType(), 249, 10_005_999, "0 AND 10485759"),
        (LongType(), 1_003, 9_990_001, "0 AND 10485759"),
        (LongType(), 9_500_001, 9_999_999, "9437184 AND 10027007"),
        (LongType(), -5, 5, "-6 AND 5"),
        (LongType(), 7, 7, "7 AND 7"),
        (IntegerType(), -(2**31), 2**31 - 1, "-2147483648 AND 2147483647"),
        (LongType(), 1 - 2**63, 2**63 - 1, "-9223372036854775808 AND 9223372036854775807"),
        (StringType(), "ab", "b", "'ab' AND 'b'"),
        (DateType(), 0, 20485, "DATE'1970-01-01' AND DATE'2026-02-01'"),
        (DateType(), -735160, 6670000, "DATE'-0043-03-15' AND DATE'+20231-11-04'"),
        (DateType(), -(2**31), 2**31 - 1, "DATE'-5877641-06-23' AND DATE'+5881580-07-11'"),
    ],
)
def test_bounds_of_whole_numbers_are_round_so_that_batches_share_generated_code(
    kind: IcebergType, lowest: object, highest: object, around: str
) -> None:
    assert f"t.`k` BETWEEN {around} WHEN" in with_(bounds={"k": Bounds(kind, lowest, highest)})


def test_only_deletes_need_no_insert() -> None:
    text = with_(has_deletes=True, has_upserts=False)
    assert text.endswith("WHEN MATCHED AND s._lh_op = 'd' THEN DELETE")


def test_null_key_parts_are_compared_null_safe_and_not_pruned() -> None:
    text = with_(null_safe=True)
    assert "t.`k` <=> s.`k` WHEN" in text
    assert "BETWEEN" not in text


def test_truncate_deletes_all_rows_missing_from_the_batch_even_outside_its_key_range() -> None:
    text = with_(replaces_all=True)
    assert text.endswith("WHEN NOT MATCHED BY SOURCE THEN DELETE")
    assert "BETWEEN" not in text


def test_unavailable_values_keep_the_stored_value() -> None:
    assert "t.`v` = CASE WHEN array_contains(s._lh_kept, 'v') THEN t.`v` ELSE s.`v` END" in with_(keeps_values=True)


def test_a_table_of_key_columns_alone_is_updated() -> None:
    assert "UPDATE SET t.`k` = s.`k`" in merge_statement(BASE, ["k"])
