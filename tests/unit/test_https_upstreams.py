"""A schema registry and Kafka Connect over https: certificates of the named authority are accepted, others are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakehold.errors import DefinitionError, UpstreamUnavailable
from lakehold.kafka.registry import registry_of
from lakehold.upstream.connect.client import ConnectClient
from lakehold.upstream.wanted.connections import connect_address
from tests.certificates import Authority, Issued
from tests.registry_server import registry_server

_ANSWERS = {
    "/schemas/ids/1": (200, {"schema": '"long"'}),
    "/connectors/shop/config": (200, {"name": "shop", "a": "b"}),
}


def _registry(url: str, authority: str | None) -> object:
    options = {"URL": url, **({"SSL_CERTIFICATE_AUTHORITY": authority} if authority else {})}
    return registry_of(options, timeout_s=5.0).schema_text(1)


def _connect(url: str, authority: str | None) -> object:
    options = {"url": url, **({"ssl_certificate_authority": authority} if authority else {})}
    with ConnectClient(**vars(connect_address(options))) as client:
        return client.config("shop")


@dataclass(frozen=True)
class Upstream:
    """A system behind https, a call of it with the PEM file of the trusted authority, and the call's answer."""

    name: str
    call: Callable[[str, str | None], object]
    answer: object


@pytest.fixture(params=[Upstream("registry", _registry, '"long"'), Upstream("connect", _connect, {"a": "b"})])
def upstream(request: pytest.FixtureRequest) -> Upstream:
    found: Upstream = request.param
    return found


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def url(authority: Authority) -> Iterator[str]:
    with registry_server(_ANSWERS, authority.issue("good")) as server:
        yield server.url


def test_the_named_authority_is_trusted(upstream: Upstream, url: str, authority: Authority) -> None:
    assert upstream.call(url, str(authority.file)) == upstream.answer


def test_public_authorities_are_trusted_otherwise(upstream: Upstream, url: str) -> None:
    with pytest.raises(UpstreamUnavailable) as refusal:
        upstream.call(url, None)
    assert refusal.value.code == f"{upstream.name}-untrusted"
    assert refusal.value.detail == "Self-signed certificate in certificate chain."


def _expired(authority: Authority) -> Issued:
    return authority.issue("expired", days_left=0)


def _of_another_host(authority: Authority) -> Issued:
    return authority.issue("other", host="registry.example")


@pytest.mark.parametrize(
    ("issue", "detail"), [(_expired, "Certificate has expired."), (_of_another_host, "IP address mismatch")]
)
def test_a_certificate_that_does_not_fit_is_refused(
    upstream: Upstream, authority: Authority, issue: Callable[[Authority], Issued], detail: str
) -> None:
    with (
        registry_server(_ANSWERS, issue(authority)) as server,
        pytest.raises(UpstreamUnavailable, match="a certificate that cannot be trusted") as refusal,
    ):
        upstream.call(server.url, str(authority.file))
    assert refusal.value.code == f"{upstream.name}-untrusted"
    assert detail in refusal.value.detail
    assert "SSL CERTIFICATE AUTHORITY" in refusal.value.hint


@pytest.mark.parametrize(("content", "detail"), [(None, "No such file"), ("nothing", "not certificates as PEM")])
def test_an_authority_that_cannot_be_read_is_reported(
    upstream: Upstream, tmp_path: Path, content: str | None, detail: str
) -> None:
    file = tmp_path / "ca.pem"
    if content:
        file.write_text(content)
    with pytest.raises(DefinitionError) as refusal:
        upstream.call("https://127.0.0.1:1", str(file))
    assert refusal.value.code == "option-invalid"
    assert f"{file}: {detail}" in refusal.value.detail
