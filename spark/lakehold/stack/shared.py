"""A stack that several demos use at once: the last of them stops it, unless a person started it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path

from lakehold.servers.server import OnEvent
from lakehold.stack import lifecycle
from lakehold.stack.addresses import StackAddresses
from lakehold.stack.composition import StackPlan
from lakehold.stack.errors import StackError


@contextmanager
def shared(directory: Path, on_event: OnEvent, before_down: Callable[[], None]) -> Iterator[StackAddresses]:
    """Start the stack unless it runs; at the end stop it if nobody else uses it, and only such users have started it.

    Args:
        directory: The stack's directory.
        on_event: Called for each thing that happens.
        before_down: Called before the stack is stopped.

    Raises:
        StackError: The stack ended before the block did, which failed.
        LakeholdError: As `lifecycle.up` does.
    """
    directory.mkdir(parents=True, exist_ok=True)
    # The system ends the lock with the process. A user that begins while the last one stops the stack waits for the lock.
    with (directory / "users").open("w") as users:
        flock(users, LOCK_SH)
        try:
            yield from _ended_early(directory, lifecycle.up(directory, on_event=on_event, for_users=True))
        finally:
            with suppress(BlockingIOError):
                flock(users, LOCK_EX | LOCK_NB)
                if StackPlan.recorded(directory).only_for_users.exists():
                    before_down()
                    lifecycle.down(directory, on_event=on_event)


def _ended_early(directory: Path, addresses: StackAddresses) -> Iterator[StackAddresses]:
    try:
        yield addresses
    except Exception as error:
        ended = [part.name for part in lifecycle.status(directory) if part.state != "running"]
        if not ended:
            raise
        raise StackError(
            "the stack ended while it was used",
            code="stack-ended",
            detail=f"{', '.join(ended)} of {directory} no longer runs.",
            hint="Start again, and run `lakehold stack down` only when nobody uses the stack.",
        ) from error
