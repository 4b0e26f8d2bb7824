"""The status of a connector, as Kafka Connect reports it. Data classes only."""

from __future__ import annotations

from dataclasses import dataclass

from lakehold.upstream.found.connector_failure import cause_of


@dataclass(frozen=True)
class ConnectorStatus:
    """The status of a connector and its tasks.

    Attributes:
        connector: State of the connector itself, as Connect names it (`RUNNING`, `FAILED`, ...).
        tasks: State of each task.
        trace: Stack trace of the first failure, else empty.
    """

    connector: str
    tasks: tuple[str, ...]
    trace: str

    @property
    def is_running(self) -> bool:
        """Return whether the connector and at least one task run, and no task is in another state."""
        return self.connector == "RUNNING" and set(self.tasks) == {"RUNNING"}

    @property
    def is_failed(self) -> bool:
        """Return whether the connector or one of its tasks failed."""
        return "FAILED" in (self.connector, *self.tasks)

    @property
    def reason(self) -> str:
        """Return the cause of the failure in one line, else an empty text; see `cause_of`."""
        return cause_of(self.trace)
