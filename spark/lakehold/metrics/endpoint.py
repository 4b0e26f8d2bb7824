"""An endpoint that Prometheus scrapes: the counters of this process, and the status of the lake at that time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from prometheus_client import REGISTRY, start_http_server

from lakehold.errors import LakeholdError, SettingsError
from lakehold.lake import Lake
from lakehold.metrics.status_collector import SCRAPE_WAITS_S, StatusCollector, StatusReader
from lakehold.settings import Settings

_PORTS = 65_536


@dataclass(frozen=True)
class Address:
    """The address on which the endpoint listens; port 0 takes a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse `PORT` or `HOST:PORT`; without a host only programs of this machine can scrape.

        Raises:
            SettingsError: The text is neither.
        """
        host, _, port = text.rpartition(":")
        if not (port.isascii() and port.isdigit() and int(port) < _PORTS):
            raise SettingsError(
                f'"{text}" is not an address for metrics',
                code="metrics-address",
                hint="Give a port (9400), or an address of this machine and a port (0.0.0.0:9400).",
            )
        return cls(host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port))


@contextmanager
def scraped(settings: Settings, address: Address) -> Iterator[str]:
    """Serve metrics until the context ends, from a lake of its own. Returns the URL.

    Raises:
        LakeholdError: The address cannot be listened on.
    """
    with Lake(settings) as lake, closing(StatusReader(lake, SCRAPE_WAITS_S)) as reader:
        collector = StatusCollector(reader)
        REGISTRY.register(collector)
        try:
            server, thread = start_http_server(address.port, address.host)
        except OSError as error:
            REGISTRY.unregister(collector)
            raise LakeholdError(
                f"metrics cannot be served on {address.host}:{address.port}",
                code="metrics-address",
                detail=f"{error}.",
                hint="Choose another port, or an address of this machine.",
            ) from error
        shown = f"[{address.host}]" if ":" in address.host else address.host
        try:
            yield f"http://{shown}:{server.server_port}/metrics"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
            REGISTRY.unregister(collector)
