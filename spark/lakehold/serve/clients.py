"""Recognizes the client of each request by its token."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from pyarrow import flight

from lakehold.errors import LakeholdError
from lakehold.serve.faults import error_text
from lakehold.serve.tokens import Access, Tokens

CLIENT = "client"
"""The name under which a request has its `Client`."""


class Client(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """The client of one request.

    Attributes:
        access: What its token gives.
    """

    def __init__(self, token: str, access: Access) -> None:
        self._token = token
        self.access = access

    def sending_headers(self) -> dict[str, str]:
        """Answer with the token: drivers that log in with a user and a password send it from then on."""
        return {"authorization": f"Bearer {self._token}"}


class Recognition(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses requests without a token of `tokens`: as a bearer token, or as the password of any user."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str | bytes]]) -> Client:  # noqa: ARG002
        """Recognize the client of a request."""
        token = _token(headers)
        try:
            return Client(token, self._tokens.access_of(token))
        except LookupError:
            found = "wrong" if token else "missing"
            refusal = LakeholdError(
                f"the token is {found}",
                code="token-refused",
                hint="Send one of the server's tokens as bearer token, or as the password of any user.",
            )
            raise flight.FlightUnauthenticatedError(error_text(refusal)) from None


class NoHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets the handshake of drivers pass that send user and password: `Recognition` has judged its headers."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Do nothing."""

    def is_valid(self, token: bytes) -> bytes:  # noqa: ARG002
        """Accept what `Recognition` has accepted."""
        return b""


def _token(headers: Mapping[str, Sequence[str | bytes]]) -> str:
    sent = next(iter(headers.get("authorization", ())), "")
    kind, _, value = (sent.decode(errors="replace") if isinstance(sent, bytes) else sent).partition(" ")
    if kind.lower() != "basic":
        return value.strip()
    try:
        return base64.b64decode(value).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
