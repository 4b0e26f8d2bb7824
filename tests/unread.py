"""Parts of a lake that must not be used: statements over definitions need none of them."""

from __future__ import annotations

from typing import NoReturn

import pytest
from pyiceberg.catalog import load_catalog

from lakehold.holds.commands import HoldCommands
from lakehold.holds.guard import Guard
from lakehold.holds.roles import RoleCommands
from lakehold.iceberg.data_tables import DataTables
from lakehold.settings import load_settings
from lakehold.state.batch_protocol import BatchStore
from lakehold.state.holds import HoldStore
from lakehold.state.objects import DefinitionStore
from lakehold.state.roles import ROLES
from lakehold.state.store import MemoryState
from lakehold.timeline.timelines import Timelines


class NoReads:
    """Table reads that fail the test."""

    def read_as_of(self, *_: object) -> NoReturn:
        pytest.fail("a statement over definitions read tables")

    read_changes = explain_changes = run_on_spark = read_as_of


class NoSubscriptions:
    """Subscriptions that fail the test when one begins, ends or is listed."""

    def begin(self, *_: object, **__: object) -> NoReturn:
        pytest.fail("a statement over other definitions reached subscriptions")

    end = overview = views = begin


class NothingUpstream:
    """An upstream that fails the test when a database, Kafka or Kafka Connect would be contacted."""

    def plan_change(self, *_: object, **__: object) -> NoReturn:
        pytest.fail("a statement over other definitions reached upstream")

    changing = plan_change


def no_roles() -> RoleCommands:
    """Return commands over roles in memory; no role exists, so everything is allowed."""
    return RoleCommands(Guard(MemoryState().store(ROLES)))


def holds_without_tags(
    definitions: DefinitionStore, store: HoldStore | None = None, guard: Guard | None = None
) -> HoldCommands:
    """Return commands over holds in memory, on the tables of `definitions`, which have no rows."""
    tables = DataTables(load_catalog("lake", type="in-memory"))
    timelines = Timelines(tables, definitions, BatchStore(MemoryState()), foreign_lag_ms=0)
    store = store or HoldStore(MemoryState())
    return HoldCommands(store, timelines, definitions, load_settings(), lambda _: None, lambda _: None, guard)
