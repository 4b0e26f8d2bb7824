"""Describes why a database did not show all rows of a table to `lakehold verify`, by the code of its error. Pure."""

from __future__ import annotations

from enum import Enum, auto

from lakehold.definitions import ConnectionType
from lakehold.errors import UpstreamError, UpstreamRefused, UpstreamUnavailable
from lakehold.upstream.wanted.logins import LOST_CONNECTION
from lakehold.verify.database_texts import quoted_table


class Cause(Enum):
    """The cause of a failed read.

    BEHIND: the server is a standby and dropped rows that the read needs. EXHAUSTED: it lacks memory, space or connections.
    CHANGED: the table was changed or dropped during the read. LOST: the connection was.
    """

    DENIED = auto()
    CANCELED = auto()
    BEHIND = auto()
    EXHAUSTED = auto()
    LOST = auto()
    CHANGED = auto()
    OTHER = auto()


_BY_STATE = {
    "42501": Cause.DENIED,
    "57014": Cause.CANCELED,
    **dict.fromkeys(("25P03", "25P04", "57P05", "55P03"), Cause.CANCELED),
    "40001": Cause.BEHIND,
    **dict.fromkeys(("42P01", "42703", "3F000", "42704"), Cause.CHANGED),
    **dict.fromkeys(("57P01", "57P02", "57P03", "57P04"), Cause.LOST),
}
_BY_CLASS = {"53": Cause.EXHAUSTED, "08": Cause.LOST}
"""Causes by the first two characters of an SQLSTATE of PostgreSQL."""
_BY_NUMBER = {
    **dict.fromkeys((1044, 1142, 1143, 1227), Cause.DENIED),
    # KILL QUERY, max_execution_time of MySQL, max_statement_time of MariaDB, and waits for locks.
    **dict.fromkeys((1317, 3024, 1969, 1205, 1213), Cause.CANCELED),
    **dict.fromkeys((1021, 1037, 1038, 1041, 1114, 1135), Cause.EXHAUSTED),
    # A shutdown, KILL, and a timeout of the network or of an idle session.
    **dict.fromkeys((1053, 1152, 1158, 1159, 1160, 1161, 1927, 4031), Cause.LOST),
    **dict.fromkeys((1049, 1051, 1054, 1146, 1412), Cause.CHANGED),
}
_AGAIN = "Run the command again; nothing was changed."


def postgres_read_failed(where: str, user: str, table: str, state: str | None, message: str) -> UpstreamError:
    """Describe why PostgreSQL did not show the rows of a table.

    Args:
        where: The server, as messages name it.
        user: User of the connection.
        table: The table, `schema.name`.
        state: The SQLSTATE; None: the error is the client's, which lost the connection.
        message: The text of the error, of which the first line counts.
    """
    cause = Cause.LOST if state is None else _BY_STATE.get(state, _BY_CLASS.get(state[:2], Cause.OTHER))
    grant = (
        f"GRANT SELECT ON {quoted_table(table, ConnectionType.POSTGRES)} TO {user}; and exempt the user from row level "
        "security, if the table has it."
    )
    shown = f" (SQLSTATE {state})" if state else ""
    return _described(cause, where, table, f"{_first_line(message)}{shown}.", grant)


def mysql_read_failed(where: str, user: str, table: str, number: int, message: str) -> UpstreamError:
    """Describe why MySQL or MariaDB did not show the rows of a table, by the error's number and text."""
    cause = Cause.LOST if number in LOST_CONNECTION else _BY_NUMBER.get(number, Cause.OTHER)
    grant = f"GRANT SELECT ON {quoted_table(table, ConnectionType.MYSQL)} TO {user}."
    return _described(cause, where, table, f"{_first_line(message)} (error {number}).", grant)


def _described(cause: Cause, where: str, table: str, reported: str, grant: str) -> UpstreamError:
    errors = {
        Cause.DENIED: UpstreamRefused(
            f'{where} refused to show the rows of table "{table}"', detail=reported, hint=grant
        ),
        Cause.CANCELED: UpstreamUnavailable(
            f'{where} canceled the read of table "{table}"',
            code="database-canceled",
            detail=reported,
            hint=f"A timeout, a lock or a person ended the read. {_AGAIN}",
        ),
        Cause.BEHIND: UpstreamUnavailable(
            f'{where} is a standby and canceled the read of table "{table}"',
            code="database-canceled",
            detail=reported,
            hint="Raise max_standby_streaming_delay of the standby or switch its hot_standby_feedback on, or compare with "
            "the primary.",
        ),
        Cause.EXHAUSTED: UpstreamUnavailable(
            f'{where} lacks memory, space or connections to read table "{table}"',
            code="database-exhausted",
            detail=reported,
            hint=f"Free what the detail names. {_AGAIN}",
        ),
        Cause.LOST: UpstreamUnavailable(
            f'the connection to {where} was lost during the read of table "{table}"',
            code="database-unavailable",
            detail=reported,
            hint=f"Check that the server runs. {_AGAIN}",
        ),
        Cause.CHANGED: UpstreamUnavailable(
            f'{where} changed or dropped table "{table}" during the read',
            code="upstream-table-changed",
            detail=reported,
            hint=_AGAIN,
        ),
        Cause.OTHER: UpstreamRefused(
            f'{where} could not show the rows of table "{table}"', detail=reported, hint=_AGAIN
        ),
    }
    return errors[cause]


def _first_line(message: str) -> str:
    return next(iter(message.strip().splitlines()), "no reason given").removesuffix(".")
