"""Which files a snapshot consists of, from its manifests: data files, and the delete files that apply to them.

PyIceberg reads manifests as of format 2, without what deletion vectors need (which file they are about, where they lie in
theirs), and in Python; a hundred snapshots of a table have a hundred lists of hundreds of manifests, so fastavro reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastavro.schema import SchemaParseException, UnknownType
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import Table

from lakehold.iceberg.attempts import MALFORMED, unreadable
from lakehold.subscribe import avro_files
from lakehold.subscribe.remembered import Remembered

MANIFESTS_REMEMBERED = 2_000
"""Manifests whose entries are kept: a manifest never changes, and successive snapshots share nearly all of theirs."""

LISTS_REMEMBERED = 500
"""Manifest lists that are kept: a history is often read again, and each of its snapshots has one."""

_PATH_FIELD_ID = 2147483546
_DELETED = 2


class Manifest(NamedTuple):
    """A manifest of a snapshot; a tuple, since a history lists thousands of them again and again.

    Attributes:
        path: Where it is.
        content: Data files or deletes.
        spec_id: The partition spec of its files.
        sequence_number: Of the commit that wrote it: no file in it is newer.
        min_sequence_number: Of its oldest file.
    """

    path: str
    content: ManifestContent
    spec_id: int
    sequence_number: int
    min_sequence_number: int


class LiveFile(NamedTuple):
    """A data or delete file of a snapshot; a tuple, as manifests are.

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


def _manifest(record: Mapping[str, Any]) -> Manifest | None:
    """A record of a manifest list; None: no file is left in the manifest, it only says what has gone.

    Counts may be missing in format 1; unknown ones count as some (spec, "Manifest Lists").
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
    """Manifest lists and manifests by path, shared by those who read the same tables again: neither ever changes.

    Successive lists name nearly the same manifests, each as the one before did.
    """

    lists: Remembered[str, dict[str, Manifest]] = field(default_factory=lambda: Remembered(LISTS_REMEMBERED))
    listed: avro_files.RepeatedRecords[Manifest | None] = field(
        default_factory=lambda: avro_files.RepeatedRecords(_manifest, MANIFESTS_REMEMBERED)
    )
    manifests: Remembered[str, tuple[LiveFile, ...]] = field(default_factory=lambda: Remembered(MANIFESTS_REMEMBERED))


class LiveFiles:
    """The files of one table's snapshots.

    Args:
        table: As loaded from the catalog.
        remembered: What is known of them.
    """

    def __init__(self, table: Table, remembered: RememberedFiles) -> None:
        self.table = table
        self._remembered = remembered

    def manifests(self, snapshot_id: int | None) -> dict[str, Manifest]:
        """The manifests of a snapshot that have live files, by path; none before the first snapshot."""
        snapshot = self.table.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
        if snapshot is None:
            return {}
        path = snapshot.manifest_list
        return self._remembered.lists.of(path, lambda: self._listed(path))

    def of(self, manifests: Iterable[Manifest], content: ManifestContent) -> list[LiveFile]:
        """The live files in those of `manifests` that list data files, or deletes."""
        return [file for manifest in manifests if manifest.content == content for file in self._entries(manifest)]

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
        """Raise that the table is unreadable where a manifest or a list of them makes no sense."""
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
    """The data file of position deletes that are all about one: its path is the lower and the upper bound."""
    if file.get("content") != DataFileContent.POSITION_DELETES.value:
        return None
    lowest, highest = (
        next((b["value"] for b in file.get(side) or () if b["key"] == _PATH_FIELD_ID), None)
        for side in ("lower_bounds", "upper_bounds")
    )
    return lowest.decode() if lowest is not None and lowest == highest else None
