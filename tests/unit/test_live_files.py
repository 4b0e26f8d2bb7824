"""Manifests of a snapshot: lakehold reads only those that still list files."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from lakehold.subscribe.live_files import LiveFiles, RememberedFiles


def test_a_manifest_that_lists_only_removed_files_is_skipped(tmp_path: Path) -> None:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.t", pa.schema([("id", pa.int64())]))
    for number in (1, 2):
        table.append(pa.table({"id": [number]}))
    table.delete("id = 1")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    files = LiveFiles(table, RememberedFiles())
    manifests = files.manifests(snapshot.snapshot_id)
    assert len(manifests) == 1 < len(snapshot.manifests(table.io))
    (live,) = files.of(manifests.values(), ManifestContent.DATA)
    assert live.records == 1


@pytest.mark.parametrize(
    ("counts", "is_listed"),
    [
        ({"added_files_count": 0, "existing_files_count": 0}, False),
        ({"added_files_count": 1, "existing_files_count": 0}, True),
        ({"added_files_count": 0, "existing_files_count": 1}, True),
        ({"added_files_count": None, "existing_files_count": 0}, True),
        ({"added_files_count": 0, "existing_files_count": None}, True),
        ({}, True),
    ],
)
def test_a_manifest_without_counts_may_have_files(counts: Mapping[str, int | None], is_listed: bool) -> None:
    """Read manifests without counts, which format version 1 does not require."""
    files = LiveFiles(table_with_list({"manifest_path": "m", "partition_spec_id": 0, **counts}), RememberedFiles())
    assert list(files.manifests(1)) == ["m"] * is_listed


def table_with_list(record: Mapping[str, Any]) -> Table:
    """Return a table of one snapshot, whose manifest list is `record`."""
    types = {"manifest_path": "string", "partition_spec_id": "int"}
    fields = [{"name": name, "type": types.get(name, ["null", "int"])} for name in record]
    content = BytesIO()
    fastavro.writer(content, {"type": "record", "name": "manifest_file", "fields": fields}, [record])
    io = SimpleNamespace(new_input=lambda _: SimpleNamespace(open=lambda: BytesIO(content.getvalue())))
    snapshot = SimpleNamespace(manifest_list="list")
    return cast(Table, SimpleNamespace(io=io, snapshot_by_id=lambda _: snapshot))
