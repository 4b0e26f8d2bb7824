"""Two snapshots of a table -> the rows in which they differ, as positions in data files, from metadata alone.

What both snapshots share is never looked at, so the cost follows the change (design, law 4). The states are compared, not the
snapshots between them: those may have been expired, and a rollback is a change like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.table.snapshots import Operation
from pyroaring import BitMap64

from lakehold.subscribe.deleted_positions import DeletedPositions, FilesUnreadable
from lakehold.subscribe.live_files import LiveFile, LiveFiles, Manifest

_NONE = BitMap64()


@dataclass(frozen=True)
class RowSelection:
    """Rows of one data file that came or went.

    Attributes:
        file: The data file.
        diff: +1: they came; -1: they went.
        positions: Which rows; None: all but `hidden`.
        hidden: Rows that deletes hide.
    """

    file: LiveFile
    diff: int
    positions: BitMap64 | None = None
    hidden: BitMap64 = _NONE

    @property
    def is_whole_file(self) -> bool:
        """Whether these are all rows of the file."""
        return self.positions is None and not self.hidden

    @property
    def rows(self) -> int:
        """How many rows these are."""
        return self.file.records - len(self.hidden) if self.positions is None else len(self.positions)


class _Ends(NamedTuple):
    """The manifests of two snapshots by path, and those that only one of them has, or both."""

    old: Mapping[str, Manifest]
    new: Mapping[str, Manifest]
    only_old: Sequence[Manifest]
    only_new: Sequence[Manifest]
    both: Sequence[Manifest]


@dataclass(frozen=True)
class ChangedRows:
    """Compares snapshots of one table.

    Args:
        files: Its files.
        deleted: Reads its delete files.
    """

    files: LiveFiles
    deleted: DeletedPositions

    def between(self, before: int | None, after: int | None) -> list[RowSelection]:
        """The rows of `after` that `before` has not (+1), and the other way round (-1); rows that were rewritten come as both.

        Args:
            before: A snapshot's id; None: no rows.
            after: A snapshot's id; None: no rows.

        Raises:
            FilesUnreadable: Some file or delete cannot be read one by one.
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

    def _ends(self, before: int | None, after: int | None) -> _Ends:
        old, new = self.files.manifests(before), self.files.manifests(after)
        only_old = [manifest for path, manifest in old.items() if path not in new]
        only_new = [manifest for path, manifest in new.items() if path not in old]
        return _Ends(old, new, only_old, only_new, [manifest for path, manifest in new.items() if path in old])

    def _is_rewrite(self, before: int | None, after: int | None) -> bool:
        """Whether `after` only rewrote what `before` has: compaction changes no row."""
        if before == after:
            return True
        snapshot = self.files.table.snapshot_by_id(after) if after is not None else None
        return (
            snapshot is not None
            and snapshot.parent_snapshot_id == before
            and snapshot.summary is not None
            and snapshot.summary.operation == Operation.REPLACE
        )

    def _data(self, manifests: Iterable[Manifest]) -> dict[str, LiveFile]:
        return {file.path: file for file in self.files.of(manifests, ManifestContent.DATA)}

    def _whole(self, files: Collection[LiveFile], diff: int, manifests: Iterable[Manifest]) -> list[RowSelection]:
        hidden = self._hidden(files, manifests) if files else {}
        return [RowSelection(file, diff, hidden=hidden.get(file.path, _NONE)) for file in files]

    def _hidden(self, files: Collection[LiveFile], manifests: Iterable[Manifest]) -> dict[str, BitMap64]:
        """What the deletes of a snapshot hide of its data `files`; deletes apply to files that are not newer than they."""
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
        """Rows of data files that both snapshots have, which deletes of only one of them hide."""
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
        """Whether `after` may have deletes of data files that came and went since `before`: compaction leaves them behind."""
        snapshot = self.files.table.snapshot_by_id(after)
        while snapshot is not None and snapshot.snapshot_id != before:
            if snapshot.summary is None or int(snapshot.summary["deleted-data-files"] or 0):
                return True
            parent = snapshot.parent_snapshot_id
            snapshot = self.files.table.snapshot_by_id(parent) if parent is not None else None
        return snapshot is None

    def _kept(self, manifests: Collection[Manifest], changed: Collection[LiveFile]) -> Collection[LiveFile]:
        """The deletes in manifests of both snapshots, as far as they may hide rows of the same files as `changed`.

        A deletion vector says all that is hidden of its file. Beside it there are at most position deletes from before the table
        was of format 3, which it has taken over: nothing newer has to be looked at.
        """
        if not changed:
            return ()
        if _are_vectors(changed):
            manifests = [m for m in manifests if m.min_sequence_number < self._first_with_vectors]
        return self._deletes(manifests).values()

    @cached_property
    def _first_with_vectors(self) -> float:
        """The sequence number of the first known snapshot of format 3, the first that has row ids."""
        snapshots = self.files.table.metadata.snapshots
        return min((s.sequence_number or 0 for s in snapshots if s.first_row_id is not None), default=math.inf)

    def _described(
        self, deletes: Collection[LiveFile], paths: Collection[str], manifests: Mapping[str, Manifest]
    ) -> dict[str, LiveFile]:
        """The data files at `paths`; deletes that are about one file tell enough of it."""
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
    """Those of `staying` that may hide rows of the same files as `changed`; a data file has one deletion vector only."""
    are_vectors = _are_vectors(changed)
    return [
        delete
        for delete in staying
        if delete.content == DataFileContent.POSITION_DELETES
        and not (are_vectors and delete.format == FileFormat.PUFFIN)
    ]


def _data_file(path: str, delete: LiveFile) -> LiveFile:
    """The data file that `delete` is about: it lies in the same partition."""
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
    """Equality deletes apply to older files of their partition, those of an unpartitioned spec to all (spec, "Scan Planning")."""
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
