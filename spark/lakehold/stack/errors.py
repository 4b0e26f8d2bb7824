"""What can go wrong with the stack as a whole; missing programs are `lakehold.errors.EnvironmentMissing`."""

from __future__ import annotations

from lakehold.servers import ServerError


class StackError(ServerError):
    """A part of the stack cannot be set up, or another stack stands in the way."""

    default_code = "stack"
