"""The servers of the stack, one module each, behind the one interface of `part`."""

from __future__ import annotations
