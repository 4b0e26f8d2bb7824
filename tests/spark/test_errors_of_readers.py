"""Programs that read changes get lakehold's errors, whenever Spark fails."""

from __future__ import annotations

import pytest

from lakehold.errors import LakeholdError
from tests.conftest import LakeFactory
from tests.published_shop import Shop

pytestmark = pytest.mark.spark


def test_a_durable_client_of_an_unknown_column_gets_the_error_of_follow(make_lake: LakeFactory) -> None:
    shop = Shop(make_lake)
    text = "SUBSCRIBE (SELECT nope FROM shop.t)"
    with pytest.raises(LakeholdError) as followed:
        next(shop.lake.follow(text))
    with pytest.raises(LakeholdError) as delivered:
        shop.lake.durable("app", text).run(lambda _: None, lambda _, __: None)
    assert delivered.value.message == followed.value.message
    assert "nope" in delivered.value.message
    assert delivered.value.code == followed.value.code


def test_a_python_function_that_fails_is_reported_with_its_own_error(make_lake: LakeFactory) -> None:
    def fail(value: int) -> int:
        raise KeyError(f"no rate for {value}. Add one")

    shop = Shop(make_lake)
    shop.write((1, "a"))
    shop.lake.spark.udf.register("rate_of", fail, "int")
    with pytest.raises(LakeholdError) as failed:
        shop.lake.sql("SELECT rate_of(7)")
    assert failed.value.message == "a Python function failed: KeyError: 'no rate for 7"
    assert failed.value.detail == "Add one'"


def test_changes_whose_files_spark_cannot_read_fail_with_an_error_of_lakehold(make_lake: LakeFactory) -> None:
    shop = Shop(make_lake, driver_diff_max_rows=0)
    shop.write((1, "a"), (2, "b"))
    since = shop.lake.timelines.of(["shop.t"])["shop.t"].since_ms
    shop.write((3, "c"))
    changes = shop.lake.changes("shop.t", since)
    path = shop.lake.settings.warehouse_path
    assert path is not None
    for file in path.rglob("shop/t/data/*.parquet"):
        file.write_bytes(b"damaged")
    with pytest.raises(LakeholdError, match=r"(?i)parquet") as failed:
        changes.read_all()
    assert failed.value.code != "error"
