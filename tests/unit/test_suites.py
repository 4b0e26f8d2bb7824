"""Suites of tables: generated from a schema, read from a file, and files with faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lakehold.errors import DefinitionError
from lakehold.quality.generate import TableDescription, generated_suite
from lakehold.quality.suites import read_suite, suite_text, write_suite
from lakehold.quality.verdict import Outcome, Verdict
from lakehold.quality.verdict_page import page_text, page_uri

ORDERS = TableDescription(
    "shop.orders",
    {
        "id": "bigint",
        "part": "int",
        "status": "string",
        "total": "decimal(12,2)",
        "placed_at": "timestamp_ntz",
        "changed_at": "timestamp",
        "expires_at": "timestamp",
    },
    key=("id", "part"),
    docs={"status": "One of placed, paid or 'sent out'; null when not known.", "total": "One of many."},
)

GENERATED = """\
expect_columns_to_have_types types
expect_key_to_be_unique key=["id", "part"]
expect_column_values_to_not_be_null column="id"
expect_column_values_to_not_be_null column="part"
expect_column_values_to_be_in_set column="status" value_set=["placed", "paid", "sent out"]
expect_column_values_to_be_between column="changed_at" max_value={"$PARAMETER": "future"} strict_max=true
"""


def shown(table: TableDescription) -> str:
    lines = []
    for expectation in generated_suite(table).expectations:
        assert expectation.type != "expect_columns_to_have_types" or expectation.kwargs == {"types": table.types}
        arguments = ["types"] if "types" in expectation.kwargs else []
        arguments += [f"{name}={json.dumps(v)}" for name, v in expectation.kwargs.items() if name != "types"]
        lines.append(" ".join((expectation.type, *arguments)) + "\n")
    return "".join(lines)


def test_a_suite_follows_schema_key_and_descriptions() -> None:
    assert shown(ORDERS) == GENERATED


def test_without_a_key_a_suite_expects_none() -> None:
    assert shown(replace(ORDERS, key=(), docs={}, types={"id": "bigint"})) == "expect_columns_to_have_types types\n"


def test_the_timestamps_of_outputs_do_not_lie_in_the_future() -> None:
    assert 'column="mz_timestamp" max_value={"$PARAMETER": "future_ms"}' in shown(
        TableDescription("s.out", {"mz_timestamp": "bigint"})
    )


@pytest.mark.parametrize(
    ("doc", "values"),
    [
        ("One of a, b or c.", ["a", "b", "c"]),
        ("one of: new, in-use", ["new", "in-use"]),
        ("One of 'a b', \"c\", or d; more is said here, or there.", ["a b", "c", "d"]),
        ("One of the shop's customers.", None),
        ("Street, city or country.", None),
        ("", None),
    ],
)
def test_values_are_taken_from_a_list_of_words_only(doc: str, values: list[str] | None) -> None:
    (_, *rest) = generated_suite(TableDescription("s.t", {"c": "string"}, docs={"c": doc})).expectations
    assert [expectation.kwargs["value_set"] for expectation in rest] == ([] if values is None else [values])


def test_a_written_suite_is_read_unchanged(tmp_path: Path) -> None:
    suite = generated_suite(ORDERS)
    path = write_suite(tmp_path / "expectations", suite)
    assert path.read_text() == suite_text(suite)
    assert read_suite(path.parent, "shop.orders") == replace(suite, origin=str(path))


def test_an_existing_suite_is_not_overwritten(tmp_path: Path) -> None:
    write_suite(tmp_path, generated_suite(ORDERS))
    with pytest.raises(DefinitionError, match="already exists") as refused:
        write_suite(tmp_path, generated_suite(replace(ORDERS, key=())))
    assert refused.value.code == "suite-exists"


def test_a_missing_file_or_directory_is_no_suite(tmp_path: Path) -> None:
    assert read_suite(None, "s.t") is None
    assert read_suite(tmp_path, "s.t") is None


def test_the_suites_of_the_example_are_valid() -> None:
    examples = Path(__file__).parents[2] / "expectations" / "example"
    names = [path.stem for path in examples.glob("*.json")]
    assert "shop.orders" in names
    assert all(read_suite(examples, name) for name in names)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"name": "s.t",\n "expectations": [}', "Line 2, column 19 is not JSON: Expecting value."),
        ('{"name": "s.t"}', 'At "expectations": Field required.'),
        ('{"name": "s.t", "expectations": []}', 'At "expectations": Tuple should have at least 1 item'),
        ('{"name": "s.t", "expectations": [{"kwargs": {}}]}', 'At "expectations[0].type": Field required.'),
        ('{"name": "s.u", "expectations": [{"type": "x"}]}', 'Its name is "s.u", expected is the table\'s: "s.t".'),
        ("[]", "Input should be an object"),
        pytest.param("[" * 100_000, "maximum recursion depth exceeded", id="deep"),
    ],
)
def test_a_fault_of_a_file_is_reported_with_its_position(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "s.t.json").write_text(text)
    with pytest.raises(DefinitionError) as refused:
        read_suite(tmp_path, "s.t")
    assert refused.value.code == "suite-invalid"
    assert str(tmp_path / "s.t.json") in refused.value.detail
    assert reason in refused.value.detail


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = write_suite(tmp_path, generated_suite(ORDERS))
    suite = read_suite(tmp_path, "shop.orders")
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert read_suite(tmp_path, "shop.orders") == suite


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.t.json").write_bytes(b'{"name": "\xe9')
    with pytest.raises(DefinitionError, match=r"It is not UTF-8\. Byte 10, counted from 0, is 0xE9: "):
        read_suite(tmp_path, "s.t")


VERDICT = Verdict(
    "shop.orders",
    7,
    1_700_000_000_000,
    "generated",
    (
        Outcome("expect_key_to_be_unique", "id", True, "unique", "0 rows"),
        Outcome("expect_column_values_to_be_in_set", "status", False, "one of a", "1 of 2 rows", ("<script>",)),
    ),
    "",
    1_700_000_000_001,
)


def test_a_page_shows_failures_first_and_loads_nothing() -> None:
    page = page_text(VERDICT)
    assert "failed: 1 of 2 expectations are not met" in page
    assert page.index("expect_column_values_to_be_in_set") < page.index("expect_key_to_be_unique")
    assert "&lt;script&gt;" in page
    assert not any(outside in page for outside in ("<script", "<link", "http://", "https://", "@import"))


def test_a_page_is_stored_under_its_table_and_snapshot_where_no_other_lake_has_one() -> None:
    assert page_uri("s3://lake/_checks/", VERDICT, "a-b") == "s3://lake/_checks/shop.orders/7.html"
    empty = replace(VERDICT, snapshot_id=None)
    assert page_uri("s3://lake/_checks", empty, "a-b") == "s3://lake/_checks/shop.orders/no-rows-a-b.html"


def test_nothing_but_a_check_imports_great_expectations(tmp_path: Path) -> None:
    script = """
import sys, lakehold, lakehold.lake, lakehold.cli.app, lakehold.cli.check, lakehold.ingest.source_ingest
with lakehold.lake.connect("lake") as lake:
    lake.sql("SHOW TABLES")
from typer.testing import CliRunner
assert CliRunner().invoke(lakehold.cli.app.app, ["--help"]).exit_code == 0
print([name for name in ("great_expectations", "pandas", "airflow") if name in sys.modules])
"""
    environment = {**os.environ, "LAKEHOLD_WAREHOUSE": str(tmp_path / "lake")}
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "great_expectations" not in ran.stdout
