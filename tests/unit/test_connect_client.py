"""Answers at the URL of a Connect connection that come from no Kafka Connect, and answers of a worker without the connector."""

from __future__ import annotations

from threading import Timer

import pytest

from lakehold.errors import ConnectorError, UpstreamUnavailable
from lakehold.upstream.connect.client import ConnectClient
from tests.registry_server import Answers, registry_server

_WORKER = (200, {"version": "4.3.1", "commit": "c", "kafka_cluster_id": "k"})
_CONFIG = "/connectors/shop/config"


def _config(answers: Answers) -> dict[str, str] | None:
    with registry_server(answers) as server, ConnectClient(server.url) as client:
        return client.config("shop")


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/": (200, {"name": "a registry"})},
        {"/": (200, None), _CONFIG: (200, None)},
        {"/": (200, ["subjects"]), _CONFIG: (404, {"message": "Could not find resource for connectors/shop/config"})},
        {_CONFIG: (302, {})},
    ],
)
def test_an_answer_that_is_no_worker_is_reported(answers: Answers) -> None:
    with pytest.raises(UpstreamUnavailable, match="is not Kafka Connect") as refusal:
        _config(answers)
    assert refusal.value.code == "connect-missing"
    assert _CONFIG in refusal.value.detail
    assert "REST interface" in refusal.value.hint


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_may_be_accepted_later(status: int) -> None:
    with pytest.raises(UpstreamUnavailable, match="refuses access") as refusal:
        _config({"/": _WORKER, _CONFIG: (status, None)})
    assert refusal.value.code == "connect-denied"


def test_a_worker_may_not_have_the_connector() -> None:
    assert _config({"/": _WORKER}) is None
    assert _config({_CONFIG: (404, {"error_code": 404, "message": "Connector shop not found"})}) is None
    assert _config({_CONFIG: (200, {"name": "shop", "a": "b"})}) == {"a": "b"}


def test_a_failing_proxy_before_a_worker_is_not_mistaken_for_another_server() -> None:
    with pytest.raises(ConnectorError) as refusal:
        _config({_CONFIG: (503, None)})
    assert refusal.value.code == "connector"


_OFFSETS = "/connectors/shop/offsets"
_FENCING: Answers = {_OFFSETS: (500, {"message": "Failed to perform zombie fencing"})}


def test_a_position_is_forgotten_once_the_transactions_of_a_killed_worker_have_ended() -> None:
    answers = dict(_FENCING)
    with registry_server(answers) as server, ConnectClient(server.url) as client:
        ended = Timer(0.3, lambda: answers.update({_OFFSETS: (200, {})}))
        ended.start()
        client.forget_position("shop")
        ended.join()
        assert len(server.requests) > 1


def test_a_position_that_stays_refused_is_reported_with_the_workers_words() -> None:
    with (
        registry_server(_FENCING) as server,
        ConnectClient(server.url, timeout_s=0.3) as client,
        pytest.raises(ConnectorError, match="refused DELETE /connectors/shop/offsets") as refusal,
    ):
        client.forget_position("shop")
    assert refusal.value.detail == "Failed to perform zombie fencing"
