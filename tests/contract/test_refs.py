"""Tags created without Spark on tables of every format version, and a catalog's memory of metadata files."""

from __future__ import annotations

import gzip
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef
from tenacity import Retrying, retry_if_exception_type

from lakehold.iceberg import metadata_files
from lakehold.iceberg.deletion import wait_for_deletions
from lakehold.iceberg.refs import FOREVER_MS, RefChanges, change_refs
from lakehold.iceberg.sql_catalog import RememberingSqlCatalog
from lakehold.settings import Settings
from lakehold.state.catalog_opening import open_catalog
from tests.contract.conftest import connection_lost

NAME = "shop.rates"
ROWS = pa.table({"id": [1, 2]})
SHORT_LOG = {"write.metadata.previous-versions-max": "3", "write.metadata.delete-after-commit.enabled": "true"}


in_file = pytest.mark.parametrize(
    "settings", ["sqlite", pytest.param("postgresql", marks=pytest.mark.stack)], indirect=True
)
"""Settings for tests of metadata that lakehold writes itself: a REST catalog writes its own."""


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """Return the catalog of a new lake."""
    catalog.create_namespace("shop")
    return catalog


def written(catalog: Catalog, **properties: str) -> list[int]:
    """Create a table with two snapshots, and return their ids."""
    table = catalog.create_table(NAME, ROWS.schema, properties=properties)
    for _ in range(2):
        table.append(ROWS)
    return [snapshot.snapshot_id for snapshot in table.metadata.snapshots]


def tags(catalog: Catalog) -> dict[str, int]:
    found = catalog.load_table(NAME).metadata.refs
    assert {ref.max_ref_age_ms for name, ref in found.items() if name != "main"} <= {FOREVER_MS}
    return {name: ref.snapshot_id for name, ref in found.items() if name != "main"}


def rewritten(catalog: RememberingSqlCatalog, location_suffix: str = "", **fields: Any) -> None:
    """Replace the metadata of the table by fields that no tool here can write."""
    table = catalog.load_table(NAME)
    file = catalog.file_of(table.name(), table.metadata_location)
    snapshots = [
        {**s, "first-row-id": 0, "key-id": "k1", "unheard-of": {"in": "snapshots"}}
        for s in orjson.loads(b"[" + file.snapshots + b"]")
    ]
    location = file.followed_by(file.fields).location.replace(".metadata.json", f"{location_suffix}.metadata.json")
    text = orjson.dumps({**file.fields, **fields, "snapshots": snapshots})
    with table.io.new_output(location).create() as stream:
        stream.write(gzip.compress(text) if location_suffix == ".gz" else text)
    catalog.replace(table, metadata_files.read(table.io, location))


def raw(catalog: Catalog) -> dict[str, Any]:
    location = catalog.load_table(NAME).metadata_location
    text = Path(location.removeprefix("file://")).read_bytes()
    found: dict[str, Any] = orjson.loads(gzip.decompress(text) if location.endswith(".gz.metadata.json") else text)
    return found


def put(**wanted: int) -> Any:
    return lambda _: RefChanges(tags=wanted)


@pytest.mark.parametrize("version", ["1", "2"])
def test_tags_are_put_moved_and_removed_in_one_commit_and_kept_by_the_next_writer(
    catalog: Catalog, version: str
) -> None:
    first, second = written(catalog, **{"format-version": version})
    change_refs(catalog, NAME, put(hold_a=first, mz_1=first))
    catalog.load_table(NAME).append(ROWS)
    assert tags(catalog) == {"hold_a": first, "mz_1": first}
    change_refs(catalog, NAME, lambda _: RefChanges(tags={"hold_a": second}, removed=frozenset({"mz_1", "never"})))
    assert tags(catalog) == {"hold_a": second}
    assert catalog.load_table(NAME).scan().use_ref("hold_a").to_arrow().num_rows == 4
    assert catalog.load_table(NAME).scan().to_arrow().num_rows == 6


def test_a_branch_goes_on_in_the_commit_that_tags_its_snapshot(catalog: Catalog) -> None:
    first, second = written(catalog)
    catalog.load_table(NAME).manage_snapshots().set_current_snapshot(first).commit()
    change_refs(catalog, NAME, lambda _: RefChanges(main=second, tags={"mz_2": second}))
    table = catalog.load_table(NAME)
    assert table.current_snapshot() == table.snapshot_by_id(second)
    assert [entry.snapshot_id for entry in table.metadata.snapshot_log] == [first, second, first, second]
    assert table.metadata.refs["main"].snapshot_id == second
    assert tags(catalog) == {"mz_2": second}


def test_nothing_to_change_commits_nothing(catalog: Catalog) -> None:
    written(catalog)
    before = catalog.load_table(NAME).metadata_location
    assert change_refs(catalog, NAME, lambda _: RefChanges()) is None
    assert change_refs(catalog, NAME, lambda _: None) is None
    assert catalog.load_table(NAME).metadata_location == before


def test_a_change_is_planned_again_after_others_expire_its_snapshot(catalog: Catalog) -> None:
    first, second = written(catalog)
    seen: list[list[int]] = []

    def plan(table: Table) -> RefChanges:
        seen.append([snapshot.snapshot_id for snapshot in table.metadata.snapshots])
        if len(seen) == 1:
            catalog.load_table(NAME).maintenance.expire_snapshots().by_id(first).commit()
        return RefChanges(tags={"hold_a": seen[-1][0]})

    change_refs(catalog, NAME, plan)
    assert seen == [[first, second], [second]]
    assert tags(catalog) == {"hold_a": second}


def test_a_change_is_planned_again_after_others_move_its_branch(catalog: Catalog) -> None:
    first, second = written(catalog)
    seen: list[int | None] = []

    def plan(table: Table) -> RefChanges:
        seen.append(table.metadata.current_snapshot_id)
        if len(seen) == 1:
            catalog.load_table(NAME).append(ROWS)
        return RefChanges(main=first, tags={"mz_1": first})

    change_refs(catalog, NAME, plan)
    third = catalog.load_table(NAME).metadata.snapshots[-1].snapshot_id
    assert seen == [second, third]
    assert catalog.load_table(NAME).metadata.current_snapshot_id == first
    assert tags(catalog) == {"mz_1": first}


@in_file
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_other_fields_of_the_metadata_are_preserved(catalog: RememberingSqlCatalog, suffix: str) -> None:
    first, _ = written(catalog)
    rewritten(
        catalog,
        suffix,
        **{
            "format-version": 3,
            "next-row-id": 2**62 + 1,
            "encryption-keys": [{"key-id": "k1", "encrypted-key-metadata": "AA==", "properties": {"é": "\u2028"}}],
            "last-updated-ms": 2**42,
            "unheard-of": [1.5, None, {"deep": True}],
        },
    )
    before, at = raw(catalog), catalog.load_table(NAME).metadata_location
    change_refs(catalog, NAME, put(hold_a=first))
    after = raw(catalog)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert changed == {"refs", "metadata-log"}
    assert after["metadata-log"] == [*before["metadata-log"], {"metadata-file": at, "timestamp-ms": 2**42}]
    assert after["refs"] == before["refs"] | {
        "hold_a": {"snapshot-id": first, "type": "tag", "max-ref-age-ms": FOREVER_MS}
    }
    assert catalog.load_table(NAME).metadata_location.endswith(f"{suffix}.metadata.json")
    assert catalog.load_table(NAME).metadata_location.rsplit("/", 1)[1].startswith("00004-")


@in_file
def test_a_table_whose_writer_did_not_know_refs_keeps_its_main_branch(catalog: RememberingSqlCatalog) -> None:
    first, second = written(catalog)
    rewritten(catalog, refs=None)
    change_refs(catalog, NAME, put(hold_a=first))
    assert raw(catalog)["refs"]["main"] == {"type": "branch", "snapshot-id": second}


@in_file
def test_old_metadata_is_deleted_as_the_table_configures(catalog: RememberingSqlCatalog, settings: Settings) -> None:
    def metadata_on_disk() -> int:
        wait_for_deletions()
        assert settings.warehouse_path is not None
        return len(list((settings.warehouse_path / "shop").rglob("*.metadata.json")))

    first, _ = written(catalog, **SHORT_LOG)
    for number in range(6):
        change_refs(catalog, NAME, put(**{f"mz_{number}": first}))
    assert len(catalog.load_table(NAME).metadata.metadata_log) == 3
    assert metadata_on_disk() == 4
    with catalog.load_table(NAME).transaction() as kept:
        kept.set_properties({"write.metadata.delete-after-commit.enabled": "false"})
    for number in range(6):
        change_refs(catalog, NAME, put(**{f"mz_{number + 6}": first}))
    assert len(catalog.load_table(NAME).metadata.metadata_log) == 3
    assert metadata_on_disk() >= 10
    assert len(tags(catalog)) == 12


@in_file
def test_a_lost_race_leaves_no_file_and_is_planned_again(
    catalog: RememberingSqlCatalog, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = written(catalog)
    other = open_catalog(settings)
    locations: list[str] = []
    followed_by = metadata_files.MetadataFile.followed_by

    def interrupted(file: metadata_files.MetadataFile, fields: Any) -> metadata_files.MetadataFile:
        after = followed_by(file, fields)
        locations.append(after.location)
        if len(locations) == 1:
            other.load_table(NAME).append(ROWS)
        return after

    monkeypatch.setattr(metadata_files.MetadataFile, "followed_by", interrupted)
    change_refs(catalog, NAME, put(hold_a=first))
    assert tags(catalog) == {"hold_a": first}
    assert catalog.load_table(NAME).scan().to_arrow().num_rows == 6
    assert [Path(location.removeprefix("file://")).exists() for location in locations] == [False, True]
    other.close()


@pytest.mark.parametrize("committed", [True, False], ids=["it was committed", "it was not committed"])
def test_a_commit_with_an_unknown_outcome_is_resolved_by_reading_the_table(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    first, _ = written(catalog)
    committing = "replace" if isinstance(catalog, RememberingSqlCatalog) else "commit_table"
    commit, failures, seen = getattr(catalog, committing), iter([True]), []

    def failing_once(*arguments: Any) -> None:
        failing = next(failures, False)
        if committed or not failing:
            commit(*arguments)
        if failing:
            raise connection_lost(catalog)

    def plan(table: Table) -> RefChanges:
        seen.append(table.metadata_location)
        return RefChanges(tags={"hold_a": first})

    monkeypatch.setattr(catalog, committing, failing_once)
    assert change_refs(catalog, NAME, plan) == RefChanges(tags={"hold_a": first})
    assert len(seen) == (1 if committed else 2)
    assert tags(catalog) == {"hold_a": first}


def tag_newest(name: str) -> Callable[[Table], RefChanges]:
    return lambda table: RefChanges(tags={name: table.metadata.snapshots[-1].snapshot_id})


def put_many(settings: Settings, process: int, changes: int) -> None:
    """Tag snapshots of a table, as one of several processes."""
    catalog = open_catalog(settings)
    for number in range(changes):
        plan = tag_newest(f"p{process}_{number}")
        change_refs(catalog, NAME, plan)
    catalog.close()


def test_processes_that_tag_at_once_lose_no_tag_and_no_commit_of_others(catalog: Catalog, settings: Settings) -> None:
    written(catalog)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.contract.conftest"])
    processes = [context.Process(target=put_many, args=(settings, p, 8)) for p in range(4)]
    for process in processes:
        process.start()
    for number in range(8):
        change_refs(catalog, NAME, tag_newest(f"here_{number}"))
        Retrying(retry=retry_if_exception_type(CommitFailedException))(lambda: catalog.load_table(NAME).append(ROWS))
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert catalog.load_table(NAME).scan().to_arrow().num_rows == 2 * (2 + 8)
    assert set(tags(catalog)) == {f"p{p}_{n}" for p in range(4) for n in range(8)} | {f"here_{n}" for n in range(8)}


@in_file
def test_metadata_read_incrementally_equals_metadata_read_alone(
    catalog: RememberingSqlCatalog, settings: Settings
) -> None:
    """Append, tag, roll back and expire snapshots, also by other writers, and rewrite the metadata."""
    first, _ = written(catalog)
    fresh = open_catalog(settings)

    def check() -> None:
        seen, alone = catalog.load_table(NAME), fresh.load_table(NAME)
        file = metadata_files.read(seen.io, seen.metadata_location)
        assert seen.metadata == alone.metadata == file.metadata
        assert seen.metadata.model_dump() == file.metadata.model_dump()
        remembered = catalog.file_of(seen.name(), seen.metadata_location)
        assert {**remembered.fields} == {**file.fields}
        assert remembered.snapshots == file.snapshots
        assert all(isinstance(ref, SnapshotRef) for ref in seen.metadata.refs.values())

    steps: list[Any] = [
        lambda: catalog.load_table(NAME).append(ROWS),
        lambda: change_refs(catalog, NAME, put(a=first)),
        lambda: fresh.load_table(NAME).append(ROWS),
        lambda: catalog.load_table(NAME).manage_snapshots().set_current_snapshot(first).commit(),
        lambda: catalog.load_table(NAME).append(ROWS),
        lambda: change_refs(fresh, NAME, lambda _: RefChanges(removed=frozenset({"a"}))),
        lambda: rewritten(catalog, ".gz"),
        lambda: catalog.load_table(NAME).maintenance.expire_snapshots().by_id(first).commit(),
        lambda: fresh.load_table(NAME).append(ROWS),
    ]
    check()
    for step in steps:
        step()
        check()
    fresh.close()
