"""Errors of servers on this machine; missing programs are `lakehold.errors.EnvironmentMissing`."""

from __future__ import annotations

from lakehold.errors import LakeholdError


class ServerError(LakeholdError):
    """An error of a server: it does not start, does not stay up, or its port is taken."""

    default_code = "server"
