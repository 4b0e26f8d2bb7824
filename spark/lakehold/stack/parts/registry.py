"""Apicurio Registry, which serves the Confluent registry's API. The stack's PostgreSQL stores its schemas."""

from __future__ import annotations

import httpx

from lakehold import artifacts
from lakehold.servers import HOST, ServerCommand, http
from lakehold.stack.parts.java import java
from lakehold.stack.parts.part import Part
from lakehold.stack.parts.postgres import Postgres

_HEAP_MB = 320
_DATABASE = "registry"
_CLIENT_TIMEOUT_S = 5.0


class Registry(Part):
    """The schema registry of the stack."""

    name = "registry"
    needs = (Postgres.name,)
    artifact_sets = ("apicurio-registry",)

    @property
    def port(self) -> int:
        """Return the port of the registry's HTTP server."""
        return self.ports.registry

    def prepare(self) -> None:
        """Create the database in which the registry stores schemas."""
        self.folder.mkdir(exist_ok=True)
        Postgres(self.folder.parent, self.ports).create_database(_DATABASE)

    def command(self) -> ServerCommand:
        """Return the command that runs the server in the foreground."""
        (runner,) = artifacts.directory("apicurio-registry").glob("apicurio-registry-app-*-runner.jar")
        jdbc_url = f"jdbc:postgresql://{self.addresses.postgres_host}:{self.addresses.postgres_port}/{_DATABASE}"
        return ServerCommand(
            java("-jar", str(runner), heap_mb=_HEAP_MB),
            self.folder,
            self.log,
            environment={
                "QUARKUS_HTTP_HOST": HOST,
                "QUARKUS_HTTP_PORT": str(self.port),
                "QUARKUS_HTTP_ACCESS_LOG_ENABLED": "false",
                "APICURIO_STORAGE_KIND": "sql",
                "APICURIO_STORAGE_SQL_KIND": "postgresql",
                "APICURIO_DATASOURCE_URL": jdbc_url,
                "APICURIO_DATASOURCE_USERNAME": self.addresses.postgres_user,
                "APICURIO_DATASOURCE_PASSWORD": self.addresses.postgres_password,
            },
        )

    def is_healthy(self) -> bool:
        """Return whether the registry lists its subjects."""
        try:
            return http.get(f"{self.addresses.registry}/subjects", _CLIENT_TIMEOUT_S).is_success
        except httpx.HTTPError:
            return False
