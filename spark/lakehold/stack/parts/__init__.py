"""The servers of the stack, one module each, with the interface of `part`."""

from __future__ import annotations
