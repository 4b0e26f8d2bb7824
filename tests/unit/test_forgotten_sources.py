"""The state of a dropped source is deleted with it: a later source of the name begins without state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehold.lake import Lake, connect
from lakehold.times import now_ms

_LEASE_MS = 60_000
CREATE = "CREATE SOURCE shop FROM FILES '/x' FORMAT JSON"
TABLE = "CREATE TABLE shop.orders FROM SOURCE shop (TOPIC 'orders') ENVELOPE UPSERT"
DROP = "DROP SOURCE shop CASCADE"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """Return a lake whose source was read, and which runs further statements without Spark."""
    with connect(str(tmp_path / "lake")) as lake:
        lake.sql(f"{CREATE}; {TABLE}; {CREATE.replace('shop', 'other')}")
        for name in ("shop", "other"):
            lake.batches.acquire(name, "a", now_ms() + _LEASE_MS)
        lake.batches.release("shop", "a")
        yield lake


def readers(lake: Lake) -> list[str]:
    return sorted(reader.source for reader in lake.batches.all_readers())


def test_a_dropped_source_leaves_no_reader_and_others_keep_theirs(lake: Lake) -> None:
    assert readers(lake) == ["other", "shop"]
    lake.sql("DROP TABLE shop.orders")
    assert readers(lake) == ["other", "shop"]
    lake.sql("DROP SOURCE shop")
    assert readers(lake) == ["other"]


def test_an_interrupted_drop_is_completed_by_the_next_source_of_the_name(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(lake, "forget_source", lambda _: None)
        lake.sql(DROP)
    assert readers(lake) == ["other", "shop"]
    lake.sql(f"BEGIN; {CREATE}; {TABLE}; COMMIT")
    assert readers(lake) == ["other"]


def test_the_state_of_a_source_stays_while_an_ingest_holds_its_lease(lake: Lake) -> None:
    lake.batches.acquire("shop", "a", now_ms() + _LEASE_MS)
    lake.sql(DROP)
    assert readers(lake) == ["other", "shop"]
    lake.batches.release("shop", "a")
    lake.sql(CREATE)
    assert readers(lake) == ["other"]
