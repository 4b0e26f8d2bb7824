"""Errors of the stack as a whole; missing programs are `lakehold.errors.EnvironmentMissing`."""

from __future__ import annotations

from lakehold.servers import ServerError


class StackError(ServerError):
    """An error of a stack: a part cannot be set up, or another stack is in the way."""

    default_code = "stack"
