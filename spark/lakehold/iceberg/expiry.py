"""Expiry that keeps a small table small: now and then, a commit also expires old snapshots and deletes their files.

This is for the tables of the lake's state, which `compare_and_set.py` commits many times a minute. Tables with data keep what
retention and holds need: `lakehold.maintenance` expires their snapshots.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from lakehold.iceberg.deletion import delete_or_log

logger = logging.getLogger(__name__)

SNAPSHOTS_KEPT = 15
"""Newest snapshots that stay, with their files: a slow reader may still read them."""

SNAPSHOTS_MOST = 30
"""Number of snapshots at which the next commit expires some: snapshots make commits slower, but expiry itself reads files."""


_READ_AT_ONCE = 16
"""Files that are read at once: an object store answers after tens of milliseconds."""


def due(metadata: TableMetadata) -> tuple[Snapshot, ...]:
    """Return the snapshots that the next commit should expire, oldest first; usually none.

    While a tag or another branch keeps a snapshot of the table, none expires: finding the files to delete needs an unbroken
    line of snapshots.
    """
    if len(metadata.snapshots) < SNAPSHOTS_MOST or len(metadata.refs) > 1:
        return ()
    return tuple(_by_age(metadata.snapshots)[:-SNAPSHOTS_KEPT])


def delete_unreachable(io: FileIO, before: TableMetadata, after: TableMetadata) -> None:
    """Delete the files that a commit made unreachable: old metadata, and files that only expired snapshots refer to.

    Files that cannot be deleted stay and are logged: the commit is valid whatever happens here.

    Args:
        io: The table's files.
        before: The metadata that the commit was made from.
        after: The metadata that the commit made.
    """
    paths = {log.metadata_file for log in before.metadata_log} - {log.metadata_file for log in after.metadata_log}
    remaining = _by_age(after.snapshots)
    expired = [s for s in _by_age(before.snapshots) if after.snapshot_by_id(s.snapshot_id) is None]
    try:
        paths |= _reachable_only_from(io, expired, oldest_kept=remaining[0]) if expired else set()
    except OSError as error:
        logger.warning("could not read which files of expired snapshots in %s to delete: %s", after.location, error)
    delete_or_log(io, sorted(paths))


def _reachable_only_from(io: FileIO, expired: Sequence[Snapshot], oldest_kept: Snapshot) -> set[str]:
    """Return the files of a line of expired snapshots that the oldest kept one does not use.

    A file that was removed once never comes back.
    """
    with ThreadPoolExecutor(_READ_AT_ONCE, thread_name_prefix="lakehold-expiry") as threads:
        kept, *gone = threads.map(lambda snapshot: snapshot.manifests(io), (oldest_kept, *expired))
        own = [
            manifest
            for snapshot, manifests in zip(expired, gone, strict=True)
            for manifest in manifests
            if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.deleted_files_count
        ]
        removed = threads.map(partial(_removed_files, io), own)
        paths = {snapshot.manifest_list for snapshot in expired}.union(*removed)
    unused = {manifest.manifest_path for manifests in gone for manifest in manifests}
    return paths | unused - {manifest.manifest_path for manifest in kept}


def _removed_files(io: FileIO, manifest: ManifestFile) -> set[str]:
    entries = manifest.fetch_manifest_entry(io, discard_deleted=False)
    return {entry.data_file.file_path for entry in entries if entry.status == ManifestEntryStatus.DELETED}


def _by_age(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    return sorted(snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
