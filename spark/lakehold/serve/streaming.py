"""Rows that are read in a thread of their own, while the thread of the request hands them on and watches its client.

A request's thread belongs to gRPC, and is blocked while the client takes no rows. The rows' thread stays the same from the
first row to the last one, as Spark needs it, and ends when the client has left.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing

import pyarrow as pa

_AHEAD = 2
"""Tables that are read before the client has taken them."""
_LOOK_S = 0.2
"""How often a request without rows looks whether its client has left."""
_BATCH_BYTES = 4 << 20
"""Size from which a batch is cut: gRPC's clients in Go, as ADBC's driver is one, take no message over 16 MiB by default."""

Rows = Generator[pa.Schema | pa.Table, None, None]
"""The columns, then tables of rows."""
Read = Callable[[threading.Event], Rows]
"""Begins to read rows, and ends when the event is set."""


class RowStream:
    """The rows of one request.

    Args:
        read: Begins to read them.
        is_over: Returns whether nobody waits for the rows any more; raises to end them with an error.
    """

    def __init__(self, read: Read, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self._stop = threading.Event()
        self._tables: queue.Queue[pa.Schema | pa.Table | BaseException | None] = queue.Queue(_AHEAD)
        self._thread = threading.Thread(target=self._read, args=(read,), name="lakehold-rows", daemon=True)
        self._thread.start()

    def schema(self) -> pa.Schema:
        """Wait for the columns, and return them; an error ends the reading."""
        try:
            found = self._next()
        except BaseException:
            self.close()
            raise
        return found if found is not None else pa.schema([])

    def tables(self) -> Iterator[pa.Table]:
        """Yield the tables as they come; closing the iterator ends the reading."""
        try:
            while (table := self._next()) is not None:
                yield table
        finally:
            self.close()

    def close(self) -> None:
        """End the reading."""
        self._stop.set()

    def _next(self) -> pa.Schema | pa.Table | None:
        while not self._is_over():
            try:
                found = self._tables.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            return found
        self.close()
        return None

    def _read(self, read: Read) -> None:
        try:
            with closing(read(self._stop)) as found:
                if all(map(self._put, found)):
                    self._put(None)
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread of the request
            self._put(error)

    def _put(self, each: pa.Schema | pa.Table | BaseException | None) -> bool:
        while not self._stop.is_set():
            try:
                self._tables.put(each, timeout=_LOOK_S)
            except queue.Full:
                continue
            return True
        return False


def columns_alone(read: Read) -> Read:
    """Read only the columns: no row is read, and nothing that the rows would need is run."""

    def read_columns(stop: threading.Event) -> Rows:
        with closing(read(stop)) as rows:
            yield next(rows)

    return read_columns


def cut(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows in tables that fit in a message; a wider row is alone."""
    if table.nbytes <= _BATCH_BYTES or table.num_rows <= 1:
        yield table
        return
    middle = table.num_rows // 2
    yield from cut(table.slice(0, middle))
    yield from cut(table.slice(middle))
