"""A catalog that is suspended or cut off is reported within the time limit, and works again as soon as it answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from lakehold.errors import SettingsError, UpstreamUnavailable
from lakehold.iceberg import catalog_deadlines
from lakehold.lake import Lake, connect
from lakehold.servers import processes
from lakehold.stack.parts.postgres import Postgres
from tests.catalog_servers import NewLake

CREATE = "CREATE CONNECTION kafka TO KAFKA (BROKER 'localhost:1')"
CREATED = ["kafka"]


@contextmanager
def suspended(server: Postgres) -> Iterator[None]:
    """Suspend a server with all processes that it has."""
    postmaster = processes.recorded(server.pid_file)
    assert postmaster is not None
    stopped = [postmaster, *postmaster.children(recursive=True)]
    for process in stopped:
        process.suspend()
    try:
        yield
    finally:
        for process in stopped:
            process.resume()


def connections(lake: Lake) -> list[str]:
    return [row[0] for row in lake.sql("SHOW CONNECTIONS").rows]


@pytest.mark.stack
def test_a_suspended_database_is_reported_and_the_lake_goes_on_with_it(
    new_lake: NewLake, postgres_server: Postgres
) -> None:
    place = {**new_lake("postgresql"), "upstream_timeout_ms": 1_000}
    with connect(**place) as lake:
        lake.sql(CREATE)
        with suspended(postgres_server):
            with pytest.raises(UpstreamUnavailable, match="does not answer") as silent:
                connections(lake)
            with pytest.raises(UpstreamUnavailable, match="does not answer"):
                lake.sql("DROP CONNECTION kafka")
            with pytest.raises(UpstreamUnavailable, match="does not answer") as unopened:
                connect(**place)
        assert connections(lake) == CREATED
    for error in (silent.value, unopened.value):
        assert (error.code, error.retryable) == ("catalog-unavailable", True)
        assert error.detail.endswith("failed: no answer within 1 s.")


@pytest.mark.stack
def test_a_database_that_refuses_the_login_is_no_outage(new_lake: NewLake) -> None:
    place = new_lake("postgresql")
    wrong = make_url(place["catalog_uri"]).set(username="nobody_of_this_name", password="wrong")
    with pytest.raises(SettingsError) as refused:
        connect(**{**place, "catalog_uri": wrong.render_as_string(hide_password=False)})
    assert (refused.value.code, refused.value.retryable) == ("lake-unreachable", False)
    assert "nobody_of_this_name" in refused.value.detail


@pytest.mark.stack
def test_a_connection_that_ended_while_it_was_idle_is_made_again(
    new_lake: NewLake, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_deadlines, "_IDLE_S", 0)
    with connect(**new_lake("postgresql")) as lake:
        lake.sql(CREATE)
        with psycopg.connect(postgres_server.addresses.postgres()) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert connections(lake) == CREATED


def test_a_rest_catalog_that_takes_connections_and_does_not_answer_is_reported(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UpstreamUnavailable) as error:
            connect(str(tmp_path / "lake"), catalog_uri=uri, upstream_timeout_ms=500)
    assert error.value.code == "catalog-unavailable"
    assert "timed out" in error.value.detail
