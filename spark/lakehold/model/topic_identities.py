"""The identities of topics: a topic that is deleted and created again under its name has another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

UNKNOWN: Final = "A" * 22
"""Kafka's id of no topic, which brokers give to all topics as long as they have no ids: it identifies nothing."""


def is_another(recorded: str, found: str) -> bool:
    """Return whether a topic is not the one whose identity was recorded; if either is unknown, nobody can tell."""
    return recorded != found and UNKNOWN not in (recorded, found)


def with_found(recorded: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """Return the recorded identities, and the found ones of topics that have none."""
    return {**found, **{topic: each for topic, each in recorded.items() if each != UNKNOWN or topic not in found}}
