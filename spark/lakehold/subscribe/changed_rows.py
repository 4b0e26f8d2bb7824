"""Compares two snapshots of a table and finds the rows that differ, as positions in data files, from metadata alone.

Files that both snapshots share are never read, so the cost follows the size of the change. Only the two states
are compared: snapshots between them may have been expired, and a rollback is a change like any other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import NamedTuple

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyroaring import BitMap64

from lakehold.subscribe.deleted_positions import DeletedPositions, FilesUnreadable
from lakehold.subscribe.live_files import LiveFile, LiveFiles, Manifest
from lakehold.timeline.versions import is_rewrite

_NONE = BitMap64()

_AHEAD = 1_000
"""Manifests, and deletes, that are read before they are needed: fewer than their caches keep."""


@dataclass(frozen=True)
class RowSelection:
    """Rows of one data file that a change added or removed.

    Attributes:
        file: The data file.
        diff: +1 for added rows, -1 for removed rows.
        positions: Positions of the rows; None selects all rows except `hidden`.
        hidden: Positions that deletes hide.
    """

    file: LiveFile
    diff: int
    positions: BitMap64 | None = None
    hidden: BitMap64 = _NONE

    @property
    def is_whole_file(self) -> bool:
        """Return whether the selection has all rows of the file."""
        return self.positions is None and not self.hidden

    @property
    def rows(self) -> int:
        """Return the number of selected rows."""
        return self.file.records - len(self.hidden) if self.positions is None else len(self.positions)


class _Ends(NamedTuple):
    """The manifests of two snapshots by path, and which of them only the old one has, only the new one, or both."""

    old: Mapping[str, Manifest]
    new: Mapping[str, Manifest]
    only_old: Sequence[Manifest]
    only_new: Sequence[Manifest]
    both: Sequence[Manifest]


@dataclass(frozen=True)
class ChangedRows:
    """A comparison of snapshots of one table.

    Args:
        files: The table's files.
        deleted: Reads the table's delete files.
    """

    files: LiveFiles
    deleted: DeletedPositions

    def between(self, before: int | None, after: int | None) -> list[RowSelection]:
        """Select the rows that `after` has and `before` lacks (+1), and the reverse (-1). Rewritten rows come as both.

        Args:
            before: A snapshot's id; None for an empty table.
            after: A snapshot's id; None for an empty table.

        Raises:
            FilesUnreadable: A data or delete file can only be read by Spark.
        """
        if self._is_rewrite(before, after):
            return []
        ends = self._ends(before, after)
        had, has = self._data(ends.only_old), self._data(ends.only_new)
        gone = [file for path, file in had.items() if path not in has]
        come = [file for path, file in has.items() if path not in had]
        selections = [*self._whole(gone, -1, ends.old.values()), *self._whole(come, +1, ends.new.values())]
        if before is not None and after is not None:
            whole = {file.path for file in (*gone, *come)}
            selections += self._hidden_or_shown(ends, whole, lambda: self._may_dangle(before, after))
        for selection in selections:
            _check(selection.file)
        return [selection for selection in selections if selection.rows]

    def read_ahead(self, pairs: Iterable[tuple[int | None, int | None]], threads: Executor) -> None:
        """Read side by side the metadata that `between` needs for pairs of snapshots, so that it finds these files in caches.

        Each file names those to be read after it. So there are three rounds: manifest lists, manifests, deletes.
        """
        changing = [pair for pair in pairs if not self._is_rewrite(*pair)]
        deque(threads.map(self.files.manifests, dict.fromkeys(chain.from_iterable(changing))), maxlen=0)
        ends = [self._ends(*pair) for pair in changing]
        manifests = dict.fromkeys(chain.from_iterable((*end.only_old, *end.only_new) for end in ends))
        found = self.files.read_ahead(islice(manifests, _AHEAD), threads)
        deletes = (file for file in found if file.content == DataFileContent.POSITION_DELETES)
        self.deleted.read_ahead(islice(deletes, _AHEAD), threads)

    def _ends(self, before: int | None, after: int | None) -> _Ends:
        old, new = self.files.manifests(before), self.files.manifests(after)
        only_old = [manifest for path, manifest in old.items() if path not in new]
        only_new = [manifest for path, manifest in new.items() if path not in old]
        return _Ends(old, new, only_old, only_new, [manifest for path, manifest in new.items() if path in old])

    def _is_rewrite(self, before: int | None, after: int | None) -> bool:
        """Return whether no row differs, because both are one snapshot, or `after` only rewrote files of `before`."""
        if before == after:
            return True
        return is_rewrite(before, self.files.table.snapshot_by_id(after) if after is not None else None)

    def _data(self, manifests: Iterable[Manifest]) -> dict[str, LiveFile]:
        return {file.path: file for file in self.files.of(manifests, ManifestContent.DATA)}

    def _whole(self, files: Collection[LiveFile], diff: int, manifests: Iterable[Manifest]) -> list[RowSelection]:
        hidden = self._hidden(files, manifests) if files else {}
        return [RowSelection(file, diff, hidden=hidden.get(file.path, _NONE)) for file in files]

    def _hidden(self, files: Collection[LiveFile], manifests: Iterable[Manifest]) -> dict[str, BitMap64]:
        """Collect the positions that a snapshot's deletes hide in its data `files`.

        Deletes apply only to files that are not newer than the deletes.
        """
        oldest = min(file.sequence_number for file in files)
        recent = [manifest for manifest in manifests if manifest.sequence_number >= oldest]
        deletes = self.files.of(recent, ManifestContent.DELETES)
        _refuse_equality_deletes(deletes, files)
        paths = {file.path for file in files}
        partitions = {(file.spec_id, file.partition) for file in files}
        applying = [
            delete
            for delete in deletes
            if delete.content == DataFileContent.POSITION_DELETES
            and (
                delete.referenced in paths
                if delete.referenced is not None
                else (delete.spec_id, delete.partition) in partitions
            )
        ]
        return {path: positions for path, positions in self.deleted.of(applying).items() if path in paths}

    def _hidden_or_shown(
        self, ends: _Ends, whole: Collection[str], may_dangle: Callable[[], bool]
    ) -> Iterator[RowSelection]:
        """Select rows in data files of both snapshots that the deletes of only one snapshot hide."""
        had, has = self._deletes(ends.only_old), self._deletes(ends.only_new)
        removed = [delete for place, delete in had.items() if place not in has]
        added = [delete for place, delete in has.items() if place not in had]
        changed = [*removed, *added]
        if any(delete.content == DataFileContent.EQUALITY_DELETES for delete in changed):
            raise FilesUnreadable("equality deletes")
        hid, hides = self.deleted.of(removed), self.deleted.of(added)
        staying = [delete for place, delete in has.items() if place in had]
        staying += self._kept(ends.both, changed)
        stays = self.deleted.of(_applying_beside(staying, changed))
        for path in (hid.keys() | hides.keys()) & stays.keys():
            hid[path] = hid.get(path, _NONE) | stays[path]
            hides[path] = hides.get(path, _NONE) | stays[path]
        described = self._described(changed, {*hid, *hides}, ends.new)
        if described and may_dangle():
            live = self._data(ends.new.values())
            described = {path: file for path, file in described.items() if path in live}
        for path in sorted(described.keys() - {*whole}):
            hidden, was_hidden = hides.get(path, _NONE), hid.get(path, _NONE)
            if went := hidden - was_hidden:
                yield RowSelection(described[path], -1, went)
            if (came := was_hidden - hidden) and path in self._data(ends.new.values()):
                yield RowSelection(described[path], +1, came)

    def _may_dangle(self, before: int, after: int) -> bool:
        """Return whether `after` may have deletes for data files that were added and removed since `before`.

        Compaction leaves such deletes in place.
        """
        snapshot = self.files.table.snapshot_by_id(after)
        while snapshot is not None and snapshot.snapshot_id != before:
            if snapshot.summary is None or int(snapshot.summary["deleted-data-files"] or 0):
                return True
            parent = snapshot.parent_snapshot_id
            snapshot = self.files.table.snapshot_by_id(parent) if parent is not None else None
        return snapshot is None

    def _kept(self, manifests: Collection[Manifest], changed: Collection[LiveFile]) -> Collection[LiveFile]:
        """Return the deletes in manifests of both snapshots that may hide rows in files that `changed` is about.

        A deletion vector covers all deletes of its file. Besides it there can only be position deletes from before the table had
        format 3, and the vector includes them. So newer manifests need not be read.
        """
        if not changed:
            return ()
        if _are_vectors(changed):
            manifests = [m for m in manifests if m.min_sequence_number < self._first_with_vectors]
        return self._deletes(manifests).values()

    @cached_property
    def _first_with_vectors(self) -> float:
        """Return the sequence number of the first known format 3 snapshot: the first that has row ids."""
        snapshots = self.files.table.metadata.snapshots
        return min((s.sequence_number or 0 for s in snapshots if s.first_row_id is not None), default=math.inf)

    def _described(
        self, deletes: Collection[LiveFile], paths: Collection[str], manifests: Mapping[str, Manifest]
    ) -> dict[str, LiveFile]:
        """Find the data files at `paths`. A delete that names its file has all that is needed to know about the file."""
        if any(delete.referenced is None for delete in deletes):
            live = self._data(manifests.values())
            return {path: live[path] for path in paths if path in live}
        of_path = {delete.referenced: delete for delete in deletes}
        return {path: _data_file(path, of_path[path]) for path in paths}

    def _deletes(self, manifests: Iterable[Manifest]) -> dict[tuple[str, int | None], LiveFile]:
        return {file.place: file for file in self.files.of(manifests, ManifestContent.DELETES)}


def _are_vectors(deletes: Iterable[LiveFile]) -> bool:
    return all(delete.format == FileFormat.PUFFIN for delete in deletes)


def _applying_beside(staying: Iterable[LiveFile], changed: Collection[LiveFile]) -> list[LiveFile]:
    """Select the deletes in `staying` that may hide rows in files of `changed`; a data file has at most one vector."""
    are_vectors = _are_vectors(changed)
    return [
        delete
        for delete in staying
        if delete.content == DataFileContent.POSITION_DELETES
        and not (are_vectors and delete.format == FileFormat.PUFFIN)
    ]


def _data_file(path: str, delete: LiveFile) -> LiveFile:
    """Describe the data file that `delete` is about; it lies in the same partition."""
    return LiveFile(
        path=path,
        format=_format(path),
        content=DataFileContent.DATA,
        spec_id=delete.spec_id,
        partition=delete.partition,
        records=0,
        size_bytes=0,
        sequence_number=0,
    )


def _format(path: str) -> FileFormat:
    suffix = path.rpartition(".")[2].upper()
    return FileFormat[suffix] if suffix in FileFormat.__members__ else FileFormat.PARQUET


def _refuse_equality_deletes(deletes: Iterable[LiveFile], files: Iterable[LiveFile]) -> None:
    """Raise if equality deletes apply to one of `files`.

    They apply to older files of their partition, or, written without partitions, to all older files (spec, "Scan Planning").
    """
    for delete in deletes:
        if delete.content == DataFileContent.EQUALITY_DELETES and any(
            file.sequence_number < delete.sequence_number
            and (not delete.partition or (file.spec_id, file.partition) == (delete.spec_id, delete.partition))
            for file in files
        ):
            raise FilesUnreadable("equality deletes")


def _check(file: LiveFile) -> None:
    if file.format != FileFormat.PARQUET or file.encrypted:
        raise FilesUnreadable(f"data as {file.format.value} in {file.path}")
