"""A broker that encrypts connections and asks clients who they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from lakehold.servers import HOST
from lakehold.stack.parts.kafka import Kafka
from lakehold.stack.parts.part import write_properties
from tests.certificates import Authority, Issued
from tests.kafka_broker import Broker

USER = "reader"
PASSWORD = "kept-to-itself"
_MECHANISM = "SCRAM-SHA-512"


class _SecuredKafka(Kafka):
    """Kafka with further listeners, on ports of the stack's other servers."""

    def prepare(self) -> None:
        """Write the settings, with certificates of the authority in the broker's directory."""
        authority = Authority(self.folder)
        good, expired = authority.issue("good"), authority.issue("expired", days_left=0)
        listeners = {
            # Also the client has to show a certificate of the authority.
            "MUTUAL": (self.ports.registry, "SSL", good),
            "SASL": (self.ports.connect, "SASL_SSL", good),
            "EXPIRED": (self.ports.postgres, "SSL", expired),
        }
        authority.issue("client")
        super().prepare()
        file = self.folder / "kafka.properties"
        given = dict(line.split("=", 1) for line in file.read_text().splitlines())
        addresses = [f"{name}://{HOST}:{port}" for name, (port, _, _) in listeners.items()]
        protocols = [f"{name}:{protocol}" for name, (_, protocol, _) in listeners.items()]
        write_properties(
            file,
            {
                **given,
                "inter.broker.listener.name": "PLAINTEXT",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "allow.everyone.if.no.acl.found": "true",
                "super.users": "User:ANONYMOUS",
                **{name: ",".join([given[name], *addresses]) for name in ("listeners", "advertised.listeners")},
                "listener.security.protocol.map": ",".join([given["listener.security.protocol.map"], *protocols]),
                **{k: v for name, (_, _, issued) in listeners.items() for k, v in _stores(name, authority, issued)},
                "listener.name.mutual.ssl.client.auth": "required",
                "listener.name.sasl.sasl.enabled.mechanisms": f"PLAIN,{_MECHANISM}",
                f"listener.name.sasl.{_MECHANISM.lower()}.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                ),
                "listener.name.sasl.plain.sasl.jaas.config": (
                    f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
                ),
            },
        )


def _stores(listener: str, authority: Authority, issued: Issued) -> Iterator[tuple[str, str]]:
    prefix = f"listener.name.{listener.lower()}.ssl"
    for store, file in (("truststore", authority.file), ("keystore", issued.both)):
        yield f"{prefix}.{store}.type", "PEM"
        yield f"{prefix}.{store}.location", str(file)


class SecuredBroker(Broker):
    """A running broker with a user `reader`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, _SecuredKafka)
        folder, ports = self._part.folder, self._part.ports
        self.authority, self.client = folder / "ca.pem", folder / "client.both.pem"
        self.mutual, self.sasl, self.expired = (
            f"{HOST}:{port}" for port in (ports.registry, ports.connect, ports.postgres)
        )
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion(USER, scram, PASSWORD.encode())
        self.admin.alter_user_scram_credentials([upsertion])[USER].result(60)

    def deny(self, topic: str, operation: AclOperation = AclOperation.ALL) -> None:
        """Deny the user an operation on a topic."""
        rule = _denial(topic, operation, AclBinding)
        self.admin.create_acls([rule])[rule].result(60)

    def allow(self, topic: str, operation: AclOperation = AclOperation.ALL) -> None:
        """Withdraw what `deny` denied."""
        rule = _denial(topic, operation, AclBindingFilter)
        assert self.admin.delete_acls([rule])[rule].result(60)


Rule = TypeVar("Rule", AclBinding, AclBindingFilter)


def _denial(topic: str, operation: AclOperation, of: type[Rule]) -> Rule:
    kind, pattern = ResourceType.TOPIC, ResourcePatternType.LITERAL
    return of(kind, topic, pattern, f"User:{USER}", "*", operation, AclPermissionType.DENY)


@pytest.fixture(scope="session")
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Start the session's secured broker when the first test requests it."""
    broker = SecuredBroker(tmp_path_factory.mktemp("secured"))
    yield broker
    broker.stop()
