"""The endpoint of a Spark Connect server: whether a server answers, without loading Spark."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from lakehold.errors import UpstreamUnavailable

_CONNECT_PORT = 15_002
"""The port of an address without one, as Spark defines it."""


def refuse_silent(remote: str, timeout_s: float) -> None:
    """Raise `UpstreamUnavailable` if no server answers.

    Spark's own client retries for ten minutes, and reports nothing meanwhile.
    """
    address = urlsplit(remote)
    try:
        place = (address.hostname or "", address.port or _CONNECT_PORT)
        socket.create_connection(place, timeout=timeout_s).close()
    except (OSError, ValueError) as error:
        raise UpstreamUnavailable(
            "Spark Connect does not answer",
            code="spark-unreachable",
            detail=f"{address.scheme}://{address.netloc}: {error}.",
            hint="Start a server on this machine with lakehold spark up, or correct or unset LAKEHOLD_SPARK_REMOTE.",
        ) from error
