"""Sources are read over TLS and SASL; certificates and logins that do not fit are refused within seconds, with the reason."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation

from lakehold.doctor import examine
from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from tests.certificates import Authority
from tests.conftest import LakeFactory
from tests.lakehold_process import IngestProcesses
from tests.secured_broker import PASSWORD, USER, SecuredBroker
from tests.secured_broker import secured_broker as secured_broker  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = [pytest.mark.stack, pytest.mark.spark]

WRONG = "a-wrong-password"
_REFUSED_WITHIN_S = 9.0
"""Less than the 15 s that brokers may stay silent."""

Options = Mapping[str, str]


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("kafka_password", PASSWORD)
    monkeypatch.setenv("wrong_password", WRONG)


@pytest.fixture
def topic(secured_broker: SecuredBroker) -> str:
    topic = secured_broker.create_topic()
    secured_broker.produce(topic, [json.dumps({"id": n}).encode() for n in range(3)])
    return topic


def sasl(broker: SecuredBroker, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    return {
        "BROKER": f"'{broker.sasl}'",
        "SECURITY PROTOCOL": "'SASL_SSL'",
        "SASL MECHANISM": f"'{mechanism}'",
        "SASL USERNAME": f"'{USER}'",
        "SASL PASSWORD": "SECRET 'kafka_password'",
        "SSL TRUSTSTORE LOCATION": f"'{broker.authority}'",
    }


def mutual(broker: SecuredBroker) -> dict[str, str]:
    return {
        "BROKER": f"'{broker.mutual}'",
        "SECURITY PROTOCOL": "'SSL'",
        "SSL TRUSTSTORE LOCATION": f"'{broker.authority}'",
        "SSL KEYSTORE LOCATION": f"'{broker.client}'",
    }


def define(lake: Lake, options: Options, topic: str) -> None:
    lake.sql(f"""
        CREATE CONNECTION kafka TO KAFKA ({", ".join(f"{name} {value}" for name, value in options.items())});
        CREATE SOURCE shop FROM KAFKA CONNECTION kafka (TOPICS ('{topic}')) FORMAT JSON;
        CREATE TABLE s.t (id BIGINT) FROM SOURCE shop (TOPIC '{topic}') ENVELOPE NONE
    """)


@pytest.mark.parametrize("by_spark", [True, False], ids=["spark", "driver"])
@pytest.mark.parametrize(
    "options", [sasl, lambda broker: sasl(broker, "PLAIN"), mutual], ids=["scram", "plain", "mutual"]
)
def test_a_source_is_read_over_tls(
    make_lake: LakeFactory,
    secured_broker: SecuredBroker,
    topic: str,
    options: Callable[[SecuredBroker], Options],
    by_spark: bool,
) -> None:
    lake = make_lake(driver_read_max_records=0) if by_spark else make_lake()
    define(lake, options(secured_broker), topic)
    lake.ingest("shop")
    assert sorted(lake.sql(f"SELECT id FROM {lake.settings.catalog_name}.s.t").rows) == [(0,), (1,), (2,)]


def test_a_user_with_rights_on_the_topics_of_a_source_only_is_in_order(
    make_lake: LakeFactory, secured_broker: SecuredBroker, topic: str
) -> None:
    lake = make_lake()
    define(lake, sasl(secured_broker), topic)
    secured_broker.deny("lakehold")
    found = {checked: (state, text) for checked, state, text, _ in examine(lake.settings, lambda: lake)}
    assert found["connection kafka"] == ("ok", "Kafka answers")
    assert found["topics of shop"][0] == "ok"
    secured_broker.deny(topic, AclOperation.READ)
    found = {checked: (state, text) for checked, state, text, _ in examine(lake.settings, lambda: lake)}
    assert found["connection kafka"][0] == "ok"
    assert found["topics of shop"][0] == "failed"
    assert f'topic "{topic}" may not be read' in found["topics of shop"][1]


@pytest.mark.parametrize("operation", [AclOperation.ALL, AclOperation.READ], ids=["hidden", "unreadable"])
@pytest.mark.parametrize("by_spark", [True, False], ids=["spark", "driver"])
def test_a_topic_that_the_user_may_not_read_stops_its_table_only(
    make_lake: LakeFactory, secured_broker: SecuredBroker, topic: str, operation: AclOperation, by_spark: bool
) -> None:
    lake = make_lake(driver_read_max_records=0) if by_spark else make_lake()
    other = secured_broker.create_topic()
    options = ", ".join(f"{name} {value}" for name, value in sasl(secured_broker).items())
    lake.sql(f"""
        CREATE CONNECTION kafka TO KAFKA ({options});
        CREATE SOURCE shop FROM KAFKA CONNECTION kafka (TOPICS ('{topic}', '{other}')) FORMAT JSON;
        CREATE TABLE s.t (id BIGINT) FROM SOURCE shop (TOPIC '{topic}') ENVELOPE NONE;
        CREATE TABLE s.other (id BIGINT) FROM SOURCE shop (TOPIC '{other}') ENVELOPE NONE
    """)

    def ingested(*ids: int) -> tuple[dict[str, LakeholdError], list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        for name in (topic, other):
            secured_broker.produce(name, [json.dumps({"id": n}).encode() for n in ids])
        stopped = {name: error for report in lake.ingest("shop") for name, error in report.stopped.items()}
        t, others = (
            sorted(lake.sql(f"SELECT id FROM {lake.settings.catalog_name}.s.{n}").rows) for n in ("t", "other")
        )
        return stopped, t, others

    assert ingested(3) == ({}, [(0,), (1,), (2,), (3,)], [(3,)])
    secured_broker.deny(topic, operation)
    stopped, *rows = ingested(4)
    assert {name: (error.code, error.message) for name, error in stopped.items()} == {
        "s.t": ("topic-refused", f'topic "{topic}" may not be read')
    }
    assert rows == [[(0,), (1,), (2,), (3,)], [(3,), (4,)]]

    secured_broker.allow(topic, operation)
    assert ingested(5) == ({}, [(n,) for n in range(6)], [(3,), (4,), (5,)])


def _other_authority(broker: SecuredBroker, directory: Path) -> dict[str, str]:
    return {**sasl(broker), "SSL TRUSTSTORE LOCATION": f"'{Authority(directory, 'other').file}'"}


def _no_authority(broker: SecuredBroker, _: Path) -> dict[str, str]:
    return {name: value for name, value in sasl(broker).items() if name != "SSL TRUSTSTORE LOCATION"}


def _expired(broker: SecuredBroker, _: Path) -> dict[str, str]:
    return {**mutual(broker), "BROKER": f"'{broker.expired}'"}


def _other_host(broker: SecuredBroker, _: Path) -> dict[str, str]:
    return {**sasl(broker), "BROKER": "'localhost:{}'".format(broker.sasl.rpartition(":")[2])}


def _wrong_password(broker: SecuredBroker, _: Path) -> dict[str, str]:
    return {**sasl(broker), "SASL PASSWORD": "SECRET 'wrong_password'"}


def _no_certificate(broker: SecuredBroker, _: Path) -> dict[str, str]:
    return {name: value for name, value in mutual(broker).items() if name != "SSL KEYSTORE LOCATION"}


def _no_file(broker: SecuredBroker, directory: Path) -> dict[str, str]:
    return {**sasl(broker), "SSL TRUSTSTORE LOCATION": f"'{directory / 'none.pem'}'"}


def _no_pem(broker: SecuredBroker, directory: Path) -> dict[str, str]:
    (directory / "empty.pem").write_text("nothing")
    return {**sasl(broker), "SSL TRUSTSTORE LOCATION": f"'{directory / 'empty.pem'}'"}


@pytest.mark.parametrize(
    ("options", "code", "detail"),
    [
        (_other_authority, "kafka-refused", "Self-signed certificate in certificate chain."),
        (_no_authority, "kafka-refused", "Self-signed certificate in certificate chain."),
        (_expired, "kafka-refused", "Certificate has expired."),
        (_other_host, "kafka-refused", "Hostname mismatch, certificate is not valid for 'localhost'."),
        (_wrong_password, "kafka-refused", "invalid credentials with SASL mechanism SCRAM-SHA-512"),
        (_no_certificate, "kafka-refused", "SSL alert number"),
        (_no_file, "option-invalid", "SSL TRUSTSTORE LOCATION failed"),
        (_no_pem, "option-invalid", "SSL TRUSTSTORE LOCATION failed"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_a_connection_that_cannot_be_trusted_is_refused_within_seconds(
    make_lake: LakeFactory,
    secured_broker: SecuredBroker,
    topic: str,
    tmp_path: Path,
    options: Callable[[SecuredBroker, Path], Options],
    code: str,
    detail: str,
) -> None:
    lake = make_lake()
    define(lake, options(secured_broker, tmp_path), topic)
    began = time.monotonic()
    with pytest.raises(LakeholdError) as refusal:
        lake.ingest("shop")
    assert time.monotonic() - began < _REFUSED_WITHIN_S
    error = refusal.value
    assert error.code == code
    assert detail in error.detail
    assert error.hint
    assert "ssl.ca" not in error.detail, "options have the names of CREATE CONNECTION"
    told = f"{error} {error.message} {error.detail} {error.hint}"
    assert not [secret for secret in (PASSWORD, WRONG) if secret in told]


def test_the_command_reports_a_wrong_password_without_a_traceback_or_the_password(
    make_lake: LakeFactory, secured_broker: SecuredBroker, topic: str, tmp_path: Path
) -> None:
    warehouse = tmp_path / "lake"
    lake = make_lake(warehouse)
    define(lake, _wrong_password(secured_broker, tmp_path), topic)
    code, stderr = IngestProcesses(warehouse, "shop", {"catalog_name": lake.settings.catalog_name}).run()
    assert code != 0
    assert "code: kafka-refused" in stderr
    assert "Traceback" not in stderr
    assert not [secret for secret in (PASSWORD, WRONG) if secret in stderr]
    lake.sql("ALTER CONNECTION kafka SET (SASL PASSWORD SECRET 'kafka_password')")
    (report,) = lake.ingest("shop")
    assert report.records
