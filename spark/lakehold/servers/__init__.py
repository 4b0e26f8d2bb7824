"""Servers that commands start on this machine: planned, started detached, recorded, looked at and stopped by their record."""

from __future__ import annotations

from lakehold.servers.errors import ServerError
from lakehold.servers.server import HOST, Server, ServerCommand, ServerEvent, ServerStatus

__all__ = ["HOST", "Server", "ServerCommand", "ServerError", "ServerEvent", "ServerStatus"]
