"""Which files a snapshot consists of, from its manifests: data files, and the delete files that apply to them.

PyIceberg reads manifests as of format 2, without what deletion vectors need (which file they refer to, where they lie in
theirs), so entries are read here with its schema of format 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table

MANIFESTS_REMEMBERED = 2_000
"""Manifests whose entries are kept: a manifest never changes, and successive snapshots share nearly all of theirs."""

_PATH_FIELD_ID = 2147483546
_REFERENCED_DATA_FILE, _CONTENT_OFFSET, _CONTENT_SIZE = 17, 18, 19
_TYPES: dict[int, Any] = {-1: ManifestEntry, 2: DataFile}
_ENUMS: dict[int, Any] = {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}


@dataclass(frozen=True)
class LiveFile:
    """A data or delete file of a snapshot.

    Attributes:
        path: Where it is.
        format: Parquet, ORC, Avro or Puffin.
        content: Data, position deletes (deletion vectors among them) or equality deletes.
        spec_id: The partition spec it was written with.
        partition: Its partition's values, in the order of the spec.
        records: Rows, or deletes, in it.
        size_bytes: Its size.
        sequence_number: The data sequence number.
        encrypted: Whether it has a key of its own.
        referenced: The only data file that its deletes are about; None: any of the partition.
        offset: Where a deletion vector begins in its file; None for other files.
        length_bytes: Size of a deletion vector.
    """

    path: str
    format: FileFormat
    content: DataFileContent
    spec_id: int
    partition: tuple[Any, ...]
    records: int
    size_bytes: int
    sequence_number: int
    encrypted: bool = False
    referenced: str | None = None
    offset: int | None = None
    length_bytes: int | None = None

    @property
    def place(self) -> tuple[str, int | None]:
        """What tells it from other files: many deletion vectors share a path."""
        return self.path, self.offset


class LiveFiles:
    """The files of one table's snapshots.

    Args:
        table: As loaded from the catalog.
        remembered: Entries of manifests by path; shared by those who read the same tables again.
    """

    def __init__(self, table: Table, remembered: LRUCache[str, tuple[LiveFile, ...]]) -> None:
        self.table = table
        self._remembered = remembered
        self._lists: dict[int, dict[str, ManifestFile]] = {}

    def manifests(self, snapshot_id: int | None) -> dict[str, ManifestFile]:
        """The manifests of a snapshot by path; none before the first snapshot."""
        if snapshot_id is None:
            return {}
        if snapshot_id not in self._lists:
            snapshot = self.table.snapshot_by_id(snapshot_id)
            found = snapshot.manifests(self.table.io) if snapshot is not None else []
            self._lists[snapshot_id] = {manifest.manifest_path: manifest for manifest in found}
        return self._lists[snapshot_id]

    def of(self, manifests: Iterable[ManifestFile], content: ManifestContent) -> list[LiveFile]:
        """The live files in those of `manifests` that list data files, or deletes."""
        return [file for manifest in manifests if manifest.content == content for file in self._entries(manifest)]

    def _entries(self, manifest: ManifestFile) -> tuple[LiveFile, ...]:
        path = manifest.manifest_path
        found = self._remembered.get(path)
        if found is None:
            with AvroFile[ManifestEntry](
                self.table.io.new_input(path), MANIFEST_ENTRY_SCHEMAS[3], read_types=_TYPES, read_enums=_ENUMS
            ) as entries:
                found = tuple(
                    _live_file(entry, manifest) for entry in entries if entry.status != ManifestEntryStatus.DELETED
                )
            self._remembered[path] = found
        return found


def _live_file(entry: ManifestEntry, manifest: ManifestFile) -> LiveFile:
    file = entry.data_file
    partition = file.partition
    return LiveFile(
        path=file.file_path,
        format=file.file_format,
        content=DataFileContent(file.content or 0),
        spec_id=manifest.partition_spec_id,
        partition=tuple(partition[place] for place in range(len(partition))),
        records=file.record_count,
        size_bytes=file.file_size_in_bytes,
        # Added in the snapshot that wrote the manifest: inherited (spec, "Sequence Number Inheritance").
        sequence_number=entry.sequence_number if entry.sequence_number is not None else manifest.sequence_number or 0,
        encrypted=file.key_metadata is not None,
        referenced=file[_REFERENCED_DATA_FILE] or _only_path(file),
        offset=file[_CONTENT_OFFSET],
        length_bytes=file[_CONTENT_SIZE],
    )


def _only_path(file: DataFile) -> str | None:
    """The data file of position deletes that are all about one: its path is the lower and the upper bound."""
    if file.content != DataFileContent.POSITION_DELETES:
        return None
    lowest = (file.lower_bounds or {}).get(_PATH_FIELD_ID)
    highest = (file.upper_bounds or {}).get(_PATH_FIELD_ID)
    return lowest.decode() if lowest is not None and lowest == highest else None
