"""Addresses and logins of a local stack."""

from __future__ import annotations

from dataclasses import dataclass

from lakehold.servers import HOST

POSTGRES_USER = "lakehold"
POSTGRES_PASSWORD = "lakehold"


@dataclass(frozen=True)
class StackPorts:
    """The TCP ports of a stack, one for each listener, all on loopback."""

    postgres: int = 15432
    kafka: int = 19092
    kafka_controller: int = 19093
    registry: int = 18081
    connect: int = 18083

    @classmethod
    def from_base(cls, base: int) -> StackPorts:
        """Build five consecutive ports from `base` on, for a stack beside another."""
        return cls(*range(base, base + 5))


@dataclass(frozen=True)
class StackAddresses:
    """The addresses and logins that clients of a running stack need.

    Attributes:
        kafka: Bootstrap server as `host:port`.
        registry: Base URL of the Confluent-compatible registry API.
        registry_native: Base URL of the registry's own API, which Connect's Avro converter speaks.
        connect: Base URL of Kafka Connect.
        postgres_host: Host of PostgreSQL.
        postgres_port: Port of PostgreSQL.
        postgres_user: A superuser that may replicate.
        postgres_password: Its password.
    """

    kafka: str
    registry: str
    registry_native: str
    connect: str
    postgres_port: int
    postgres_host: str = HOST
    postgres_user: str = POSTGRES_USER
    postgres_password: str = POSTGRES_PASSWORD

    @classmethod
    def of(cls, ports: StackPorts) -> StackAddresses:
        """Build the addresses of a stack on those ports."""
        registry = f"http://{HOST}:{ports.registry}/apis"
        return cls(
            kafka=f"{HOST}:{ports.kafka}",
            registry=f"{registry}/ccompat/v7",
            registry_native=f"{registry}/registry/v2",
            connect=f"http://{HOST}:{ports.connect}",
            postgres_port=ports.postgres,
        )

    def postgres(self, database: str = "postgres") -> str:
        """Return the connection URI of one database."""
        login = f"{self.postgres_user}:{self.postgres_password}"
        return f"postgresql://{login}@{self.postgres_host}:{self.postgres_port}/{database}"
