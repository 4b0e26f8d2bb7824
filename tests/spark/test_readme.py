"""The README's example prints the output that the README shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lakehold
from lakehold.demo.recording import unpack
from lakehold.lake import Lake
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark

README = (Path(__file__).parents[2] / "README.md").read_text()
STATEMENTS = re.compile(r"^```sql\n(?P<text>CREATE HOLD.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^```python\n(?P<program>.*?)^```\n\n```text\n(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_example_prints_what_the_readme_shows(
    make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    example = EXAMPLE.search(README)
    assert example is not None

    def connect(warehouse: str) -> Lake:
        return make_lake(Path(warehouse))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lakehold, "connect", connect)
    unpack(tmp_path / "demo" / "recording")
    capsys.readouterr()
    exec(compile(example["program"], "README.md", "exec"), {})
    assert capsys.readouterr().out == example["output"]


def test_the_statements_of_the_readme_hold_publish_and_maintain(make_lake: LakeFactory, tmp_path: Path) -> None:
    statements = STATEMENTS.search(README)
    assert statements is not None
    unpack(tmp_path / "recording")
    lake = make_lake()
    lake.sql(
        f"CREATE SOURCE shop FROM FILES '{tmp_path / 'recording'}' FORMAT JSON;"
        "CREATE TABLE shop.orders FROM SOURCE shop (TOPIC 'shop.public.orders') ENVELOPE DEBEZIUM"
    )
    lake.ingest("shop")
    lake.sql(statements["text"])
    (report,) = lake.publish("changes")
    assert report.rows == len(lake.sql("SELECT * FROM shop.orders").rows) == 198
    assert lake.sql("SELECT DISTINCT mz_state FROM shop.order_changes").rows == [("insert",)]
    assert [maintained.error for maintained in lake.maintain()].count(None) >= 2
    assert "hold_week" in lake.catalog.load_table("shop.orders").refs()
