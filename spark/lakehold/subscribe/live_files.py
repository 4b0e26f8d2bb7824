"""Lists the files of a snapshot from its manifests: data files, and the delete files that apply to them.

`changed_rows` compares these lists between two snapshots; maintenance finds small files in them.
PyIceberg reads manifests as format 2: it drops what deletion vectors need, namely their data file and their offset. It also
decodes them in Python. A hundred snapshots have a hundred lists of hundreds of manifests, so fastavro reads them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from fastavro.schema import SchemaParseException, UnknownType
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import Table

from lakehold.iceberg.attempts import MALFORMED, unreadable
from lakehold.subscribe import avro_files
from lakehold.subscribe.remembered import Remembered

MANIFESTS_REMEMBERED = 2_000
"""Manifests whose entries are cached: a manifest never changes, and successive snapshots share nearly all of them."""

LISTS_REMEMBERED = 500
"""Manifest lists that are cached: a history is often read again, and each of its snapshots has one list."""

_PATH_FIELD_ID = 2147483546
_DELETED = 2


class Manifest(NamedTuple):
    """A manifest of a snapshot; a tuple, since a history lists thousands of them again and again.

    Attributes:
        path: The manifest's path.
        content: Whether it lists data files or deletes.
        spec_id: The partition spec of its files.
        sequence_number: Sequence number of the commit that wrote it; no file in it is newer.
        min_sequence_number: Sequence number of its oldest file.
    """

    path: str
    content: ManifestContent
    spec_id: int
    sequence_number: int
    min_sequence_number: int


class LiveFile(NamedTuple):
    """A data or delete file of a snapshot; a tuple, as manifests are.

    Attributes:
        path: The file's path.
        format: Parquet, ORC, Avro or Puffin.
        content: Data, position deletes (deletion vectors among them) or equality deletes.
        spec_id: The partition spec it was written with.
        partition: Values of its partition, in the order of the spec.
        records: Number of rows, or of deletes.
        size_bytes: Size of the file; 0 if unknown.
        sequence_number: The data sequence number.
        encrypted: Whether the file has an encryption key of its own.
        referenced: The only data file that its deletes are about; None for any file of the partition.
        offset: Offset of a deletion vector in its file; None for other files.
        length_bytes: Size of a deletion vector; None for other files.
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
        """Return what identifies the file: its path and offset, since many deletion vectors share a path."""
        return self.path, self.offset


def _manifest(record: Mapping[str, Any]) -> Manifest | None:
    """Convert a record of a manifest list; None if the manifest lists only removed files.

    Counts may be missing in format 1; a missing count is taken as positive (spec, "Manifest Lists").
    """
    if record.get("added_files_count") == 0 and record.get("existing_files_count") == 0:
        return None
    return Manifest(
        path=record["manifest_path"],
        spec_id=record["partition_spec_id"],
        # Format 1 has no deletes and no sequence numbers.
        content=ManifestContent(record.get("content", 0)),
        sequence_number=record.get("sequence_number", 0),
        min_sequence_number=record.get("min_sequence_number", 0),
    )


@dataclass(frozen=True)
class RememberedFiles:
    """A cache of manifest lists and manifests by path, shared by readers of the same tables: neither ever changes.

    Successive lists repeat most records of their predecessor, so `listed` recognizes those by their bytes.
    """

    lists: Remembered[str, dict[str, Manifest]] = field(default_factory=lambda: Remembered(LISTS_REMEMBERED))
    listed: avro_files.RepeatedRecords[Manifest | None] = field(
        default_factory=lambda: avro_files.RepeatedRecords(_manifest, MANIFESTS_REMEMBERED)
    )
    manifests: Remembered[str, tuple[LiveFile, ...]] = field(default_factory=lambda: Remembered(MANIFESTS_REMEMBERED))


class LiveFiles:
    """The files of one table's snapshots.

    Args:
        table: The table as loaded from the catalog.
        remembered: Cached manifests and manifest lists.
    """

    def __init__(self, table: Table, remembered: RememberedFiles) -> None:
        self.table = table
        self._remembered = remembered

    def manifests(self, snapshot_id: int | None) -> dict[str, Manifest]:
        """Return a snapshot's manifests that have live files, by path; empty for None."""
        snapshot = self.table.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
        if snapshot is None:
            return {}
        path = snapshot.manifest_list
        return self._remembered.lists.of(path, lambda: self._listed(path))

    def of(self, manifests: Iterable[Manifest], content: ManifestContent) -> list[LiveFile]:
        """Return the live files of `manifests` that list the given content: data files or deletes."""
        return [file for manifest in manifests if manifest.content == content for file in self._entries(manifest)]

    def read_ahead(self, manifests: Iterable[Manifest], threads: Executor) -> list[LiveFile]:
        """Read manifests side by side, and keep them; return their live files."""
        return list(chain.from_iterable(threads.map(self._entries, manifests)))

    def _listed(self, path: str) -> dict[str, Manifest]:
        content = self._content(path)
        with self._damage_named():
            listed = self._remembered.listed.of(content)
            return {manifest.path: manifest for manifest in listed if manifest is not None}

    def _entries(self, manifest: Manifest) -> tuple[LiveFile, ...]:
        with self._damage_named():
            return self._remembered.manifests.of(manifest.path, lambda: tuple(self._live(manifest)))

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        """Report the table as unreadable if a manifest or a manifest list is malformed."""
        try:
            yield
        except (*MALFORMED, SchemaParseException, UnknownType) as error:
            raise unreadable(".".join(self.table.name()), error) from error

    def _live(self, manifest: Manifest) -> Iterator[LiveFile]:
        for entry in avro_files.records(self._content(manifest.path)):
            if entry["status"] != _DELETED:
                yield _live_file(entry, manifest)

    def _content(self, path: str) -> bytes:
        with self.table.io.new_input(path).open() as file:
            return file.read()


def _live_file(entry: dict[str, Any], manifest: Manifest) -> LiveFile:
    file, sequence_number = entry["data_file"], entry.get("sequence_number")
    return LiveFile(
        path=file["file_path"],
        format=FileFormat[file["file_format"].upper()],
        content=DataFileContent(file.get("content") or 0),
        spec_id=manifest.spec_id,
        partition=tuple(file["partition"].values()),
        records=file["record_count"],
        size_bytes=file["file_size_in_bytes"],
        # Added in the snapshot that wrote the manifest: inherited (spec, "Sequence Number Inheritance").
        sequence_number=manifest.sequence_number if sequence_number is None else sequence_number,
        encrypted=file.get("key_metadata") is not None,
        referenced=file.get("referenced_data_file") or _only_path(file),
        offset=file.get("content_offset"),
        length_bytes=file.get("content_size_in_bytes"),
    )


def _only_path(file: dict[str, Any]) -> str | None:
    """Return the only data file that position deletes are about; None if they may be about several.

    If the lower and the upper bound of the path column are equal, they are that file's path.
    """
    if file.get("content") != DataFileContent.POSITION_DELETES.value:
        return None
    lowest, highest = (
        next((b["value"] for b in file.get(side) or () if b["key"] == _PATH_FIELD_ID), None)
        for side in ("lower_bounds", "upper_bounds")
    )
    return lowest.decode() if lowest is not None and lowest == highest else None
