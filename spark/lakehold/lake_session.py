"""The Spark session of one lake: another program's, or one that is opened at its first use.

Methods import Spark when they open or close a session, so that a command without one does not load it.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lakehold.errors import EnvironmentMissing, UpstreamUnavailable
from lakehold.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_catalogs: WeakKeyDictionary[SparkSession, str] = WeakKeyDictionary()
"""The catalog of the lake that used a given session last: several lakes may have been given one session."""


def settings_of_lake(settings: Settings, given: SparkSession | Callable[[], SparkSession] | None) -> Settings:
    """Return the settings of a lake: without `spark_remote` if it is given a session, as this may be another server's."""
    is_session = given is not None and not callable(given)
    return settings.model_copy(update={"spark_remote": None}) if is_session else settings


class LentSession:
    """The session of another lake of this process, which opens it again when it is lost, and closes it.

    Args:
        get: Returns the session.
    """

    is_open = True

    def __init__(self, get: Callable[[], SparkSession]) -> None:
        self.get = get

    def restore_settings(self) -> None:
        """Leave its settings to the lake whose session it is."""

    def close(self) -> None:
        """Leave the session open."""


class LakeSession:
    """The session of a lake.

    Args:
        settings: How it is opened.
        given: A session of another program, which stays open; None: the session is made here.
    """

    def __init__(self, settings: Settings, given: SparkSession | None) -> None:
        self._settings = settings
        self._given = given
        self._closed = Event()
        self._opening = Lock()
        self._session: SparkSession | None = None

    @property
    def is_open(self) -> bool:
        """Return whether the lake has used its session."""
        return self._session is not None

    def get(self) -> SparkSession:
        """Return the session; opens another one if the server has lost it, so that long-lived clients survive a restart.

        Raises:
            EnvironmentMissing: The server has lost a session that was given.
        """
        from lakehold.remote_session import is_lost, stop
        from lakehold.session_settings import use_catalog

        with self._opening:
            if self._session is not None and is_lost(self._session):
                if self._given is not None:
                    raise EnvironmentMissing(
                        "the Spark session that this lake was given has ended",
                        code="session-ended",
                        detail="Its server was started again or forgot it, or its program stopped it.",
                        hint="Open another session, and a lake with it: connect(…, spark=…).",
                    )
                stop(self._session)
                self._session = None
            if self._session is None:
                self._session = self._open()
            elif self._given is not None and _catalogs.get(self._given) != self._settings.catalog_name:
                use_catalog(self._session, self._settings)
            if self._given is not None:
                _catalogs[self._given] = self._settings.catalog_name
            return self._session

    def restore_settings(self) -> None:
        """Give the session, if there is one, again the settings on which stored values depend.

        A statement such as SET TIME ZONE or the program that gave the session may have changed them.
        """
        if self._session is None:
            return
        from lakehold.session_settings import restore_settings
        from lakehold.spark_errors import is_sparks

        try:
            restore_settings(self.get())
        except Exception as error:
            if not (isinstance(error, UpstreamUnavailable) or is_sparks(error)):
                raise
            log.info("the settings of the session could not be set: %s", error)  # what uses the session next says why

    def close(self) -> None:
        """Close the session if it was made here."""
        if self._given is not None:
            self._closed.set()
        elif self._session is not None:
            from lakehold.session import close_session
            from lakehold.spark_errors import session_lost

            try:
                close_session(self._session, self._settings, self._closed)
            except Exception as error:
                if session_lost(error) is None:
                    raise
                log.info("Spark had ended before its session was closed: %s", error)

    def _open(self) -> SparkSession:
        from lakehold.given_session import refuse_incomplete
        from lakehold.remote_session import keep_alive
        from lakehold.session import of_another_program, open_session
        from lakehold.session_settings import prepared
        from lakehold.spark_errors import described, is_sparks, session_lost

        try:
            found = self._given or of_another_program(self._settings)
            if found is not None:
                refuse_incomplete(found, self._settings)
            if self._given is None:
                return open_session(self._settings, self._closed)
            session = prepared(self._given, self._settings)
            if hasattr(session, "cloneSession"):  # of Spark Connect
                keep_alive(session, self._closed)
            return session
        except Exception as error:
            if not is_sparks(error):
                raise
            raise session_lost(error) or EnvironmentMissing(
                "Spark cannot be used with its settings",
                code="spark-start",
                detail=described(error),
                hint="Correct spark_master, spark_remote or spark_conf: LAKEHOLD_SPARK_MASTER, LAKEHOLD_SPARK_REMOTE and "
                "LAKEHOLD_SPARK_CONF in the environment. lakehold doctor shows where each comes from.",
            ) from error
