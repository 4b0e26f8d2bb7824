"""The registry's client against a server that answers as Confluent's API does, correctly and with faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lakehold.definitions import Envelope, FormatType, Table
from lakehold.errors import UpstreamUnavailable
from lakehold.ingest.decode.record_schemas import AvroIds, JsonDeclared, TopicSchemas
from lakehold.ingest.topic import Stored, TopicDecoder, TopicPart
from lakehold.kafka.registry import Registry
from tests.registry_server import RegistryServer, registry_server

LONG, STRING = '"long"', '"string"'
ANSWERS: dict[str, tuple[int, Any]] = {
    "/schemas/ids/1": (200, {"schema": LONG}),
    "/schemas/ids/7": (200, {"schema": STRING}),
    "/schemas/ids/8": (200, {"schema": "syntax = 'proto3';", "schemaType": "PROTOBUF"}),
    "/schemas/ids/9": (200, {"schema": LONG, "references": [{"name": "a", "subject": "a", "version": 1}]}),
    "/schemas/ids/401": (401, {"error_code": 401, "message": "who are you"}),
    "/schemas/ids/500": (500, {"error_code": 50001, "message": "disk full"}),
    "/schemas/ids/600": (200, None),
    "/subjects/shop.t-key/versions": (200, [1]),
    "/subjects/shop.t-key/versions/1": (200, {"subject": "shop.t-key", "version": 1, "id": 1, "schema": LONG}),
    "/subjects/shop.t-value/versions": (200, [1, 3]),
    "/subjects/shop.t-value/versions/1": (200, {"subject": "shop.t-value", "version": 1, "id": 1, "schema": LONG}),
    "/subjects/shop.t-value/versions/3": (200, {"subject": "shop.t-value", "version": 3, "id": 7, "schema": STRING}),
}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server(ANSWERS) as running:
        yield running


def test_schemas_by_id_are_requested_once(server: RegistryServer) -> None:
    registry = Registry(server.url)
    assert [registry.schema_text(i) for i in (1, 2, 1, 8)] == [LONG, None, LONG, None]
    assert [path for path, _ in server.requests].count("/schemas/ids/1") == 1
    assert registry.schema_texts([7, 1, 2]) == {1: LONG, 7: STRING}


def test_schemas_that_cannot_be_read_have_a_reason(server: RegistryServer) -> None:
    registry = Registry(server.url)
    assert registry.schema_texts([1, 2, 8, 9]) == {1: LONG}
    assert registry.unreadable([1, 2, 8, 9]) == {
        8: "it is of type PROTOBUF, and FORMAT AVRO reads AVRO",
        9: "it refers to other schemas, which lakehold does not read",
    }


def test_subjects_of_a_topic_are_found(server: RegistryServer) -> None:
    registry = Registry(server.url)
    assert registry.subject_ids("shop.t-value") == {1, 7}
    assert registry.subject_ids("nowhere-value") == frozenset()


def test_tables_over_one_topic_request_its_subjects_once(server: RegistryServer) -> None:
    nothing: Any = None
    decoder = TopicDecoder(FormatType.AVRO, Registry(server.url), nothing, max_record_bytes=1_000)
    part = TopicPart(nothing, None, FormatType.AVRO)
    tables = [Table("s", f"t{n}", "shop", "shop.t", envelope) for n, envelope in enumerate(Envelope)]
    wanted = {table.envelope: decoder.wanted(table, part, Stored(), scan_schemas=False)[0].schemas for table in tables}
    value = AvroIds({1: LONG, 7: STRING})
    assert wanted.pop(Envelope.NONE) == TopicSchemas(JsonDeclared(), value), "it has no key"
    assert [*wanted.values()] == [TopicSchemas(AvroIds({1: LONG}), value)] * (len(tables) - 1)
    assert [path for path, _ in server.requests].count("/subjects/shop.t-value/versions") == 1


def test_options_reach_the_client(server: RegistryServer) -> None:
    Registry(server.url, {"basic.auth.user.info": "ann:secret"}).schema_text(1)
    assert server.requests == [("/schemas/ids/1", "Basic YW5uOnNlY3JldA==")]


def test_refused_credentials_are_reported_and_may_be_accepted_later(server: RegistryServer) -> None:
    with pytest.raises(UpstreamUnavailable, match=f"the schema registry at {server.url} refuses access") as caught:
        Registry(server.url).schema_text(401)
    assert caught.value.code == "registry-denied"
    assert caught.value.retryable


@pytest.mark.parametrize("schema_id", [500, 600])
def test_an_unusable_answer_may_be_retried(server: RegistryServer, schema_id: int) -> None:
    with pytest.raises(UpstreamUnavailable, match=f"the schema registry at {server.url} does not answer"):
        Registry(server.url, {"max.retries": 0}).schema_text(schema_id)


def test_a_missing_registry_is_reported(server: RegistryServer) -> None:
    address = server.url
    server.server_close()
    with pytest.raises(UpstreamUnavailable, match=f"the schema registry at {address} does not answer") as caught:
        Registry(address, {"max.retries": 0}).schema_text(1)
    assert caught.value.hint
