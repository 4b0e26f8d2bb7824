"""The tasks of an ingest of many sources: their order, and an end before a backlog."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from airflow.sdk.exceptions import AirflowException

from lakehold.lake import Lake
from lakehold.orchestration import ingesting
from lakehold.orchestration.assets import Announced
from lakehold.orchestration.failures import pairs_or_retry, without_busy
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.many_sources import LONG, ManySources

pytestmark = pytest.mark.spark


@pytest.fixture
def many(lake: Lake, tmp_path: Path) -> ManySources:
    """Define three short sources and a long one with a backlog, whose batches have ten messages."""
    found = ManySources(lake, tmp_path / "messages", 3, 10)
    found.fill(3)
    return found


def test_few_messages_come_first_and_sources_without_share_a_task(
    lake: Lake, many: ManySources, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ingesting.chosen_sources(lake, []) == [["short0"], ["short1"], ["short2"], [LONG]]
    done = ingesting.ingest(lake, many.short, Announced())
    assert {changed.table for changed in done.changed} == {f"many.{name}" for name in many.short}
    assert ingesting.chosen_sources(lake, []) == [[LONG], [*many.short]]
    many.send("short1")
    assert ingesting.chosen_sources(lake, []) == [["short1"], [LONG], ["short0", "short2"]]
    assert ingesting.chosen_sources(lake, ["short0"]) == [["short0"]]

    monkeypatch.setattr(ingesting, "TURN_S", 0)
    assert [changed.table for changed in ingesting.ingest(lake, [LONG], Announced()).changed] == [f"many.{LONG}"]
    assert many.has_backlog()
    assert ingesting.chosen_sources(lake, [])[-2] == [LONG]
    for _ in range(3):
        ingesting.ingest(lake, [LONG], Announced())
    assert not many.has_backlog()


def test_later_commits_than_the_announced_one_are_changes_also_if_that_one_is_expired_or_not_known(
    lake: Lake, many: ManySources
) -> None:
    ingesting.ingest(lake, many.short, Announced())
    oldest_event = now_ms()
    assert ingesting.ingest(lake, many.short, Announced({}, oldest_event)).changed == ()
    many.send("short1")
    lake.ingest("short1")
    (change,) = ingesting.ingest(lake, many.short, Announced({}, oldest_event)).changed
    assert (change.table, change.previous_snapshot_id is None) == ("many.short1", False)

    def is_reported(snapshot_id: int, at_ms: int) -> bool:
        known = Announced({"many.short1": (str(snapshot_id), at_ms)}, now_ms())
        return bool(ingesting.ingest(lake, many.short, known).changed)

    expired = 1
    assert is_reported(expired, oldest_event)
    assert not is_reported(expired, change.at_ms)
    assert change.previous_snapshot_id is not None
    assert is_reported(change.previous_snapshot_id, 0)
    assert not is_reported(change.snapshot_id, 0)


@pytest.mark.usefixtures("many")
def test_a_source_without_its_secret_is_a_task_of_its_own_whose_error_stops_no_other(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", "secret")
    lake.sql("""
        CREATE CONNECTION vault TO KAFKA (
            BROKER '127.0.0.1:1', SECURITY_PROTOCOL 'SASL_SSL', SASL_MECHANISM 'PLAIN',
            SASL_USERNAME 'reader', SASL_PASSWORD SECRET 'BROKER_PASSWORD'
        );
        CREATE SOURCE vault FROM KAFKA CONNECTION vault (TOPICS ('bills')) FORMAT JSON;
        CREATE TABLE many.bills (k BIGINT) FROM SOURCE vault (TOPIC 'bills') KEY (k) ENVELOPE UPSERT
    """)
    monkeypatch.delenv("BROKER_PASSWORD")
    assert ["vault"] in ingesting.chosen_sources(lake, [])

    done = ingesting.ingest(lake, ["short0", "vault", "short1"], Announced())
    assert {changed.table for changed in done.changed} == {"many.short0", "many.short1"}
    assert list(done.stopped) == ["vault"]
    assert done.stopped["vault"].code == "secret-missing"


def test_a_broker_that_is_down_is_waited_for_once_and_after_all_others(make_lake: LakeFactory, tmp_path: Path) -> None:
    lake = make_lake(upstream_timeout_ms=1000)
    many = ManySources(lake, tmp_path / "messages", 2, 10)
    down = ["down0", "down1", "down2"]
    lake.sql("CREATE CONNECTION down TO KAFKA (BROKER '127.0.0.1:1')")
    for name in down:
        lake.sql(f"CREATE SOURCE {name} FROM KAFKA CONNECTION down (TOPICS ('{name}')) FORMAT JSON")
        lake.sql(f"CREATE TABLE s.{name} (k BIGINT) FROM SOURCE {name} (TOPIC '{name}') KEY (k) ENVELOPE UPSERT")
    many.fill(1)
    with patch.object(Lake, "pending", autospec=True, side_effect=Lake.pending) as requests:
        assert ingesting.chosen_sources(lake, []) == [["short0"], ["short1"], [LONG], down]
    assert sorted(request.args[1] for request in requests.mock_calls) == ["down0", LONG, "short0", "short1"]

    with patch.object(Lake, "batches_together", autospec=True, side_effect=Lake.batches_together) as tries:
        done = ingesting.ingest(lake, [*down, "short0"], Announced())
    assert [each.args[1] for each in tries.mock_calls] == [["down0"], ["short0"]]
    assert [changed.table for changed in done.changed] == ["many.short0"]
    assert {name: error.code for name, error in done.stopped.items()} == dict.fromkeys(down, "kafka-unavailable")


@pytest.mark.usefixtures("many")
def test_a_source_that_another_process_reads_is_retried_and_left_to_it_by_the_last_try(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(lake.batches_together(["short0"])) as another:
        next(another)
        done = ingesting.ingest(lake, ["short0", "short1"], Announced())
    assert "many.short1" in {changed.table for changed in done.changed}
    ti = SimpleNamespace(try_number=1, max_tries=3)
    with pytest.raises(AirflowException, match="short0"):
        pairs_or_retry(without_busy(done.stopped, ti), ti)
    ti.try_number = 4
    assert pairs_or_retry(without_busy(done.stopped, ti), ti) == []
    assert "short0 is left to the process that reads it" in caplog.text
