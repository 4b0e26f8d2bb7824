"""Positions in PostgreSQL's log: bytes, which it writes as two hexadecimal numbers."""

from __future__ import annotations


def lsn(position: int) -> str:
    """As PostgreSQL writes a position."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def position_of(text: str) -> int:
    """The inverse of `lsn`."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)
