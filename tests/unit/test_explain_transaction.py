"""EXPLAIN BEGIN: the effects of a transaction are described, and nothing is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehold.errors import DefinitionError, StatementError
from lakehold.lake import Lake, connect

SOURCE = "CREATE SOURCE {0} FROM FILES '/x' FORMAT JSON;"
TABLE = "CREATE TABLE s.{0} FROM SOURCE {1} (TOPIC 't') ENVELOPE DEBEZIUM;"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """Return a lake with a source `first` and its table `s.a`."""
    with connect(str(tmp_path)) as lake:
        lake.sql(SOURCE.format("first") + TABLE.format("a", "first"))
        yield lake


def explained(lake: Lake, *statements: str) -> list[str]:
    return [line for (line,) in lake.sql(f"EXPLAIN BEGIN; {''.join(statements)} COMMIT").rows]


def test_each_statement_sees_the_effects_of_earlier_ones_and_nothing_is_done(lake: Lake) -> None:
    before = lake.definitions.definitions()
    held = "CREATE HOLD since_ever ON s.b;"
    assert explained(lake, TABLE.format("b", "first"), held, TABLE.format("c", "first")) == [
        "declare table s.b",
        "create hold s.since_ever on s.b",
        "declare table s.c",
        "batches of source first read and decode topic t once for s.a, s.b, s.c",
    ]
    with pytest.raises(DefinitionError, match='source "first" already exists'):
        explained(lake, SOURCE.format("first"))
    assert lake.definitions.definitions() == before
    assert lake.sql("SHOW HOLDS").rows == []


def test_statements_after_the_transaction_run(lake: Lake) -> None:
    transaction = f"EXPLAIN BEGIN; {SOURCE.format('second')} COMMIT;"
    assert [row[0] for row in lake.sql(f"{transaction} SHOW SOURCES").rows] == ["first"]


def test_a_topic_that_two_new_sources_share_is_reported_once(lake: Lake) -> None:
    lake.sql("DROP SOURCE first CASCADE")
    made = [SOURCE.format("a"), SOURCE.format("b"), TABLE.format("a", "a"), TABLE.format("b", "b")]
    assert explained(lake, *made)[4:] == [
        "lakehold ingest b a, and the DAG, read and decode topic t once for both: source b has s.b"
    ]


def test_statements_with_a_layout_are_explained_and_those_with_a_wrong_one_refused(lake: Lake) -> None:
    view = "CREATE MATERIALIZED VIEW bi.v KEY (id) WITH (FORMAT VERSION 2, {}) AS SELECT id, region FROM s.b;"
    table = "CREATE TABLE s.b FROM SOURCE first (TOPIC 't') ENVELOPE UPSERT WITH ({});"
    layout = "PARTITIONED BY (bucket(2, id), region), SORTED BY (id DESC), FORMAT VERSION = 2"
    found = explained(lake, table.format(layout), view.format("PARTITIONED BY (region), SORTED BY (id DESC)"))
    assert found[:2] == ["declare table s.b", "declare materialized view bi.v"]
    assert lake.sql(f"EXPLAIN {table.format(layout)}").rows[0] == ("declare table s.b",)
    with pytest.raises(StatementError):
        explained(lake, table.format("FORMAT VERSION = 4"))
    with pytest.raises(StatementError):
        explained(lake, table.format("PARTITIONED BY (week(day))"))
    assert "s.b" not in lake.definitions.definitions().tables
