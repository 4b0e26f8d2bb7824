"""The registry's client against a server that answers as Confluent's API does, well and badly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from lakehold.errors import UpstreamError, UpstreamUnavailable
from lakehold.ingest.decode.registry import Registry
from lakehold.ingest.decode.schemas import AvroIds, TopicSchemas

LONG, STRING = '"long"', '"string"'
ANSWERS: dict[str, tuple[int, Any]] = {
    "/schemas/ids/1": (200, {"schema": LONG}),
    "/schemas/ids/7": (200, {"schema": STRING}),
    "/schemas/ids/8": (200, {"schema": "syntax = 'proto3';", "schemaType": "PROTOBUF"}),
    "/schemas/ids/401": (401, {"error_code": 401, "message": "who are you"}),
    "/schemas/ids/500": (500, {"error_code": 50001, "message": "disk full"}),
    "/schemas/ids/600": (200, None),
    "/subjects/shop.t-key/versions": (200, [1]),
    "/subjects/shop.t-key/versions/1": (200, {"subject": "shop.t-key", "version": 1, "id": 1, "schema": LONG}),
    "/subjects/shop.t-value/versions": (200, [1, 3]),
    "/subjects/shop.t-value/versions/1": (200, {"subject": "shop.t-value", "version": 1, "id": 1, "schema": LONG}),
    "/subjects/shop.t-value/versions/3": (200, {"subject": "shop.t-value", "version": 3, "id": 7, "schema": STRING}),
}
NOT_FOUND = (404, {"error_code": 40403, "message": "Schema not found"})


class _Server(ThreadingHTTPServer):
    asked: list[tuple[str, str | None]]


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        assert isinstance(self.server, _Server)
        self.server.asked.append((path, self.headers.get("Authorization")))
        status, body = ANSWERS.get(path, NOT_FOUND)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"<html>" if body is None else json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Keeps the test's output clean."""


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server(("127.0.0.1", 0), _Answers) as running:
        running.asked = []
        thread = Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def url(server: _Server) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def test_schemas_by_id_are_asked_for_once(server: _Server) -> None:
    registry = Registry(url(server))
    assert [registry.schema_text(i) for i in (1, 2, 1, 8)] == [LONG, None, LONG, None]
    assert [path for path, _ in server.asked].count("/schemas/ids/1") == 1
    assert registry.schemas([7, 1, 2]) == AvroIds({1: LONG, 7: STRING})


def test_a_topics_subjects(server: _Server) -> None:
    registry = Registry(url(server))
    assert registry.subject_ids("shop.t-value") == {1, 7}
    assert registry.subject_ids("nowhere-value") == frozenset()
    assert registry.topic_schemas("shop.t") == TopicSchemas(AvroIds({1: LONG}), AvroIds({1: LONG, 7: STRING}))


def test_options_reach_the_client(server: _Server) -> None:
    Registry(url(server), {"basic.auth.user.info": "ann:secret"}).schema_text(1)
    assert server.asked == [("/schemas/ids/1", "Basic YW5uOnNlY3JldA==")]


def test_refused_credentials_are_said(server: _Server) -> None:
    with pytest.raises(UpstreamError, match=f"the schema registry at {url(server)} refuses access") as caught:
        Registry(url(server)).schema_text(401)
    assert caught.value.code == "registry-denied"
    assert not caught.value.retryable


@pytest.mark.parametrize("schema_id", [500, 600])
def test_an_answer_that_is_none_may_work_later(server: _Server, schema_id: int) -> None:
    with pytest.raises(UpstreamUnavailable, match=f"the schema registry at {url(server)} does not answer"):
        Registry(url(server), {"max.retries": 0}).schema_text(schema_id)


def test_a_registry_that_is_not_there(server: _Server) -> None:
    address = url(server)
    server.server_close()
    with pytest.raises(UpstreamUnavailable, match=f"the schema registry at {address} does not answer") as caught:
        Registry(address, {"max.retries": 0}).schema_text(1)
    assert caught.value.hint
