"""The database's side of `lakehold verify`: digests of the rows of a table at one point in time.

Digests are 64-bit numbers for rows and keys. A *bucket* is all keys whose digests begin with the same 16 bits (`digest.py`).
`lake_rows.py` computes the same digests for the lake's side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Protocol

import pyarrow as pa

from lakehold.progress import Task
from lakehold.upstream.found.columns import FoundColumn
from lakehold.verify.compared_columns import ComparedColumns
from lakehold.verify.digest import BucketSums, Numbers, column_digests, row_digests
from lakehold.verify.selected_rows import FirstKey, Selection
from lakehold.verify.text_values import text_digests

_ENDS_WITHIN_S = 10.0
"""The read of a database that does not answer is given up after so long: its thread does not keep the process alive."""


class TableRows(Protocol):
    """The interface of the rows of a table in a database at one point in time.

    Attributes:
        estimate: About how many rows it has.
        version: An SQL expression whose text changes whenever the row is written, also with the same values; empty: the
            database has none.
        standby_ms: The time up to which a standby had replayed the log of its primary, epoch milliseconds; None: it is none.
    """

    estimate: int
    version: str
    standby_ms: int | None

    def columns(self) -> tuple[FoundColumn, ...]:
        """Return the columns; none if there is no such table."""

    def batches(self, texts: Sequence[str], first_key: FirstKey | None = None) -> Iterator[pa.RecordBatch]:
        """Yield batches with a text column for each SQL expression: of all rows, or of those that `first_key` selects."""

    def cancel(self) -> None:
        """Make a read of `batches` in another thread fail soon. No other rows can be read afterwards."""


@dataclass(frozen=True)
class DatabaseRows:
    """The digests of a table's rows at one point in time.

    Args:
        rows: Reads the rows as texts.
        compared: The compared columns.
    """

    rows: TableRows
    compared: ComparedColumns

    def sums(self, task: Task) -> BucketSums:
        """Digest all rows, and return the sums of their digests by bucket."""
        total = BucketSums()
        for batch in self.rows.batches(self._texts):
            digests = self._digests(batch)
            total.add(row_digests(digests[: len(self.compared.key)]), row_digests(digests))
            task.advance(batch.num_rows)
        return total

    @contextmanager
    def sums_meanwhile(self, task: Task) -> Iterator[Future[BucketSums]]:
        """Digest all rows while the caller does something else.

        If the caller fails or is interrupted, the read ends, too. If the read fails first, its error is raised.
        """
        found: Future[BucketSums] = Future()
        thread = Thread(target=self._sum_into, args=(found, task), name="lakehold-verify", daemon=True)
        thread.start()
        try:
            yield found
        except BaseException:
            failed = found.exception() if found.done() else None
            self.rows.cancel()
            thread.join(_ENDS_WITHIN_S)
            if failed is not None:
                raise failed from None
            raise
        thread.join()

    def _sum_into(self, found: Future[BucketSums], task: Task) -> None:
        try:
            sums = self.sums(task)
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            found.set_exception(error)
        else:
            found.set_result(sums)

    def selected(self, selection: Selection, first_key: FirstKey | None = None) -> list[pa.RecordBatch]:
        """Return the digests of single rows, of those buckets or keys that `selection` names, as `Selection.rows` gives them.

        With `first_key` (values of the first key column that the rows have) the database finds them by an index, if it has one.
        """
        width, versions = len(self.compared.key), [self.rows.version] if self.rows.version else []
        found = []
        for batch in self.rows.batches([*self._texts, *versions], first_key):
            if batch.num_rows:
                version = column_digests(batch.columns[-1]) if versions else None
                found.append(selection.rows(self._digests(batch), batch.columns[:width], version))
        return found

    @property
    def _texts(self) -> list[str]:
        return [column.text.sql for column in self.compared.all]

    def _digests(self, batch: pa.RecordBatch) -> list[Numbers]:
        return [
            text_digests(texts, column.type, column.text.form)
            for texts, column in zip(batch.columns, self.compared.all, strict=False)
        ]
