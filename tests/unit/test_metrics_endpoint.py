"""The endpoint of metrics: its address, its port, a lake that cannot be read, and the requests that the process counts."""

from __future__ import annotations

import socket
import sqlite3
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from typer.testing import CliRunner

from lakehold.cli.app import app
from lakehold.errors import LakeholdError, SettingsError
from lakehold.iceberg.store_file_io import StoreFileIO
from lakehold.lake import connect
from lakehold.metrics import status_collector
from lakehold.metrics.endpoint import Address, scraped


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9400", Address("127.0.0.1", 9400)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        ("[::1]:65535", Address("::1", 65_535)),
    ],
)
def test_an_address_is_of_this_machine_only_unless_it_names_a_host(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["", "here", "localhost:", "65536", "-1", "²"])
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="is not an address") as raised:
        Address.parse(text)
    assert raised.value.code == "metrics-address"


@pytest.mark.parametrize("command", ["ingest", "publish"])
def test_a_command_that_ends_by_itself_serves_no_metrics(command: str) -> None:
    refused = CliRunner().invoke(app, [command, "shop", "--metrics", "0"])
    assert (refused.exit_code, "needs --follow" in refused.output) == (2, True)


def test_a_lake_that_cannot_be_read_is_down_and_its_port_is_free_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_collector, "FRESH_S", 0.0)
    with connect(str(tmp_path / "lake")) as lake:
        settings = lake.settings
    with scraped(settings, Address.parse("0")) as url:
        assert "\nlakehold_up 1.0\n" in _text(url)
        port = int(url.split(":")[2].split("/")[0])
        with (
            pytest.raises(LakeholdError, match=f"127.0.0.1:{port}") as raised,
            scraped(settings, Address("127.0.0.1", port)),
        ):
            pass
        assert raised.value.code == "metrics-address"
        with closing(sqlite3.connect(tmp_path / "lake" / "catalog.db")) as catalog:
            catalog.execute("DROP TABLE iceberg_tables")
        text = _text(url)
        assert ("\nlakehold_up 0.0\n" in text, "lakehold_tables{" in text) == (True, False)
        assert "lakehold_catalog_requests_total" in text
    assert REGISTRY.get_sample_value("lakehold_up") is None
    socket.create_server(("127.0.0.1", port)).close()


def test_requests_to_catalog_and_store_are_counted(tmp_path: Path) -> None:
    before = {request: _count("store", request) for request in ("read", "write", "exists", "delete")}
    selects = _count("catalog", "SELECT")
    io, location = StoreFileIO(), f"file://{tmp_path}/a"
    with io.new_output(location).create() as file:
        file.write(b"content")
    with io.new_input(location).open() as file:
        assert file.read() == b"content"
    assert io.new_input(location).exists()
    io.delete(location)
    assert {request: _count("store", request) - count for request, count in before.items()} == dict.fromkeys(before, 1)
    with connect(str(tmp_path / "lake")):
        assert _count("catalog", "SELECT") > selects


def _count(of: str, request: str) -> float:
    return REGISTRY.get_sample_value(f"lakehold_{of}_requests_total", {"request": request}) or 0.0


def _text(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())
