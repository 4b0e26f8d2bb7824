"""Leases: which process alone may change something, and until when. Values and rules, without a store."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakehold.errors import LakeholdError, LeaseLost
from lakehold.times import iso


@dataclass(frozen=True)
class Lease:
    """A lease from `since_ms` to `until_ms` (exclusive), epoch milliseconds."""

    holder: str
    since_ms: int
    until_ms: int


@dataclass(frozen=True)
class LeaseRules:
    """The rules by which a lease is given or refused, with the words of a refusal.

    Attributes:
        what: The object of the lease, as the subject of a sentence.
        used: What its holder does to it, as in "is being ingested".
        busy: The error for another process while the lease is live.
        when_busy: The hint of that error.
        when_lost: The hint for a holder that lost the lease.
    """

    what: str
    used: str
    busy: type[LakeholdError]
    when_busy: str
    when_lost: str

    def acquired(self, lease: Lease | None, holder: str, now_ms: int, until_ms: int) -> Lease:
        """Return the lease of `holder`, who prolongs its own lease or takes over one that expired.

        Raises:
            LakeholdError: Another's lease is live.
        """
        if lease and lease.holder == holder:
            return replace(lease, until_ms=until_ms)
        if lease and now_ms < lease.until_ms:
            raise self.busy(
                f"{self.what} is being {self.used} by another process",
                detail=f'"{lease.holder}" has held the lease since {iso(lease.since_ms)} UTC, '
                f"until {iso(lease.until_ms)} or later.",
                hint=self.when_busy,
            )
        return Lease(holder, now_ms, until_ms)

    def held_by(self, lease: Lease | None, holder: str) -> Lease:
        """Return the lease, which must be `holder`'s, even if it ran out and no other process took it.

        Raises:
            LeaseLost: Another process has it, or none.
        """
        if lease and lease.holder == holder:
            return lease
        found = f'"{lease.holder}" took it over at {iso(lease.since_ms)} UTC' if lease else "No process holds it now"
        raise self.lost(f'Expected "{holder}" as the lease holder. {found}.')

    def lost(self, detail: str) -> LeaseLost:
        """Return the error of a holder that lost the lease."""
        return LeaseLost(f"this process lost the lease of {self.what}", detail=detail, hint=self.when_lost)


def released(lease: Lease | None, holder: str) -> Lease | None:
    """Return the lease after `holder` has released it; another's lease stays."""
    return None if lease and lease.holder == holder else lease
