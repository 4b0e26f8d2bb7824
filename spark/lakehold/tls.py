"""Finds why a server's certificate is not trusted: the clients of Kafka and PostgreSQL report only that it is not."""

from __future__ import annotations

import re
import socket
import ssl
from contextlib import suppress

from lakehold.errors import DefinitionError

_SILENT_FOR_S = 5.0
_UNVERIFIED = re.compile(r"CERTIFICATE_VERIFY_FAILED\] certificate verify failed: (.*?)\.?( \(_ssl\.c:\d+\))?$")


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
                return _sentence(error.verify_message.strip().removesuffix("."))
    return None


def fault_in(message: str) -> str | None:
    """Return why a certificate was refused, as a sentence, from the message of a Python client; None: it has another cause."""
    found = _UNVERIFIED.search(message)
    return None if found is None else _sentence(found[1])


def unusable_authority(of: str, file: str, error: OSError) -> DefinitionError:
    """Describe why the authority that a connection trusts cannot be read; an error of TLS is one of the file's content."""
    is_content = isinstance(error, ssl.SSLError)
    return DefinitionError(
        f"the certificate authority of {of} connection cannot be used",
        code="option-invalid",
        detail=f"{file}: {'not certificates as PEM' if is_content else error.strerror}.",
        hint="SSL CERTIFICATE AUTHORITY names a PEM file on this machine.",
    )


def _sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}."
