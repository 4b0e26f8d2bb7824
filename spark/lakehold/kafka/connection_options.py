"""Options of a Kafka connection, for the two clients that read: Spark's (Java) and librdkafka.

A connection uses the option names of Kafka's Java client, in which `_` may replace a dot (`SASL_USERNAME` is `sasl.username`).
`sasl.username` and `sasl.password` are short for the `sasl.jaas.config` that Java requires. Certificates are PEM, the
one format that both clients read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lakehold.errors import DefinitionError

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

_SAME_IN_BOTH: Final = ("security.protocol", "sasl.mechanism", "ssl.key.password", "client.id", "client.rack")

_PEM_STORES: Final = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
}
"""Java's options for certificates, and librdkafka's options for the same PEM file or text."""

_WORDS: Final = {each: name for name, translations in _PEM_STORES.items() for each in translations}

_ENDPOINT_CHECK: Final = "ssl.endpoint.identification.algorithm"

_KNOWN: Final = frozenset(
    {
        "broker",
        *_SAME_IN_BOTH,
        *_PEM_STORES,
        _ENDPOINT_CHECK,
        "sasl.username",
        "sasl.password",
        "sasl.jaas.config",
        "ssl.truststore.type",
        "ssl.keystore.type",
    }
)

_JAAS = re.compile(r'^\s*(?P<module>\S+)\s+required\s+(?P<arguments>(?:[\w.]+\s*=\s*"(?:[^"\\]|\\.)*"\s*)+);\s*$')
_JAAS_ARGUMENT = re.compile(r'([\w.]+)\s*=\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, repr=False)
class KafkaOptions:
    """The options that reach a broker; messages never show them, as they may hold secrets.

    Attributes:
        brokers: `host:port,…`.
        java: Options of Java's client, without `bootstrap.servers`.
        librdkafka: The same options for librdkafka.
    """

    brokers: str
    java: Mapping[str, str]
    librdkafka: Mapping[str, str]


def kafka_options(options: Mapping[str, str]) -> KafkaOptions:
    """Translate a connection's options, in which secrets are replaced by their values.

    Raises:
        DefinitionError: An option is missing or unknown, or only one of the two clients could apply it.
    """
    given = {name.lower().replace("_", "."): value for name, value in options.items()}
    if not given.get("broker"):
        raise DefinitionError(
            "a Kafka connection needs a broker", code="option-missing", hint="Add BROKER 'host:port'."
        )
    for name in sorted(given.keys() - _KNOWN):
        raise DefinitionError(
            f'a Kafka connection has no option "{name}"',
            code="option-unknown",
            hint=f"Options are {', '.join(sorted(_KNOWN))}.",
        )
    shared: dict[str, str] = {name: given[name] for name in _SAME_IN_BOTH if name in given}
    sasl_java, sasl_librdkafka = _sasl(given)
    tls_java, tls_librdkafka = _tls(given)
    return KafkaOptions(
        brokers=given["broker"],
        java={**shared, **sasl_java, **tls_java},
        librdkafka={**shared, **sasl_librdkafka, **tls_librdkafka},
    )


def in_words_of_connections(message: str) -> str:
    """Replace librdkafka's names of options in a message by those that CREATE CONNECTION has."""
    for name, written in _WORDS.items():
        message = message.replace(name, written.replace(".", " ").upper())
    return message.strip().removesuffix(".")


def _sasl(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    if not given.get("security.protocol", "").upper().startswith("SASL"):
        if unused := sorted(name for name in given if name.startswith("sasl.")):
            raise DefinitionError(
                f'option "{unused[0]}" needs a security protocol with SASL',
                code="option-invalid",
                hint="Add SECURITY_PROTOCOL 'SASL_SSL', or 'SASL_PLAINTEXT' in a closed network.",
            )
        return {}, {}
    mechanism = given.get("sasl.mechanism", "").upper()
    if mechanism not in _LOGIN_MODULES:
        raise DefinitionError(
            f'SASL mechanism "{mechanism}" cannot be used' if mechanism else "a SASL connection needs a mechanism",
            code="option-invalid",
            hint=f"Set SASL_MECHANISM to one of {', '.join(_LOGIN_MODULES)}.",
        )
    username, password = _credentials(given)
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in (username, password))
    jaas = '{} required username="{}" password="{}";'.format(_LOGIN_MODULES[mechanism], *quoted)
    return {"sasl.jaas.config": jaas}, {"sasl.username": username, "sasl.password": password}


def _credentials(given: Mapping[str, str]) -> tuple[str, str]:
    if "sasl.jaas.config" in given:
        match = _JAAS.match(given["sasl.jaas.config"])
        found = dict(_JAAS_ARGUMENT.findall(match["arguments"])) if match else {}
        username, password = found.get("username"), found.get("password")
    else:
        username, password = given.get("sasl.username"), given.get("sasl.password")
    if username is None or password is None:
        raise DefinitionError(
            "a SASL connection needs a username and a password",
            code="option-missing",
            detail="The option sasl.jaas.config does not contain them." if "sasl.jaas.config" in given else "",
            hint="Add SASL_USERNAME 'name', SASL_PASSWORD SECRET 'name of the secret'.",
        )
    if "sasl.jaas.config" in given:
        username, password = (re.sub(r"\\(.)", r"\1", value) for value in (username, password))
    return username, password


def _tls(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    java: dict[str, str] = {}
    librdkafka: dict[str, str] = {}
    for name, translations in _PEM_STORES.items():
        if name not in given:
            continue
        store_type = f"{name.rsplit('.', 1)[0].removesuffix('.certificate')}.type"
        if given.get(store_type, "PEM").upper() != "PEM":
            raise DefinitionError(
                f'option "{store_type}" must be PEM',
                code="option-invalid",
                detail="Only Java's client reads JKS and PKCS12 stores, and small batches are read without Java.",
                hint="Export the certificates as PEM (openssl pkcs12 -in store.p12 -out store.pem).",
            )
        java |= {name: given[name], store_type: "PEM"}
        librdkafka |= dict.fromkeys(translations, given[name])
    if _ENDPOINT_CHECK in given:
        algorithm = given[_ENDPOINT_CHECK].lower()
        java[_ENDPOINT_CHECK] = "" if algorithm == "none" else algorithm
        librdkafka[_ENDPOINT_CHECK] = algorithm or "none"
    return java, librdkafka
