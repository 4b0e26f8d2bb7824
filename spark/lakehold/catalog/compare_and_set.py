"""Changing an Iceberg table's rows in one commit that fails when anyone else committed since they were read.

A commit is built from PyIceberg's own parts (files, manifest, snapshot, requirements) instead of its transactions: a
transaction copies the whole metadata some forty times a commit, and its overwrite keeps a manifest of each one before.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io.pyarrow import write_file
from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.schema import Schema
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
    SetSnapshotRefUpdate,
    TableUpdate,
)
from sqlalchemy.exc import SQLAlchemyError

from lakehold.catalog import expiry
from lakehold.errors import CommitConflict, UpstreamUnavailable

logger = logging.getLogger(__name__)

COMMIT_ATTEMPTS = 100
"""How often a change is tried while others commit first. Of eight writers that never rest, each wins one try in eight:
all hundred are lost about once in a million changes."""

OPEN_OUTCOMES_MOST = 5
"""How many commits of one change may fail without saying whether they happened."""

MAX_PAUSE_S = 0.25
"""The longest pause between two tries; it is drawn at random, so that writers that met once do not meet again."""

READ_ATTEMPTS = 5
"""How often a read may meet files that the changes of others, some fifteen later, expired."""

T = TypeVar("T")

_AVRO_COMPRESSION: AvroCompressionCodec = "deflate"


@dataclass(frozen=True)
class Rewrite:
    """What a commit does to a table: `rows` are added as one file, `removed` files go.

    `kept` manifests stay as they are; `existing` files stay and their entries move into the new manifest.
    """

    rows: pa.Table
    removed: tuple[ManifestEntry, ...] = ()
    existing: tuple[ManifestEntry, ...] = ()
    kept: tuple[ManifestFile, ...] = ()


@dataclass(frozen=True)
class Written:
    """A snapshot and what was written for it."""

    snapshot: Snapshot
    rows: pa.Table
    added: tuple[ManifestEntry, ...]
    manifest_path: str


def change(catalog: Catalog, table_name: str, plan: Callable[[Table], Rewrite | None]) -> Written | None:
    """Commit `plan(table)` if nobody commits between the plan and the commit; else plan again on the newest table.

    Returns what was committed; None when there was nothing to change.

    Args:
        catalog: The lake's catalog.
        table_name: Full name of the table.
        plan: What to change, decided from the table given; None for nothing. It raises to refuse.

    Raises:
        CommitConflict: Others came first each time.
        UpstreamUnavailable: The catalog does not answer; a commit may or may not have happened.
    """
    unsettled: list[Written] = []  # whose commit has an open outcome
    for attempt in range(COMMIT_ATTEMPTS):
        planned = read(catalog, table_name, lambda table: _settled(table, unsettled) or _planned(table, plan))
        if planned is None or isinstance(planned, Written):
            return planned
        table, rewrite = planned
        written = _write(table, rewrite)
        try:
            _commit(catalog, table, written.snapshot)
        except CommitFailedException as error:
            expiry.delete(table.io, _paths(written))
            logger.debug("another commit to %s came first: %s", table_name, error)
        except (SQLAlchemyError, CommitStateUnknownException, OSError) as error:
            # The catalog may have committed before it failed: the next read of the table tells.
            logger.warning("commit to %s has an open outcome: %s", table_name, error)
            unsettled.append(written)
            if len(unsettled) == OPEN_OUTCOMES_MOST:
                raise _unavailable(table_name, error) from error
        else:
            return written
        time.sleep(random.uniform(0, min(MAX_PAUSE_S, 0.01 * 2**attempt)))
    raise CommitConflict(
        f'others kept changing "{table_name}"',
        detail=f"Each of {COMMIT_ATTEMPTS} tries to commit came after another's commit.",
        hint="Try again.",
    )


def read(catalog: Catalog, table_name: str, of: Callable[[Table], T]) -> T:
    """`of(table)` for the newest table, once more when the files it reads were expired meanwhile.

    Raises:
        UpstreamUnavailable: The catalog does not answer.
    """
    try:
        for _ in range(READ_ATTEMPTS - 1):
            try:
                return of(catalog.load_table(table_name))
            except FileNotFoundError:
                logger.info("%s changed while it was read: reading it again", table_name)
        return of(catalog.load_table(table_name))
    except SQLAlchemyError as error:
        raise _unavailable(table_name, error) from error


def _unavailable(table_name: str, cause: Exception) -> UpstreamUnavailable:
    reason = str(getattr(cause, "orig", None) or cause).strip().splitlines()[0]
    return UpstreamUnavailable(
        "the lake's catalog does not answer",
        code="catalog-unavailable",
        detail=f'Reading or changing "{table_name}" failed: {reason}.',
        hint="Check the catalog and the warehouse, then run it again: nothing is done twice.",
    )


def live_entries(table: Table, manifests: Sequence[ManifestFile]) -> tuple[ManifestEntry, ...]:
    """The entries of the data files that are live in `manifests`."""
    return tuple(entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io))


def _settled(table: Table, unsettled: Sequence[Written]) -> Written | None:
    return next((written for written in unsettled if table.snapshot_by_id(written.snapshot.snapshot_id)), None)


def _planned(table: Table, plan: Callable[[Table], Rewrite | None]) -> tuple[Table, Rewrite] | None:
    rewrite = plan(table)
    return (table, rewrite) if rewrite else None


def _paths(written: Written) -> tuple[str, ...]:
    files = (entry.data_file.file_path for entry in written.added)
    return (*files, written.manifest_path, written.snapshot.manifest_list)


def _write(table: Table, rewrite: Rewrite) -> Written:
    metadata, io, locations = table.metadata, table.io, table.location_provider()
    snapshot_id, commit_uuid = metadata.new_snapshot_id(), uuid.uuid4()
    sequence_number = metadata.next_sequence_number()
    added = tuple(
        ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=snapshot_id,
            sequence_number=sequence_number,
            file_sequence_number=sequence_number,
            data_file=file,
        )
        for file in _data_files(table, rewrite.rows, commit_uuid)
    )
    manifest_path = locations.new_metadata_location(f"{commit_uuid}-m0.avro")
    manifest_list_path = locations.new_metadata_location(f"snap-{snapshot_id}-0-{commit_uuid}.avro")
    with write_manifest(
        format_version=metadata.format_version,
        spec=metadata.spec(),
        schema=metadata.schema(),
        output_file=io.new_output(manifest_path),
        snapshot_id=snapshot_id,
        avro_compression=_AVRO_COMPRESSION,
    ) as manifest:
        for entry in added:
            manifest.add(entry)
        for entry in rewrite.removed:
            manifest.delete(entry)
        for entry in rewrite.existing:
            manifest.existing(entry)
    parent = metadata.current_snapshot()
    with write_manifest_list(
        format_version=metadata.format_version,
        output_file=io.new_output(manifest_list_path),
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=sequence_number,
        avro_compression=_AVRO_COMPRESSION,
    ) as manifest_list:
        manifest_list.add_manifests([manifest.to_manifest_file(), *rewrite.kept])
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=sequence_number,
        manifest_list=manifest_list_path,
        summary=_summary(metadata.schema(), added, rewrite.removed, parent),
        schema_id=metadata.current_schema_id,
    )
    return Written(snapshot, rewrite.rows, added, manifest_path)


def _data_files(table: Table, rows: pa.Table, commit_uuid: uuid.UUID) -> tuple[DataFile, ...]:
    if not rows.num_rows:
        return ()
    task = WriteTask(write_uuid=commit_uuid, task_id=0, schema=table.schema(), record_batches=rows.to_batches())
    return tuple(write_file(io=table.io, table_metadata=table.metadata, tasks=iter([task])))


def _summary(
    schema: Schema, added: Sequence[ManifestEntry], removed: Sequence[ManifestEntry], parent: Snapshot | None
) -> Summary:
    collector = SnapshotSummaryCollector()
    for entry in added:
        collector.add_file(entry.data_file, schema=schema)
    for entry in removed:
        collector.remove_file(entry.data_file, schema=schema)
    operation = Operation.OVERWRITE if removed else Operation.APPEND
    return update_snapshot_summaries(Summary(operation, **collector.build()), parent.summary if parent else None)


def _commit(catalog: Catalog, table: Table, snapshot: Snapshot) -> None:
    expired = expiry.due(table.metadata)
    updates: list[TableUpdate] = [
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(  # type: ignore[call-arg] # mypy does not see the defaults inside Annotated
            ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id
        ),
    ]
    if expired:
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=[s.snapshot_id for s in expired]))
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=snapshot.parent_snapshot_id),
    )
    committed = catalog.commit_table(table, requirements, tuple(updates))
    expiry.delete_unreachable(table.io, table.metadata, committed.metadata)
