"""A small client of Flight SQL, which sends what its drivers send, and what no driver would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from lakehold.serve.messages import message, packed, unpacked


class FlightSqlClient:
    """A connection to a server.

    Args:
        address: The server's.
        token: The bearer token, if it needs one.
        options: Further options of the connection.
    """

    def __init__(self, address: str, token: str | None = None, **options: Any) -> None:
        self.connection = flight.connect(address, **options)
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        self.options = flight.FlightCallOptions(headers=headers)

    def close(self) -> None:
        self.connection.close()

    def info(self, command: Any) -> flight.FlightInfo:
        return self.connection.get_flight_info(flight.FlightDescriptor.for_command(packed(command)), self.options)

    def reader(self, command: Any) -> flight.FlightStreamReader:
        return self.connection.do_get(self.info(command).endpoints[0].ticket, self.options)

    def stream(self, text: str) -> flight.FlightStreamReader:
        return self.reader(message("CommandStatementQuery", query=text))

    def rows(self, text: str) -> list[dict[str, Any]]:
        """Run a statement; returns its rows."""
        found: list[dict[str, Any]] = self.stream(text).read_all().to_pylist()
        return found

    def listed(self, name: str, **fields: Any) -> pa.Table:
        """Run a command that lists."""
        return self.reader(message(name, **fields)).read_all()

    def prepare(self, text: str) -> Any:
        request = packed(message("ActionCreatePreparedStatementRequest", query=text))
        (answer,) = self.connection.do_action(flight.Action("CreatePreparedStatement", request), self.options)
        return unpacked(answer.body.to_pybytes())[1]

    def put(self, command: Any, values: pa.Table | None = None) -> bytes:
        """Send values with a command; returns the answer."""
        descriptor = flight.FlightDescriptor.for_command(packed(command))
        sent = values if values is not None else pa.table({"none": pa.array([], pa.null())})
        writer, answers = self.connection.do_put(descriptor, sent.schema, self.options)
        writer.write_table(sent)
        writer.done_writing()
        answer = answers.read()
        writer.close()
        return bytes(answer.to_pybytes()) if answer is not None else b""


def batches(reader: flight.FlightStreamReader) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each batch as it comes."""
    for chunk in reader:
        yield chunk.data.to_pylist()
