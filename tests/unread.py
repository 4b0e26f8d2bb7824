"""A lake that nobody may read: statements over definitions need none of it."""

from __future__ import annotations

from typing import NoReturn

import pytest


class NoReads:
    """Fails the test when tables are read."""

    def read_as_of(self, *_: object) -> NoReturn:
        pytest.fail("a statement over definitions read tables")

    read_changes = explain_changes = read_as_of
