"""The tasks of an ingest of many sources: their order, and an end before a backlog."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehold.lake import Lake
from lakehold.orchestration import ingesting
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
    done = ingesting.ingest(lake, many.short, None)
    assert {changed.table for changed in done.changed} == {f"many.{name}" for name in many.short}
    assert ingesting.chosen_sources(lake, []) == [[LONG], [*many.short]]
    many.send("short1")
    assert ingesting.chosen_sources(lake, []) == [["short1"], [LONG], ["short0", "short2"]]
    assert ingesting.chosen_sources(lake, ["short0"]) == [["short0"]]

    monkeypatch.setattr(ingesting, "TURN_S", 0)
    assert [changed.table for changed in ingesting.ingest(lake, [LONG], None).changed] == [f"many.{LONG}"]
    assert many.has_backlog()
    assert ingesting.chosen_sources(lake, [])[-2] == [LONG]
    for _ in range(3):
        ingesting.ingest(lake, [LONG], None)
    assert not many.has_backlog()
