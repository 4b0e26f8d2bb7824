"""Errors as clients get them: with message, detail, hint and code, and never with a traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow import flight

from lakehold.errors import LakeholdError, PermissionDenied, Place

_log = logging.getLogger(__name__)

_LONGEST_LINE = 200
"""Characters of a line that an error quotes: gRPC carries errors in a header of 8 KiB."""
_LONGEST = 4_000


@contextmanager
def reported() -> Iterator[None]:
    """Turn errors raised inside into errors of Flight; one that lakehold does not know goes to the log."""
    try:
        yield
    except LakeholdError as error:
        raise flight_error(error) from None
    except flight.FlightError:
        raise
    except Exception as error:  # noqa: BLE001 - a client never gets a traceback
        _log.exception("a request failed")
        raise flight_error(
            LakeholdError(
                "the server failed",
                code="serve-failed",
                detail=f"{type(error).__name__}.",
                hint="Its log has more; report it.",
            )
        ) from None


def flight_error(error: LakeholdError) -> flight.FlightError:
    """Return an error of lakehold as one that Flight sends: only Flight's own errors come without Python's traceback.

    The text ends with a line break, since Flight adds a sentence of its own.
    """
    text = f"{error_text(error)}\n"
    if isinstance(error, PermissionDenied):
        return flight.FlightUnauthorizedError(text)
    return flight.FlightUnavailableError(text) if error.retryable else flight.FlightServerError(text)


def error_text(error: LakeholdError) -> str:
    """Write an error as lines: message, place, detail, hint and code."""
    message = error.message
    if error.place is not None:
        message = f"line {error.place.line}: {message}"
        if _line_length(error.place) <= _LONGEST_LINE:
            message += f"\n{error.place.excerpt()}"
    parts = (("detail", error.detail), ("hint", error.hint))
    lines = [_cut(message), *(f"{label}: {_cut(text)}" for label, text in parts if text), f"code: {error.code}"]
    return "\n".join(lines)


def _line_length(place: Place) -> int:
    return len(place.sql[place.sql.rfind("\n", 0, place.start) + 1 :].partition("\n")[0])


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST // 2 else f"{text[: _LONGEST // 2]}…"
