"""The rows of a client's statement, as a stream of Arrow tables."""

from __future__ import annotations

from threading import Event, Lock
from typing import Any

import pyarrow as pa

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.serve.admission import Admitted, Kind, admitted
from lakehold.serve.query_sessions import QuerySessions
from lakehold.serve.statement_slots import StatementSlots
from lakehold.serve.streaming import Rows
from lakehold.serve.tokens import Access
from lakehold.spark_errors import readable_each
from lakehold.sql.result import Result
from lakehold.subscribe.on_spark import streamed
from lakehold.subscribe.output_batches import OutputChunk
from lakehold.subscribe.row_values import of_arrow_types
from lakehold.subscribe.spark_types import arrow_schema_of

_NOTICES = pa.schema([pa.field("notice", pa.utf8())])


class Statements:
    """The statements that clients run on a lake.

    Args:
        lake: The lake.
        slots: Bounds how many run at the same time.

    Attributes:
        lake: The lake, through which all clients read.
    """

    def __init__(self, lake: Lake, slots: StatementSlots) -> None:
        self.lake = lake
        self._slots = slots
        self._sessions = QuerySessions(lake)
        self._subscribing = lake.subscribing_in(self._sessions.current)
        self._of_roles: dict[str | None, Lake] = {}
        self._opening = Lock()

    def close(self) -> None:
        """Close what was opened for the clients' queries and roles."""
        self._sessions.close()
        for lake in self._of_roles.values():
            lake.close()

    def changes(self, text: str, access: Access) -> bool:
        """Parse a statement, check that a client may run it, and return whether it changes anything in the lake."""
        with self._slots.taken(access.line, Event()):
            return self._admitted(text).changes

    def rows(self, text: str, access: Access, stop: Event) -> Rows:
        """Yield the columns of a statement's rows, then the rows, as they come. What has effects runs after the columns.

        Args:
            text: The statement.
            access: What the token of the client gives.
            stop: Ends the rows when set.

        Raises:
            LakeholdError: Clients may not run the statement.
            PermissionDenied: The statement reads a table that the client may not read.
            UpstreamUnavailable: Too many statements run.
        """
        # Parsing a long text takes the processor for seconds, so it needs a slot, too.
        with self._slots.taken(access.line, stop):
            statement = self._admitted(text)
            if access.tables is not None:
                access.tables.check(statement, self.lake.holds.all)
            try:
                yield from self._rows(statement, access.role, stop)
            except LakeholdError as error:
                if access.tables is not None:
                    access.tables.conceal_others(error)
                raise

    def _admitted(self, text: str) -> Admitted:
        return admitted(text, self.lake.settings.catalog_name, self._is_other_catalog)

    def _rows(self, statement: Admitted, role: str | None, stop: Event) -> Rows:
        match statement.kind:
            case Kind.SUBSCRIPTION:
                yield from self._subscription(statement.text, stop)
            case Kind.QUERY:
                yield from self._query(statement.text, stop)
            case Kind.ANSWER:
                found = _as_table(self._of(role).sql(statement.text))
                yield found.schema
                yield found
            case Kind.HOLD_CHANGE:
                yield _NOTICES
                notices = self._of(role).sql(statement.text).notices
                yield pa.Table.from_pydict({"notice": list(notices)}, _NOTICES)

    def _subscription(self, text: str, stop: Event) -> Rows:
        with self._sessions.borrowed(stop):
            yield from readable_each(self._chunks(text, stop))

    def _chunks(self, text: str, stop: Event) -> Rows:
        opened = self.lake.open_subscription(text, self._subscribing)
        yield opened.schema
        for chunk in opened.follow(stop):
            if isinstance(chunk, OutputChunk):
                yield chunk.rows

    def _query(self, text: str, stop: Event) -> Rows:
        with self._sessions.borrowed(stop), self.lake.open_query(text, self._sessions.current()) as frame:
            rows = of_arrow_types(frame)
            types = arrow_schema_of(rows.schema).types
            schema = pa.schema(list(zip(frame.columns, types, strict=True)))
            yield schema
            yield from streamed(rows, schema)

    def _of(self, role: str | None) -> Lake:
        """Return the lake as a program with this role has it."""
        if role == self.lake.settings.role:
            return self.lake
        with self._opening:
            if role not in self._of_roles:
                settings = self.lake.settings.model_copy(update={"role": role})
                self._of_roles[role] = Lake(settings, lambda: self.lake.spark)
            return self._of_roles[role]

    def _is_other_catalog(self, name: str) -> bool:
        return self.lake.spark.conf.get(f"spark.sql.catalog.{name}", None) is not None


def _as_table(result: Result) -> pa.Table:
    columns = zip(*result.rows, strict=True) if result.rows else ([] for _ in result.columns)
    arrays = [_as_array(list(values)) for values in columns]
    return pa.Table.from_arrays(
        arrays, schema=pa.schema(list(zip(result.columns, (a.type for a in arrays), strict=True)))
    )


def _as_array(values: list[Any]) -> pa.Array:
    """Convert the values of a short answer; those without a common type become text, and nothing but nulls counts as text."""
    try:
        found = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values], pa.utf8())
    return found.cast(pa.utf8()) if pa.types.is_null(found.type) else found
