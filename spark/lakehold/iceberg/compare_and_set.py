"""Changes of an Iceberg table's rows in one commit, which fails if anyone else committed since they were read.

The state of the lake (`lakehold.state.iceberg_state`) and the output tables of subscriptions are written in this way, without
Spark.

A commit is built from PyIceberg's own parts (files, manifest, snapshot, requirements) instead of its transactions: a
transaction copies the whole metadata some forty times per commit, and its overwrite keeps a manifest for each earlier one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import pyarrow as pa
from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table, WriteTask
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from lakehold.iceberg import attempts, deletion, expiry
from lakehold.iceberg.attempts import Attempt
from lakehold.iceberg.files_together import FilesTogether
from lakehold.times import now_ms

_AVRO_COMPRESSION: AvroCompressionCodec = "deflate"

_READ_AT_ONCE = 16
"""Manifests that are read at once: an object store takes tens of milliseconds for each."""


@dataclass(frozen=True)
class Rewrite:
    """The content of a commit to a table.

    Attributes:
        rows: Rows that are added as one file.
        removed: Files that are removed.
        existing: Files that stay; their entries move into the new manifest.
        kept: Manifests that stay as they are.
        files: Existing data files that are added; they stay if the commit fails.
        summary: Further properties of the snapshot.
        properties: Properties that the table gets in the same commit.
        expires: Whether the commit may also expire old snapshots.
    """

    rows: pa.Table = field(default_factory=lambda: pa.table({}))
    removed: tuple[ManifestEntry, ...] = ()
    existing: tuple[ManifestEntry, ...] = ()
    kept: tuple[ManifestFile, ...] = ()
    files: tuple[DataFile, ...] = ()
    summary: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    expires: bool = True


@dataclass(frozen=True)
class Written:
    """A snapshot with the rows and files that were written for it."""

    snapshot: Snapshot
    rows: pa.Table
    added: tuple[ManifestEntry, ...]
    paths: tuple[str, ...]


def change(catalog: Catalog, table_name: str, plan: Callable[[Table], Rewrite | None]) -> Written | None:
    """Commit `plan(table)` unless another writer commits in between; then plan again on the newest table.

    Returns the commit; None if there was nothing to change.

    Args:
        catalog: The lake's catalog.
        table_name: Full name of the table.
        plan: Plans a change of the given table; None for no change. It raises to refuse.

    Raises:
        CommitConflict: Others committed first each time.
        UpstreamUnavailable: The catalog does not answer; a commit may or may not have happened.
    """

    def attempt(table: Table) -> Attempt[Written] | None:
        rewrite = plan(table)
        if rewrite is None:
            return None
        written = _write(table, rewrite)
        return Attempt(
            table,
            written,
            written.paths,
            commit=lambda: _commit(catalog, table, written.snapshot, rewrite),
            is_in=lambda newest: newest.snapshot_by_id(written.snapshot.snapshot_id) is not None,
        )

    return attempts.change(catalog, table_name, attempt)


def live_entries(table: Table, manifests: Sequence[ManifestFile]) -> tuple[ManifestEntry, ...]:
    """Return the entries of the data files that are live in `manifests`, which are read side by side."""
    with ThreadPoolExecutor(_READ_AT_ONCE, thread_name_prefix="lakehold-manifests") as threads:
        found = threads.map(lambda manifest: manifest.fetch_manifest_entry(table.io), manifests)
        return tuple(chain.from_iterable(found))


def _write(table: Table, rewrite: Rewrite) -> Written:
    metadata, locations, io = table.metadata, table.location_provider(), FilesTogether(table.io)
    snapshot_id, commit_uuid = metadata.new_snapshot_id(), uuid.uuid4()
    sequence_number = metadata.next_sequence_number()
    files = _data_files(table, io, rewrite.rows, commit_uuid)
    added = tuple(
        ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=snapshot_id,
            sequence_number=sequence_number,
            file_sequence_number=sequence_number,
            data_file=file,
        )
        for file in (*files, *rewrite.files)
    )
    manifest_path = locations.new_metadata_location(f"{commit_uuid}-m0.avro")
    manifest_list_path = locations.new_metadata_location(f"snap-{snapshot_id}-0-{commit_uuid}.avro")
    manifests = [*_manifest(table, io.new_output(manifest_path), snapshot_id, added, rewrite), *rewrite.kept]
    parent = metadata.current_snapshot()
    with write_manifest_list(
        format_version=metadata.format_version,
        output_file=io.new_output(manifest_list_path),
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=sequence_number,
        avro_compression=_AVRO_COMPRESSION,
    ) as manifest_list:
        manifest_list.add_manifests(manifests)
    io.write()
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=sequence_number,
        # Spark reads no table whose times go back by more than a minute: another machine's clock may be ahead.
        timestamp_ms=max(now_ms(), metadata.last_updated_ms),
        manifest_list=manifest_list_path,
        summary=_summary(table, added, rewrite),
        schema_id=metadata.current_schema_id,
    )
    own_manifests = (manifest.manifest_path for manifest in manifests if manifest not in rewrite.kept)
    paths = (*(file.file_path for file in files), *own_manifests, manifest_list_path)
    return Written(snapshot, rewrite.rows, added, paths)


def _manifest(
    table: Table, output: OutputFile, snapshot_id: int, added: Sequence[ManifestEntry], rewrite: Rewrite
) -> list[ManifestFile]:
    """Write the manifest of added, removed and moved files; none if there are no such files."""
    if not (added or rewrite.removed or rewrite.existing):
        return []
    with write_manifest(
        format_version=table.metadata.format_version,
        spec=table.spec(),
        schema=table.schema(),
        output_file=output,
        snapshot_id=snapshot_id,
        avro_compression=_AVRO_COMPRESSION,
    ) as manifest:
        for entry in added:
            manifest.add(entry)
        for entry in rewrite.removed:
            manifest.delete(entry)
        for entry in rewrite.existing:
            manifest.existing(entry)
    return [manifest.to_manifest_file()]


def _data_files(table: Table, io: FileIO, rows: pa.Table, commit_uuid: uuid.UUID) -> tuple[DataFile, ...]:
    if not rows.num_rows:
        return ()
    from pyiceberg.io.pyarrow import write_file  # noqa: PLC0415 - it imports pandas, which only writing needs

    task = WriteTask(write_uuid=commit_uuid, task_id=0, schema=table.schema(), record_batches=rows.to_batches())
    return tuple(write_file(io=io, table_metadata=table.metadata, tasks=iter([task])))


def _summary(table: Table, added: Sequence[ManifestEntry], rewrite: Rewrite) -> Summary:
    collector = SnapshotSummaryCollector()
    schema, spec, parent = table.schema(), table.spec(), table.current_snapshot()
    for entry in added:
        collector.add_file(entry.data_file, schema=schema, partition_spec=spec)
    for entry in rewrite.removed:
        collector.remove_file(entry.data_file, schema=schema, partition_spec=spec)
    operation = Operation.OVERWRITE if rewrite.removed else Operation.APPEND
    counted = Summary(operation, **collector.build(), **rewrite.summary)
    return update_snapshot_summaries(counted, parent.summary if parent else None)


def _commit(catalog: Catalog, table: Table, snapshot: Snapshot, rewrite: Rewrite) -> None:
    expired = expiry.due(table.metadata) if rewrite.expires else ()
    updates: list[TableUpdate] = [
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(  # type: ignore[call-arg] # mypy does not see the defaults inside Annotated
            ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id
        ),
    ]
    if rewrite.properties:
        updates.append(SetPropertiesUpdate(updates=dict(rewrite.properties)))
    if expired:
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=[s.snapshot_id for s in expired]))
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=snapshot.parent_snapshot_id),
    )
    committed = catalog.commit_table(table, requirements, tuple(updates))
    deletion.later(partial(expiry.delete_unreachable, table.io, table.metadata, committed.metadata))
