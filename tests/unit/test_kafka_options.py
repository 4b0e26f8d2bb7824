"""Options of a Kafka connection, translated for two clients."""

from __future__ import annotations

import pytest

from lakehold.errors import DefinitionError
from lakehold.kafka.connection_options import kafka_options


def test_a_broker_is_enough() -> None:
    options = kafka_options({"broker": "a:1,b:2"})
    assert options.brokers == "a:1,b:2"
    assert options.java == options.librdkafka == {}


def test_username_and_password_become_the_options_of_each_client() -> None:
    options = kafka_options(
        {
            "BROKER": "a:1",
            "SECURITY_PROTOCOL": "SASL_SSL",
            "SASL_MECHANISM": "SCRAM-SHA-512",
            "SASL_USERNAME": "ann",
            "SASL_PASSWORD": 'a"b\\c',
        }
    )
    assert options.librdkafka == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": 'a"b\\c',
    }
    assert options.java == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="a\\"b\\\\c";',
    }


def test_javas_own_login_text_is_parsed() -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="a\\"b\\\\c";'
    options = kafka_options(
        {
            "broker": "a:1",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": login,
        }
    )
    assert options.librdkafka["sasl.username"] == "ann"
    assert options.librdkafka["sasl.password"] == 'a"b\\c'
    assert options.java["sasl.jaas.config"] == login


def test_certificates_in_pem_are_for_both() -> None:
    options = kafka_options(
        {
            "broker": "a:1",
            "security.protocol": "SSL",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.location": "/me.pem",
            "ssl.key.password": "secret",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert options.java == {
        "security.protocol": "SSL",
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": "/me.pem",
        "ssl.keystore.type": "PEM",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert options.librdkafka == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "none",
    }


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({}, "option-missing", "a Kafka connection needs a broker"),
        ({"broker": "a:1", "acks": "all"}, "option-unknown", 'a Kafka connection has no option "acks"'),
        (
            {"broker": "a:1", "sasl.username": "ann"},
            "option-invalid",
            'option "sasl.username" needs a security protocol with SASL',
        ),
        (
            {"broker": "a:1", "security.protocol": "SASL_SSL"},
            "option-invalid",
            "a SASL connection needs a mechanism",
        ),
        (
            {"broker": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
            "option-invalid",
            'SASL mechanism "GSSAPI" cannot be used',
        ),
        (
            {"broker": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ann"},
            "option-missing",
            "a SASL connection needs a username and a password",
        ),
        (
            {"broker": "a:1", "ssl.truststore.location": "/ca.jks", "ssl.truststore.type": "JKS"},
            "option-invalid",
            'option "ssl.truststore.type" must be PEM',
        ),
    ],
)
def test_options_that_one_client_does_not_support_are_refused(options: dict[str, str], code: str, message: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        kafka_options(options)
    assert raised.value.code == code
    assert raised.value.message == message
    assert raised.value.hint


def test_secrets_are_not_shown() -> None:
    options = kafka_options(
        {
            "broker": "a:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "hush",
        }
    )
    assert "hush" not in repr(options)
