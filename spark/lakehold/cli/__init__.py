"""The `lakehold` command."""

from __future__ import annotations

from lakehold.cli.app import main

__all__ = ["main"]
