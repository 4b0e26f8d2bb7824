"""The view of a source that a process has once it holds the lease: everything that was defined before."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakehold.definitions import Capture, ConnectionType, Envelope, Format, FormatType, Source, Table
from lakehold.errors import DefinitionError
from lakehold.ingest.side_by_side import Lanes
from lakehold.ingest.source_opening import Opening
from lakehold.model.lake_definitions import Definitions, Entry
from lakehold.model.readers import MAIN_READER
from lakehold.settings import load_settings
from lakehold.state.batch_protocol import BatchStore
from lakehold.state.objects import DefinitionStore
from lakehold.state.store import MemoryState
from tests.memory_source import OnlyOffsets


def entry(name: str) -> Entry[Table]:
    return Entry(f"id of {name}", Table("s", name, "shop", name, Envelope.UPSERT), "", 0)


@pytest.fixture
def opening(tmp_path: Path) -> Opening:
    """Return an opening of the source `shop` of two recorded topics, with the table `s.orders`."""
    lines = [
        json.dumps({"topic": topic, "partition": 0, "offset": at, "timestamp": 1, "key": None, "value": "e30="})
        for topic in ("orders", "items")
        for at in range(10)
    ]
    (tmp_path / "recorded.jsonl").write_text("".join(f"{line}\n" for line in lines))
    source = Source("shop", Format(FormatType.JSON), path=str(tmp_path))
    defined = Definitions(sources={"shop": Entry("id of shop", source, "", 0)}, tables={"s.orders": entry("orders")})
    settings = load_settings(warehouse=str(tmp_path / "lake"), driver_read_max_records="0")
    nothing: Any = None
    no_tables: Any = SimpleNamespace(table_state=lambda _: None)
    no_holds: Any = SimpleNamespace(begin=lambda _: None)
    state = MemoryState()
    definitions, batches = DefinitionStore(state), BatchStore(state)
    definitions.change(lambda _: defined)
    lanes = Lanes(nothing, nothing, 1)
    return Opening(settings, definitions, batches, no_tables, no_holds, nothing, lanes, applier=lambda _: OnlyOffsets())


def ingest(opening: Opening) -> None:
    with opening.leased("shop") as ingesting:
        list(ingesting.drain())


def test_a_table_created_and_read_before_the_lease_was_acquired_keeps_its_progress(opening: Opening) -> None:
    ingest(opening)
    late = opening.leased("shop")
    definitions: Any = opening.definitions
    definitions.change(lambda defined: defined.with_entry(entry("items")))
    ingest(opening)
    before = opening.store.readers("shop")[MAIN_READER]
    assert before.tables.keys() == {"s.orders", "s.items"}
    with late as ingesting:
        list(ingesting.drain())
    after = opening.store.readers("shop")[MAIN_READER]
    assert (after.tables, after.position) == (before.tables, before.position)


def test_a_missing_source_is_not_leased(opening: Opening) -> None:
    with pytest.raises(DefinitionError), opening.leased("other"):
        pass
    assert opening.store.readers("other") == {}


def test_a_source_without_tables_names_what_its_tables_read(opening: Opening) -> None:
    capture = Capture(ConnectionType.POSTGRES, "pg", "connect", "app", "app", "app")
    captured = Source("app", Format(FormatType.JSON), connection="kafka", capture=capture)
    files = Source("files", Format(FormatType.JSON), path="recorded")
    sources = {source.name: Entry(source.name, source, "", 0) for source in (captured, files)}
    definitions: Any = opening.definitions
    definitions.change(lambda _: Definitions(sources=sources))
    for source, reads in (("app", "TABLE"), ("files", "TOPIC")):
        with pytest.raises(DefinitionError) as refused, opening.leased(source):
            pass
        assert refused.value.code == "source-without-tables"
        assert f"FROM SOURCE {source} ({reads} '…')" in refused.value.hint
