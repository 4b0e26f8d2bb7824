"""The retries of Spark Connect's client, which end with the server: by default they go on for ten minutes."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.connect.client.retries import DefaultPolicy

from lakehold.spark_endpoint import names_lost_session, refuse_ended


class WhileServerRuns(DefaultPolicy):
    """A policy to retry calls while the server may still answer: until its process on this machine has ended.

    Args:
        remote: The server's address.
        lose: Called when the server says that it does not know the session.
    """

    def __init__(self, remote: str, lose: Callable[[], None]) -> None:
        super().__init__()
        self._remote = remote
        self._lose = lose

    def can_retry(self, e: BaseException) -> bool:
        """Return whether Spark retries after the error.

        Raises:
            UpstreamUnavailable: The server has ended; the error names its log.
        """
        if names_lost_session(str(e)):
            self._lose()
        if not super().can_retry(e):
            return False
        refuse_ended(self._remote)
        return True
