"""Finds why a server's certificate is not trusted: the clients of Kafka and PostgreSQL only report that it is not."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

_SILENT_FOR_S = 5.0


def certificate_fault(
    host: str, port: int, *, file: str | None, text: str | None = None, opening: bytes = b""
) -> str | None:
    """Begin a TLS connection and return why its certificate is refused, as a sentence.

    Args:
        host: The server, as its certificate must name it.
        port: Its port.
        file: PEM file of the trusted authorities; None: `text`, or those of the operating system.
        text: Trusted authorities as PEM.
        opening: Request for TLS that the protocol sends first; the server answers with one byte.

    Returns:
        None if the certificate is trusted or the server does not answer in time.
    """
    with suppress(OSError, ValueError):
        context = ssl.create_default_context(cafile=file, cadata=text)
        with socket.create_connection((host, port), timeout=_SILENT_FOR_S) as plain:
            if opening:
                plain.sendall(opening)
                plain.recv(1)
            try:
                context.wrap_socket(plain, server_hostname=host).close()
            except ssl.SSLCertVerificationError as error:
                reason = error.verify_message.strip().removesuffix(".")
                return f"{reason[:1].upper()}{reason[1:]}."
    return None
