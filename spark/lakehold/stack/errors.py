"""What can go wrong with the stack as a whole; missing programs are `lakehold.errors.EnvironmentMissing`."""

from __future__ import annotations

from lakehold.errors import LakeholdError


class StackError(LakeholdError):
    """A part of the stack does not start, does not stay up, or stands in the way of another."""

    default_code = "stack"


class ConnectorError(StackError):
    """Kafka Connect refused a connector, or one of its tasks failed."""

    default_code = "connector"
