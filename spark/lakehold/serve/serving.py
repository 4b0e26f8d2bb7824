"""Serving a lake until the process is asked to stop."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lakehold.errors import LakeholdError, SettingsError
from lakehold.lake import Lake
from lakehold.serve.server import FlightSqlServer
from lakehold.serve.statement_rows import Statements
from lakehold.serve.statement_slots import StatementSlots
from lakehold.serve.tokens import Access, Tokens, read_tokens


@dataclass(frozen=True)
class Door:
    """The address of a server, and the files that say for whom it is.

    Attributes:
        host: The address to listen on.
        port: The port; 0 takes a free one.
        tokens: File of the tokens that admit clients; None: everybody who reaches the port may read the lake.
        certificate: File of the TLS certificate; None: no TLS.
        key: File of the certificate's key.
        max_statements: How many statements run at the same time, at most; of one token among several half as many.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tokens: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    max_statements: int = 32

    @property
    def is_on_loopback(self) -> bool:
        """Return whether only programs on this machine reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@contextmanager
def served(lake: Lake, door: Door) -> Iterator[str]:
    """Serve a lake inside the block, and return the address: `grpc://host:port`, or `grpc+tls://host:port`.

    Raises:
        SettingsError: The door would be open to other machines without TLS or tokens, or a file cannot be used.
        LakeholdError: The port is taken, or the address is none of this machine.
    """
    _refuse_open_door(door)
    tokens = read_tokens(door.tokens) if door.tokens else Tokens(default=Access(lake.settings.role))
    tls = _tls(door)
    scheme = "grpc+tls" if tls else "grpc"
    host = f"[{door.host}]" if ":" in door.host else door.host
    share = max(1, door.max_statements // 2) if len(tokens.accesses) > 1 else door.max_statements
    statements = Statements(lake, StatementSlots(door.max_statements, share))
    lake.spark  # noqa: B018 - the first client need not wait for Spark to start
    try:
        server = FlightSqlServer(f"{scheme}://{host}:{door.port}", statements, tokens, tls)
    except OSError as error:
        raise LakeholdError(
            f"the server cannot listen on {host}:{door.port}",
            code="serve-address",
            detail=f"{error}.",
            hint="Choose another --port, or an address of this machine as --host; or the certificate and key do not fit.",
        ) from error
    try:
        yield f"{scheme}://{host}:{server.port}"
    finally:
        server.close()
        statements.close()


def _refuse_open_door(door: Door) -> None:
    lacks = [
        option
        for option, given in (("--certificate and --key", door.certificate and door.key), ("--tokens", door.tokens))
        if not given
    ]
    if (door.certificate is None) != (door.key is None):
        raise SettingsError(
            "a certificate needs its key", code="serve-exposed", hint="Give --certificate and --key, or neither."
        )
    if lacks and not door.is_on_loopback:
        raise SettingsError(
            f"{door.host} can be reached from other machines",
            code="serve-exposed",
            detail=f"Missing: {' and '.join(lacks)}. Without them anybody could read the lake, or listen.",
            hint="Give the missing options, or serve on 127.0.0.1.",
        )


def _tls(door: Door) -> tuple[bytes, bytes] | None:
    if door.certificate is None or door.key is None:
        return None
    try:
        return door.certificate.read_bytes(), door.key.read_bytes()
    except OSError as error:
        raise SettingsError(
            f'the file "{error.filename}" cannot be read', code="serve-exposed", detail=f"{error.strerror}."
        ) from error
