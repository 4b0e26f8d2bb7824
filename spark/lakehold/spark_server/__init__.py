"""A long-lived Spark Connect server on this machine, in which every command and task has a session of its own."""

from __future__ import annotations

DEFAULT_PORT = 15_002
"""Spark's own for Spark Connect."""
