"""Names of the files of tables: a table has its own file, in the directory, whatever its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehold.file_names import file_name_of
from lakehold.quality.suites import Expectation, Suite, read_suite, write_suite
from lakehold.quality.verdict import Verdict
from lakehold.quality.verdict_page import page_uri
from lakehold.sql.contracts import column_docs

LONG = "s" * 200 + "." + "t" * 200
ODD = [
    *[
        LONG,
        LONG + "u",
        "shop." + "é" * 127,
        "shop.a/../../../b",
        "shop.a\\b",
        "shop.a?b",
        "shop.a?c",
        "shop.a#b",
        "shop.a_b",
        "shop.a\0b",
    ],
]


@pytest.mark.parametrize("name", ["shop.orders", "shop.größe x", "%2e%2e.%2f", "..x", "shop.a\nb", "a." + "b" * 238])
def test_a_name_that_a_file_can_have_stays(name: str) -> None:
    assert file_name_of(name) == name


def test_other_names_get_one_of_their_own() -> None:
    names = [file_name_of(name) for name in ODD]
    assert len({*names}) == len(ODD)
    assert all(len(f"{name}.json".encode()) <= 255 and not {*"/\\?#\0"} & {*name} for name in names)


@pytest.mark.parametrize("full_name", ODD)
def test_suites_contracts_and_pages_stay_in_their_directory(tmp_path: Path, full_name: str) -> None:
    directory = tmp_path / "of" / "tables"
    assert read_suite(directory, full_name) is None
    assert column_docs(full_name, directory) == {}
    path = write_suite(directory, Suite(full_name, (Expectation("expect_column_to_exist"),)))
    assert path.parent == directory
    found = read_suite(directory, full_name)
    assert found is not None
    assert found.table == full_name
    page = page_uri(f"file://{directory}", Verdict(full_name, 1, 2, "generated", (), "", 3), "a-b")
    assert Path(page.removeprefix("file://")).parent.parent == directory
