"""Reads that end by themselves: by rows and by time; a token continues them, and fits one statement with its columns."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lakehold.cli.app import app
from lakehold.errors import LakeholdError
from tests.conftest import LakeFactory
from tests.published_shop import COLUMNS, Shop

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = Shop(make_lake)
    made.lake.catalog.load_table("shop.t").append(pa.table({"id": [1, 2], "v": ["a", "b"]}, COLUMNS))
    return made


def test_reads_that_tokens_continue_give_each_timestamp_once(shop: Shop) -> None:
    lake, text = shop.lake, "SUBSCRIBE shop.t AS OF EARLIEST"
    for id_ in (3, 4, 5, 6):
        shop.lake.catalog.load_table("shop.t").append(pa.table({"id": [id_], "v": ["new"]}, COLUMNS))
    time_of = {row[2]: row[0] for row in lake.sql(text).rows}
    first = lake.read(text, max_rows=1)
    assert first.token is None
    (snapshot,) = [(batch.timestamp, [row[2] for row in batch.rows]) for batch in first]
    assert snapshot == (time_of[1], [1, 2])
    again, token = shop.again(), first.token
    second = again.read(text, resume=token, max_rows=2)
    assert [[row[2] for row in batch.rows] for batch in second] == [[3], [4]]
    interrupted = lake.read(text, resume=second.token)
    assert [row[2] for row in next(iter(interrupted)).rows] == [5]
    rest = lake.read(text, resume=interrupted.token)
    assert [[row[2] for row in batch.rows] for batch in rest] == [[6]]
    nothing = lake.read(text, resume=rest.token)
    assert list(nothing) == []
    assert nothing.token is not None


def test_a_read_waits_for_changes_until_its_timeout(shop: Shop) -> None:
    lake = shop.lake
    began = time.monotonic()
    quiet = lake.read("SUBSCRIBE shop.t WITH (SNAPSHOT = false)", timeout=0.7)
    assert list(quiet) == []
    assert time.monotonic() - began >= 0.7
    lively = lake.read("SUBSCRIBE shop.t", resume=None, timeout=60, max_rows=3)
    seen: list[list[int]] = []
    for batch in lively:
        if not seen:
            lake.catalog.load_table("shop.t").append(pa.table({"id": [3], "v": ["c"]}, COLUMNS))
        seen.append([row[2] for row in batch.rows])
    assert seen == [[1, 2], [3]]


def test_a_token_of_something_else_is_refused(shop: Shop) -> None:
    lake = shop.lake
    read = lake.read("SUBSCRIBE shop.t")
    assert len(list(read)) == 1
    assert read.token is not None
    for text, token, code in [
        ("SUBSCRIBE shop.t", "nonsense", "token-invalid"),
        ("SUBSCRIBE shop.t", read.token[:-9], "token-invalid"),
        ("SUBSCRIBE shop.t ENVELOPE UPSERT (KEY (id))", read.token, "token-statement"),
        ("SUBSCRIBE shop.t WITH (PROGRESS)", None, "read-progress"),
    ]:
        with pytest.raises(LakeholdError) as refused:
            lake.read(text, resume=token)
        assert refused.value.code == code
    with lake.catalog.load_table("shop.t").update_schema() as update:
        update.union_by_name(pa.schema([*COLUMNS, ("n", pa.int32())]))
    with pytest.raises(LakeholdError, match="columns of the output have changed") as changed:
        lake.read("SUBSCRIBE shop.t", resume=read.token)
    assert changed.value.code == "token-columns"
    assert "AS OF" in changed.value.hint


def test_the_command_continues_where_its_file_says(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOLD_WAREHOUSE", shop.lake.settings.warehouse)
    monkeypatch.setenv("LAKEHOLD_FOREIGN_LAG_MS", "0")
    monkeypatch.setenv("LAKEHOLD_CATALOG_NAME", shop.lake.settings.catalog_name)
    command = ["subscribe", "(SELECT id FROM shop.t) AS OF EARLIEST", "--format", "csv", "--quiet"]
    command += ["--resume-file", str(tmp_path / "token"), "--max-rows", "1"]
    for id_ in (3, 4):
        shop.lake.catalog.load_table("shop.t").append(pa.table({"id": [id_], "v": ["new"]}, COLUMNS))
    shown = [CliRunner().invoke(app, command) for _ in range(4)]
    assert [result.exit_code for result in shown] == [0] * 4, shown[0].output
    assert [result.stdout.splitlines()[0] for result in shown] == ["mz_timestamp,mz_diff,id"] * 4
    ids = [[line.rsplit(",", 1)[-1] for line in result.stdout.splitlines()[1:]] for result in shown]
    assert ids == [["1", "2"], ["3"], ["4"], []]
    missing = CliRunner().invoke(app, [*command, "--resume-file", str(tmp_path / "no" / "token")])
    assert missing.exit_code == 1
    assert "cannot keep a resume token" in missing.output
