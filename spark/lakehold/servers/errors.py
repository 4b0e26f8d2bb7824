"""What can go wrong with servers on this machine; missing programs are `lakehold.errors.EnvironmentMissing`."""

from __future__ import annotations

from lakehold.errors import LakeholdError


class ServerError(LakeholdError):
    """A server does not start, does not stay up, or its port is taken."""

    default_code = "server"
