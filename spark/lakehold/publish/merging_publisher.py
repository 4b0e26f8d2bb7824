"""The part of publishing that views and histories share: attempts beside other writers, and what follows each commit."""

from __future__ import annotations

import logging
import time
from abc import ABC
from threading import Event

from lakehold.errors import CommitConflict
from lakehold.publish.publisher import QUIET_S, REMOVE_OLD_S, Publisher
from lakehold.state.lease import HeldLease
from lakehold.subscribe.output_batches import Complete

logger = logging.getLogger(__name__)

_ATTEMPTS = 5
"""Attempts at one commit while other writers, such as maintenance, commit to the table."""


class MergingPublisher(Publisher, ABC):
    """A publisher that merges output into its table, whose statements another writer may make fail."""

    _attempt = 1
    _is_moved = False
    _quiet_s = _removed_s = 0.0

    def _begin(self) -> None:
        """Begin to merge the output of a SUBSCRIBE that was opened."""
        self._quiet_s = self._removed_s = time.monotonic()
        self._is_moved = False

    def _committed(self) -> None:
        """Note that a commit succeeded."""
        self._attempt, self._is_moved = 1, True

    def _retry(self, conflict: CommitConflict, lease: HeldLease) -> None:
        """Prepare another attempt after a commit of another writer.

        Raises:
            CommitConflict: It was the last attempt.
            LeaseLost: Another process publishes.
        """
        lease.confirm()
        if self._attempt == _ATTEMPTS:
            raise conflict
        logger.info("%s was changed while it was written, retrying: %s", self._output.full_name, conflict)
        self._attempt += 1

    def _complete(self, complete: Complete, stop: Event | None, lease: HeldLease) -> None:
        """Record how far all output is in the table: after a commit, at the end, and now and then while nothing comes."""
        ends = stop is None or stop.is_set()
        # The table is readable up to its position: after a commit, as far as the tables that are read.
        if ends or self._is_moved or time.monotonic() - self._quiet_s >= QUIET_S:
            self._store_idle_position(complete, lease)
            self._quiet_s, self._is_moved = time.monotonic(), False
        if ends:
            self._input_hold.advance(complete.until_ms, at_once=True)
        elif time.monotonic() - self._removed_s >= REMOVE_OLD_S:
            self._remove_old_rows(lease)
            self._removed_s = time.monotonic()
