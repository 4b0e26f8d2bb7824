"""A lake that cannot be opened as configured is an error that names the catalog, whatever its clients raise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from lakehold.cli.app import app
from lakehold.errors import LakeholdError, SettingsError, UpstreamUnavailable
from lakehold.iceberg.catalog_outages import is_outage
from lakehold.lake import Lake, connect


class Answers(BaseHTTPRequestHandler):
    """A server that gives every request the same answer."""

    status, content = 200, "<html>Sign in</html>"

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content.encode())

    def log_message(self, *_: object) -> None:
        """Suppress the log."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def refusal(tmp_path: Path, **settings: Any) -> LakeholdError:
    with pytest.raises(SettingsError, match="cannot be opened") as refused:
        connect(**{"warehouse": str(tmp_path / "lake"), **settings})
    return refused.value


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"catalog_uri": "mysql://me:secret@db/lake"}, "No module named 'MySQLdb'."),
        ({"catalog_uri": "postgresql+asyncpg://me:secret@db/lake"}, "No module named 'asyncpg'."),
        ({"catalog_uri": "nosuch://me:secret@db/lake"}, "Can't load plugin: sqlalchemy.dialects:nosuch."),
        ({"catalog_properties": {"type": "jdbc"}}, "'jdbc' is not a valid CatalogType."),
        ({"catalog_properties": {"py-catalog-impl": "no.Catalog"}}, "Could not initialize Catalog: no.Catalog."),
        ({"catalog_properties": {"py-io-impl": "no.Files"}}, "Could not initialize FileIO: no.Files."),
    ],
)
def test_a_catalog_or_a_client_that_does_not_exist_is_named(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    error = refusal(tmp_path, **settings)
    assert (error.code, error.retryable) == ("lake-unreachable", False)
    assert error.detail.endswith(f"failed: {reason}")
    assert "secret" not in str(error)


@pytest.mark.parametrize("warehouse", ["s4://bucket/lake", "http://bucket/lake"])
def test_a_warehouse_of_an_unknown_scheme_is_refused(tmp_path: Path, warehouse: str) -> None:
    error = refusal(tmp_path, warehouse=warehouse, catalog_uri=f"sqlite:///{tmp_path}/catalog.db")
    assert error.code == "lake-unreachable"
    assert error.detail.endswith(f"failed: No preferred file implementation for scheme: {warehouse.partition(':')[0]}.")


def test_a_page_of_html_in_place_of_a_catalog_is_refused(tmp_path: Path) -> None:
    with serving(Answers) as address:
        error = refusal(tmp_path, catalog_uri=address)
    assert error.code == "lake-unreachable"
    assert error.detail.startswith(f'Its catalog "{address}" failed: it answers with something else: Invalid JSON: ')


@pytest.mark.parametrize("status", [429, 502, 503])
def test_a_catalog_that_cannot_answer_for_now_is_an_outage(tmp_path: Path, status: int) -> None:
    answers = type("Unavailable", (Answers,), {"status": status})
    with serving(answers) as address, pytest.raises(UpstreamUnavailable) as unavailable:
        connect(str(tmp_path / "lake"), catalog_uri=address)
    assert (unavailable.value.code, unavailable.value.retryable) == ("catalog-unavailable", True)
    assert f'Opening the catalog "{address}" failed: ' in unavailable.value.detail


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_catalog_that_refuses_the_request_is_none(tmp_path: Path, status: int) -> None:
    answers = type("Refusing", (Answers,), {"status": status})
    with serving(answers) as address:
        error = refusal(tmp_path, catalog_uri=address)
    assert (error.code, error.retryable) == ("lake-unreachable", False)


@pytest.mark.parametrize(
    ("reason", "passes"),
    [
        ("connection refused", True),
        ('connection to server at "db" failed: FATAL:  the database system is starting up', True),
        ("connection failed: FATAL:  sorry, too many clients already", True),
        ('connection failed: FATAL:  password authentication failed for user "me"', False),
        ('connection failed: FATAL:  database "lakes" does not exist', False),
    ],
)
def test_an_outage_of_a_database_differs_from_a_refusal_by_its_reason(reason: str, passes: bool) -> None:
    assert is_outage(OperationalError("SELECT 1", None, psycopg.OperationalError(reason))) == passes


def test_a_class_of_files_that_does_not_exist_is_not_taken_for_damaged_metadata(tmp_path: Path) -> None:
    connect(str(tmp_path / "lake")).close()
    error = refusal(tmp_path, catalog_properties={"py-io-impl": "no.Files"})
    assert "damaged" not in error.message
    assert error.detail.endswith("Could not initialize FileIO: no.Files.")


def test_doctor_reports_it_as_a_finding(tmp_path: Path) -> None:
    connect(str(tmp_path / "lake")).close()
    properties = {"LAKEHOLD_CATALOG_PROPERTIES": '{"type": "jdbc"}'}
    ended = CliRunner().invoke(app, ["doctor", "-w", str(tmp_path / "lake"), "--format", "csv"], env=properties)
    assert ended.exit_code == 1
    assert "\nlake,failed," in ended.stdout


def test_verify_ends_with_2_whatever_kept_it_from_comparing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("nobody expected this")

    monkeypatch.setattr(Lake, "verify", fail)
    ended = CliRunner().invoke(app, ["verify", "app.users", "-w", str(tmp_path / "lake")])
    assert ended.exit_code == 2
    assert "RuntimeError: nobody expected this" in ended.stderr
