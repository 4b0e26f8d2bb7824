"""Servers that commands start on this machine: prepared, started detached, and found again by the record of their process."""

from __future__ import annotations

from lakehold.servers.errors import ServerError
from lakehold.servers.server import HOST, Server, ServerCommand, ServerEvent, ServerStatus

__all__ = ["HOST", "Server", "ServerCommand", "ServerError", "ServerEvent", "ServerStatus"]
