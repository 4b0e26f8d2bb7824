"""What the UI calls a task that is mapped over several names."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten

from airflow.sdk import get_current_context

_MOST_CHARACTERS = 200
"""Airflow's database keeps 250."""


def label(key: str, names: Sequence[str]) -> None:
    """Call the running task after `names`; `key` is what its `map_index_template` shows."""
    text = shorten(", ".join(names), _MOST_CHARACTERS, placeholder=" …")
    get_current_context()[key] = text  # type: ignore[literal-required]
