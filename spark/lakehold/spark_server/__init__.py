"""A long-lived Spark Connect server on this machine, in which every command and task has its own session."""

from __future__ import annotations

DEFAULT_PORT = 15_002
"""Spark's own default for Spark Connect."""
