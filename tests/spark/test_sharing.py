"""Tables over one topic: each batch reads and decodes the topic once, and each table takes its own columns and keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakehold.lake import Lake
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.counters import decodes
from tests.debezium_messages import Topic

pytestmark = pytest.mark.spark

COLUMNS: dict[str, dict[str, Any]] = {"id": {"type": "int64"}, "name": {"type": "string"}, "n": {"type": "int32"}}


def rows(lake: Lake, table: str) -> list[tuple[Any, ...]]:
    return sorted(lake.sql(f"SELECT * FROM {lake.settings.catalog_name}.{table}").rows)


@pytest.mark.parametrize("driver_records", [10_000, 0], ids=["in the driver", "by Spark"])
def test_tables_of_other_envelopes_columns_and_keys_share_a_decoding(
    make_lake: LakeFactory, tmp_path: Path, driver_records: int
) -> None:
    lake = make_lake(driver_read_max_records=driver_records)
    source = f"shop{driver_records}"
    topic = Topic("t", dict(COLUMNS))
    lake.sql(
        f"CREATE SOURCE {source} FROM FILES '{tmp_path}' FORMAT JSON;"
        f"CREATE TABLE s.all FROM SOURCE {source} (TOPIC 't') ENVELOPE DEBEZIUM;"
        f"CREATE TABLE s.names (id BIGINT, name STRING) FROM SOURCE {source} (TOPIC 't') ENVELOPE DEBEZIUM UPSERT;"
        f"CREATE TABLE s.by_name FROM SOURCE {source} (TOPIC 't') KEY (name) ENVELOPE DEBEZIUM UPSERT;"
        f"CREATE TABLE s.messages FROM SOURCE {source} (TOPIC 't') ENVELOPE UPSERT"
    )
    topic.snapshot([{"id": 1, "name": "a", "n": 1}, {"id": 2, "name": "b", "n": 2}])
    topic.update({"id": 1, "name": "a", "n": 1}, {"id": 1, "name": "a", "n": 10})
    topic.write(tmp_path)
    before = decodes(source)
    (report,) = lake.ingest(source)
    assert not report.stopped
    assert [batch.records for batch in lake.batches.history(source) if batch.records] == [report.records] == [3]
    assert rows(lake, "s.all") == [(1, "a", 10), (2, "b", 2)]
    assert rows(lake, "s.names") == [(1, "a"), (2, "b")]
    assert rows(lake, "s.by_name") == [(1, "a", 10), (2, "b", 2)]
    last = lake.spark.sql(f"SELECT id, op, after.n FROM {lake.settings.catalog_name}.s.messages ORDER BY id").collect()
    assert [tuple(row) for row in last] == [(1, "u", 10), (2, "r", 2)]
    own, shared = decodes(source)
    assert (own - before[0], shared - before[1]) == (1, 3)


def test_each_list_of_columns_of_bare_json_has_its_own_errors(lake: Lake, tmp_path: Path) -> None:
    lake.sql(
        f"CREATE SOURCE bare FROM FILES '{tmp_path}' FORMAT JSON;"
        "CREATE TABLE s.n (id BIGINT, n INT) FROM SOURCE bare (TOPIC 't') ENVELOPE UPSERT;"
        "CREATE TABLE s.name (id BIGINT, name STRING) FROM SOURCE bare (TOPIC 't') ENVELOPE UPSERT"
    )
    messages = [({"id": 1}, {"id": 1, "n": 1, "name": "a"}), ({"id": 2}, {"id": 2, "n": "two", "name": "b"})]
    recorded_files.append(
        tmp_path / "t.jsonl",
        [
            recorded_files.line("t", 0, offset, json.dumps(value).encode(), json.dumps(key).encode())
            for offset, (key, value) in enumerate(messages)
        ],
    )
    (report,) = lake.ingest("bare")
    assert not report.stopped
    assert rows(lake, "s.n") == [(1, 1)]
    assert rows(lake, "s.name") == [(1, "a"), (2, "b")]
    assert decodes("bare") == (1, 1)


def test_explain_shows_which_tables_share_a_topic(lake: Lake, tmp_path: Path) -> None:
    lake.sql(
        f"CREATE SOURCE feed FROM FILES '{tmp_path}' FORMAT JSON;"
        "CREATE TABLE s.a FROM SOURCE feed (TOPIC 't') ENVELOPE DEBEZIUM"
    )
    explained = lake.sql("EXPLAIN CREATE TABLE s.b (id INT) FROM SOURCE feed (TOPIC 't') ENVELOPE DEBEZIUM UPSERT")
    assert [line for (line,) in explained.rows] == [
        "declare table s.b",
        "batches of source feed read and decode topic t once for s.a, s.b",
    ]


def test_explain_shows_which_sources_share_a_topic(lake: Lake, tmp_path: Path) -> None:
    lake.sql(
        f"CREATE SOURCE first FROM FILES '{tmp_path}' FORMAT JSON;"
        f"CREATE SOURCE second FROM FILES '{tmp_path}' FORMAT JSON;"
        f"CREATE SOURCE elsewhere FROM FILES '{tmp_path}/x' FORMAT JSON;"
        "CREATE TABLE s.a FROM SOURCE first (TOPIC 't') ENVELOPE DEBEZIUM;"
        "CREATE TABLE s.x FROM SOURCE elsewhere (TOPIC 't') ENVELOPE DEBEZIUM"
    )
    explained = lake.sql("EXPLAIN CREATE TABLE s.b FROM SOURCE second (TOPIC 't') ENVELOPE DEBEZIUM")
    assert [line for (line,) in explained.rows] == [
        "declare table s.b",
        "lakehold ingest first second, and the DAG, read and decode topic t once for both: source first has s.a",
    ]


def test_another_source_over_the_same_topic_is_reported(lake: Lake) -> None:
    lake.sql(
        "CREATE CONNECTION kafka TO KAFKA (BROKER 'localhost:1'); CREATE CONNECTION same TO KAFKA (BROKER 'localhost:1');"
        "CREATE SOURCE first FROM KAFKA CONNECTION kafka (TOPICS ('a', 'b')) FORMAT JSON"
    )
    result = lake.sql("CREATE SOURCE second FROM KAFKA CONNECTION same (TOPICS ('b', 'c')) FORMAT JSON")
    (notice,) = result.notices
    assert notice == (
        'source "first" reads topic "b", too: lakehold ingest first second, and the DAG, read and decode it once for both'
    )
