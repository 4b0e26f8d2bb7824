"""Labels in the UI for a task that is mapped over several names."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten

from airflow.sdk import get_current_context

_MOST_CHARACTERS = 200
"""Airflow's database keeps 250."""


def label(key: str, names: Sequence[str]) -> None:
    """Label the running task with `names`; its `map_index_template` shows `key`."""
    text = shorten(", ".join(names), _MOST_CHARACTERS, placeholder=" …")
    get_current_context()[key] = text  # type: ignore[literal-required]
