"""Files of a table that are worth rewriting: `survey` asks for them when it plans a table's maintenance. Pure.

A rewrite costs reading and writing, and the old files stay until no history needs them. So a file is rewritten while it is
small, together with others, and later only when many of its rows are deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent

from lakehold.subscribe.live_files import LiveFile

SMALL_FILE_BYTES = 32 * 1024 * 1024
"""Data files below this size are compacted. It is two row groups of a table that a source feeds: a merge skips as much within a
larger file."""

SMALL_FILES_MOST = 8
"""Number of small files in a partition at which they are compacted."""

DELETED_SHARE = 0.3
"""Share of deleted rows at which a file is rewritten without them."""

MANIFESTS_MOST = 40
"""Number of manifests at which they are compacted: planning a read opens each of them."""

_TARGET_PROPERTY = "write.target-file-size-bytes"
_SMALL_SHARE_OF_TARGET = 0.75


@dataclass(frozen=True)
class Rewrite:
    """The files of a table that are rewritten.

    Attributes:
        small_files: Small data files that are compacted.
        deleted_files: Larger data files with many deleted rows.
        rewritten_bytes: Size of all of them.
        small_below_bytes: A data file below this size is small.
        delete_files: Files of position deletes that are compacted.
        manifests: Manifests that are compacted.
    """

    small_files: int = 0
    deleted_files: int = 0
    rewritten_bytes: int = 0
    small_below_bytes: int = SMALL_FILE_BYTES
    delete_files: int = 0
    manifests: int = 0

    @property
    def data_files(self) -> int:
        """Return the number of data files that are rewritten."""
        return self.small_files + self.deleted_files


def has_few_files(summary: Mapping[str, str]) -> bool:
    """Return whether a snapshot's summary alone shows that none of its files is worth rewriting: they need not be listed."""
    data, deletes = (int(summary.get(f"total-{kind}-files", SMALL_FILES_MOST)) for kind in ("data", "delete"))
    return data < SMALL_FILES_MOST and deletes == 0


def rewrite_of(
    data: Sequence[LiveFile], deletes: Sequence[LiveFile], manifests: int, properties: Mapping[str, str]
) -> Rewrite:
    """Choose the files of a snapshot that are worth rewriting.

    Args:
        data: Its data files.
        deletes: Its delete files.
        manifests: How many manifests it has.
        properties: Properties of the table.
    """
    target = int(properties.get(_TARGET_PROPERTY, 2**63 - 1))
    small_below = min(SMALL_FILE_BYTES, int(target * _SMALL_SHARE_OF_TARGET))
    small = _gathered([file for file in data if file.size_bytes < small_below])
    thinned = [file for file in _mostly_deleted(data, deletes) if file not in small]
    apart = [file for file in deletes if file.content is DataFileContent.POSITION_DELETES and not file.length_bytes]
    scattered = {_place(file) for file in _gathered(_superfluous(data, apart))}
    return Rewrite(
        small_files=len(small),
        deleted_files=len(thinned),
        rewritten_bytes=sum(file.size_bytes for file in (*small, *thinned)),
        small_below_bytes=small_below,
        delete_files=sum(_place(file) in scattered for file in apart),
        manifests=manifests if manifests >= MANIFESTS_MOST else 0,
    )


def _gathered(small: Sequence[LiveFile]) -> set[LiveFile]:
    of_partition: dict[tuple[int, str], list[LiveFile]] = defaultdict(list)
    for file in small:
        of_partition[_place(file)].append(file)
    return {file for files in of_partition.values() if len(files) >= SMALL_FILES_MOST for file in files}


def _place(file: LiveFile) -> tuple[int, str]:
    return file.spec_id, repr(file.partition)


def _superfluous(data: Sequence[LiveFile], deletes: Sequence[LiveFile]) -> list[LiveFile]:
    """Return the files of position deletes that a compaction removes: it leaves one for each data file that has deletes.

    That is so with `write.delete.granularity = file`, which tables of lakehold have.
    """
    left = {file.path for file in data}
    found = []
    for file in deletes:
        if file.referenced in left:
            left.remove(file.referenced)
        else:
            found.append(file)
    return found


def _mostly_deleted(data: Sequence[LiveFile], deletes: Sequence[LiveFile]) -> list[LiveFile]:
    deleted: dict[str, int] = defaultdict(int)
    for file in deletes:
        if file.referenced is not None:
            deleted[file.referenced] += file.records
    return [file for file in data if deleted[file.path] and deleted[file.path] >= DELETED_SHARE * file.records]
