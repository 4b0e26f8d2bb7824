"""The beginning of a subscriber's run: at its start, where it stopped, or with a new snapshot after a lapse.

Publishers of subscriptions, histories and views begin here, and so do durable clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from lakehold.errors import SubscriberLapsed
from lakehold.publish.follower import FollowedTogether
from lakehold.publish.input_hold import InputHold
from lakehold.publish.known_columns import KnownColumns
from lakehold.subscribe.query_columns import QueryColumns
from lakehold.subscribe.subscription_opening import Opened
from lakehold.timeline.as_of import LATEST

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """The SUBSCRIBEs of a subscriber, opened where its run begins.

    Attributes:
        opened: The SUBSCRIBEs.
        restarts_at_ms: Time of a new snapshot with which they begin, after a lapse; None for other beginnings.
    """

    opened: list[Opened]
    restarts_at_ms: int | None = None


@dataclass(frozen=True)
class Beginning:
    """Opens the SUBSCRIBEs of one subscriber, whose lease this process has.

    Args:
        what: Names the subscriber in the log.
        input_hold: Its hold.
        known: The columns that it has read.
        starts_over: Whether it answers a lapse with a new snapshot.
    """

    what: str
    input_hold: InputHold
    known: KnownColumns
    starts_over: bool

    def at(self, position_ms: int | None, columns: Callable[[], QueryColumns], followed: FollowedTogether) -> Start:
        """Open the SUBSCRIBEs at a position, and move the hold there.

        Without a position open them with their snapshot: at the latest time, if all changes are taken as one. The hold moves
        only once the snapshot of a restart is stored: a process that dies before leaves the lapse to be seen.

        Args:
            position_ms: All below it (exclusive) was read; None before the first snapshot.
            columns: Returns the columns that were read below the position.
            followed: Reads the SUBSCRIBEs.

        Raises:
            SubscriberLapsed: The history is no longer kept, or tables or columns that were read are gone, and the subscriber does
                not start over by itself.
        """
        self.known.columns = {}
        try:
            if position_ms is None:
                # This can lapse, too: AS OF may be before what is kept by now.
                start_ms = self.input_hold.start(followed.as_of.exact_ms, lambda: followed.resolved(followed.as_of))
                return Start(followed.from_snapshot(followed.resolved(LATEST) if followed.is_net else start_ms))
            self.input_hold.resume(position_ms)
            self.input_hold.advance(position_ms, at_once=True)
            self.known.columns = columns()
            return Start(followed.from_position(position_ms))
        except SubscriberLapsed:
            if not self.starts_over:
                raise
            logger.warning("%s starts over from a snapshot", self.what)
            latest_ms = followed.resolved(LATEST)
            self.input_hold.start_over(latest_ms)
            self.known.columns = {}
            return Start(followed.from_new_snapshot(latest_ms), latest_ms)
