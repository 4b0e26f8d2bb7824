"""The server: requests of Arrow Flight SQL, each answered by the module that knows how.

The server keeps nothing between two requests. The handle of a prepared statement has its text, and the text with the values of
its parameters; a ticket says all that its rows need. So a client that goes away leaves nothing behind, and may go on at another
server of the same lake.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any
from weakref import WeakSet

import pyarrow as pa
from pyarrow import flight

from lakehold.errors import LakeholdError, UpstreamUnavailable
from lakehold.serve.catalog_listing import listing, listing_schema
from lakehold.serve.clients import CLIENT, NoHandshake, Recognition
from lakehold.serve.faults import reported
from lakehold.serve.messages import message, packed, unpacked
from lakehold.serve.parameters import bound, parameter_schema, with_nulls
from lakehold.serve.statement_rows import Statements
from lakehold.serve.streaming import Read, Rows, RowStream, columns_alone, cut
from lakehold.serve.tokens import Tokens

_CREATE_PREPARED, _CLOSE_PREPARED = "CreatePreparedStatement", "ClosePreparedStatement"
_STOPS_WITHIN_S = 5.0
"""How long a server that stops waits for its requests: one whose client takes no rows never ends, and gRPC cannot be told to."""
_STOPPING = "lakehold-stops"
_FOREIGN_HANDLE = "a handle that this server did not give"
_NO_ROWS_CHANGED = 0
"""Drivers of JDBC take -1, which means unknown, for a query, and run the statement once more."""


class FlightSqlServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """A server of Flight SQL over one lake. It listens as soon as it is made.

    Args:
        address: `grpc://host:port` or `grpc+tls://host:port`; port 0 takes a free one.
        statements: Runs the statements.
        tokens: The tokens that admit clients.
        tls: The certificate and its key, as PEM; None: no TLS.
    """

    def __init__(
        self, address: str, statements: Statements, tokens: Tokens, tls: tuple[bytes, bytes] | None = None
    ) -> None:
        super().__init__(
            address,
            auth_handler=NoHandshake(),
            tls_certificates=[tls] if tls else None,
            middleware={CLIENT: Recognition(tokens)},
        )
        self._statements = statements
        self._is_closing = threading.Event()
        self._streams: WeakSet[RowStream] = WeakSet()

    def close(self) -> None:
        """End what clients read, and stop; requests whose clients take no rows are abandoned."""
        self._is_closing.set()
        stopping = threading.Thread(target=self.shutdown, name=_STOPPING, daemon=True)
        stopping.start()
        stopping.join(_STOPS_WITHIN_S)
        for stream in list(self._streams):
            stream.close()

    def get_flight_info(self, context: Any, descriptor: Any) -> flight.FlightInfo:
        """Describe the rows of a command, and give the ticket for them."""
        with reported():
            name, command = _command(descriptor)
            schema = self._schema(context, name, command)
            text = _text_of(name, command)
            ticket = descriptor.command
            if text is not None:
                ticket = packed(message("TicketStatementQuery", statement_handle=text.encode()))
            return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(flight.Ticket(ticket), [])], -1, -1)

    def get_schema(self, context: Any, descriptor: Any) -> flight.SchemaResult:
        """Describe the rows of a command."""
        with reported():
            return flight.SchemaResult(self._schema(context, *_command(descriptor)))

    def do_get(self, context: Any, ticket: Any) -> flight.FlightDataStream:
        """Send the rows of a ticket."""
        with reported():
            name, command = unpacked(ticket.ticket)
            if listing_schema(name, command) is not None:
                tables = context.get_middleware(CLIENT).access.tables
                listed = listing(self._statements.lake, name, command, tables)
                return flight.GeneratorStream(listed.schema, cut(listed))
            stream = self._stream(context, self._read(context, _needed_text(name, command)))
            schema, batches = stream.schema(), _batches(stream)
            # Flight drops what it cannot send. A generator that has begun then ends its stream; one that has not does nothing.
            next(batches)
            return flight.GeneratorStream(schema, batches)

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        """Prepare a statement, which runs nothing, or forget it, which needs nothing."""
        with reported():
            if action.type == _CLOSE_PREPARED:
                return []
            if action.type == _CREATE_PREPARED:
                _, request = unpacked(action.body.to_pybytes())
                return [self._prepared(context, request.query)]
            raise _unsupported(action.type)

    def list_actions(self, context: Any) -> list[tuple[str, str]]:  # noqa: ARG002 - the signature is Flight's
        """List the actions."""
        return [(_CREATE_PREPARED, "Prepares a statement."), (_CLOSE_PREPARED, "Forgets a prepared statement.")]

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Take the values of a prepared statement's parameters, or run a statement that has no rows."""
        with reported():
            name, command = _command(descriptor)
            text = _needed_text(name, command)
            if name.startswith("CommandPreparedStatement"):
                # A driver sends the handle that it got last, with other values: they belong into the text as it was prepared.
                prepared = _statement_of(command.prepared_statement_handle).text
                text = bound(prepared, (chunk.data for chunk in reader))
            if name == "CommandPreparedStatementQuery":
                handle = packed(message("PreparedStatement", text=prepared, bound=text))
                answer = message("DoPutPreparedStatementResult", prepared_statement_handle=handle)
            else:
                self._run(context, text)
                answer = message("DoPutUpdateResult", record_count=_NO_ROWS_CHANGED)
            writer.write(answer.SerializeToString())

    def list_flights(self, context: Any, criteria: Any) -> Iterator[flight.FlightInfo]:  # noqa: ARG002
        """List nothing: the commands of Flight SQL list what the lake has."""
        return iter(())

    def _schema(self, context: Any, name: str, command: Any) -> pa.Schema:
        listed = listing_schema(name, command)
        return listed if listed is not None else self._columns(context, _needed_text(name, command))

    def _columns(self, context: Any, text: str) -> pa.Schema:
        read = self._read(context, with_nulls(text))
        with closing(self._stream(context, columns_alone(read))) as stream:
            return stream.schema()

    def _prepared(self, context: Any, text: str) -> bytes:
        changes = self._statements.admitted(with_nulls(text)).changes
        columns = pa.schema([]) if changes else self._columns(context, text)
        parameters = parameter_schema(text)
        answer = message(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=packed(message("PreparedStatement", text=text)),
            dataset_schema=columns.serialize().to_pybytes() if len(columns) else b"",
            parameter_schema=parameters.serialize().to_pybytes() if len(parameters) else b"",
            is_update=changes,
        )
        return packed(answer)

    def _run(self, context: Any, text: str) -> None:
        stream = self._stream(context, self._read(context, text))
        stream.schema()
        for _ in stream.tables():
            pass

    def _stream(self, context: Any, read: Read) -> RowStream:
        stream = RowStream(read, partial(self._is_over, context))
        self._streams.add(stream)
        return stream

    def _read(self, context: Any, text: str) -> Read:
        access = context.get_middleware(CLIENT).access

        def read(stop: threading.Event) -> Rows:
            yield from self._statements.rows(self._statements.admitted(text), access, stop)

        return read

    def _is_over(self, context: Any) -> bool:
        """Return whether the client has left. A server that stops raises: rows that end without error are complete."""
        if self._is_closing.is_set():
            hint = "Connect again when the server runs."
            raise UpstreamUnavailable("the server stops", code="server-stops", hint=hint)
        return bool(context.is_cancelled())


def has_abandoned_requests() -> bool:
    """Return whether a server still waits for clients that take no rows: the end of Python would wait for them, too."""
    return any(thread.name == _STOPPING for thread in threading.enumerate())


def _batches(stream: RowStream) -> Iterator[pa.Table | None]:
    """Yield None, then the rows; closing the iterator after that ends the reading."""
    with closing(stream), reported():
        yield None
        for table in stream.tables():
            yield from cut(table)


def _command(descriptor: Any) -> tuple[str, Any]:
    return unpacked(descriptor.command or b"")


_TEXT_FIELDS: dict[str, Callable[[Any], bytes | str]] = {
    "CommandStatementQuery": lambda command: command.query,
    "CommandStatementUpdate": lambda command: command.query,
    "CommandPreparedStatementQuery": lambda command: _text_to_run(command.prepared_statement_handle),
    "CommandPreparedStatementUpdate": lambda command: _text_to_run(command.prepared_statement_handle),
    "TicketStatementQuery": lambda command: command.statement_handle,
}


def _text_of(name: str, command: Any) -> str | None:
    """Return the text of the statement in a command; None if there is none."""
    found = _TEXT_FIELDS[name](command) if name in _TEXT_FIELDS else None
    try:
        return found.decode() if isinstance(found, bytes) else found
    except UnicodeDecodeError:
        raise _unsupported(_FOREIGN_HANDLE) from None


def _text_to_run(handle: bytes) -> str:
    """Return the text of a prepared statement, with the values of its parameters if it has them."""
    statement = _statement_of(handle)
    return str(statement.bound if statement.HasField("bound") else statement.text)


def _statement_of(handle: bytes) -> Any:
    name, statement = unpacked(handle)
    if name != "PreparedStatement":
        raise _unsupported(_FOREIGN_HANDLE)
    return statement


def _needed_text(name: str, command: Any) -> str:
    text = _text_of(name, command)
    if text is None:
        raise _unsupported(name)
    return text


def _unsupported(what: str) -> LakeholdError:
    return LakeholdError(
        f"the server does not answer {what[:100]}",
        code="flight-request",
        detail="It runs statements and prepared statements, and lists catalogs, schemas, tables and keys.",
    )
