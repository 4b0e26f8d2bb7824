"""Time limits for a catalog in PostgreSQL: by itself, its client waits for an answer for ever."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.exc import DisconnectionError

_IDLE_S = 30.0
"""A connection that was idle for longer is tested before its use: a firewall or a restart may have ended it."""

_CONNECTING = {"keepalives_idle": 60, "keepalives_interval": 10, "keepalives_count": 3}

_CONNECT_TIMED_OUT = "timeout expired"
"""How libpq says that no connection was made in time."""


def limit(engine: Engine, timeout_s: float) -> None:
    """Let each use of a connection of `engine` fail with a `TimeoutError` when it takes longer than `timeout_s`.

    Neither libpq nor a setting of the server ends the wait for a server that is suspended or cut off. So a timer shuts the
    connection's socket, which the waiting thread sees at once.
    """
    dialect = engine.dialect
    failed: type[Exception] = dialect.loaded_dbapi.Error

    def connect(_dialect: object, _record: object, _arguments: object, parameters: dict[str, Any]) -> None:
        for name, value in {**_CONNECTING, "connect_timeout": math.ceil(timeout_s)}.items():
            parameters.setdefault(name, value)

    def take(connection: Any, record: Any, _proxy: object) -> None:
        deadline = threading.Timer(timeout_s, _shut, (connection, record.info, failed))
        deadline.daemon = True
        record.info["deadline"] = deadline
        deadline.start()
        if time.monotonic() - record.info.get("idle_since", math.inf) > _IDLE_S:
            try:
                dialect.do_ping(connection)
            except failed as error:
                deadline.cancel()
                # The pool connects again.
                raise DisconnectionError from error

    def give_back(_connection: object, record: Any) -> None:
        if deadline := record.info.pop("deadline", None):
            deadline.cancel()
        record.info["idle_since"] = time.monotonic()

    def describe(context: ExceptionContext) -> None:
        connection = context.connection
        is_shut = connection is not None and "is_shut" in connection.info
        if is_shut or _CONNECT_TIMED_OUT in str(context.original_exception):
            raise TimeoutError(f"no answer within {timeout_s:g} s")

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "checkout", take)
    event.listen(engine, "checkin", give_back)
    event.listen(engine, "handle_error", describe)


def _shut(connection: Any, info: dict[str, Any], failed: type[Exception]) -> None:
    info["is_shut"] = True
    with suppress(OSError, failed), socket.socket(fileno=os.dup(connection.fileno())) as shared:
        shared.shutdown(socket.SHUT_RDWR)
