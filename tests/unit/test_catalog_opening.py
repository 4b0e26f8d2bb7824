"""Opening a lake although its catalog fails for a moment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from lakehold.errors import SettingsError
from lakehold.settings import Settings
from lakehold.state.catalog_opening import OPEN_ATTEMPTS, open_catalog

RACE = "UncheckedSQLException: Failed to execute: INSERT INTO iceberg_namespace_properties"


class SecondToMakeNamespaces(BaseHTTPRequestHandler):
    """A REST catalog without tables, whose namespaces another client always creates first."""

    namespaces = 0

    def do_GET(self) -> None:
        is_config = self.path.startswith("/v1/config")
        self._answer(200 if is_config else 404, {"defaults": {}, "overrides": {}} if is_config else {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).namespaces += 1
        self._answer(500, {"error": {"type": "UncheckedSQLException", "message": RACE, "code": 500}})

    def log_message(self, *_: object) -> None:
        """Suppress the log."""

    def _answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def catalog_uri() -> Iterator[str]:
    SecondToMakeNamespaces.namespaces = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), SecondToMakeNamespaces) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_error_is_retried_and_reported_if_it_persists(catalog_uri: str) -> None:
    with pytest.raises(SettingsError, match="cannot be opened") as raised:
        open_catalog(Settings(warehouse="s3://lake", catalog_uri=catalog_uri))
    assert raised.value.code == "lake-unreachable"
    assert "INSERT INTO iceberg_namespace_properties" in raised.value.detail
    assert SecondToMakeNamespaces.namespaces == OPEN_ATTEMPTS
