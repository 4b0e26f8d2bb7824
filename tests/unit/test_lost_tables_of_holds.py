"""Holds of which one table is gone, was replaced or never gets rows: the other tables do not keep all history for it."""

from __future__ import annotations

from dataclasses import replace

from lakehold.maintenance.maintenance_plan import TablePlan
from lakehold.maintenance.survey import MaintenanceScope, Survey
from lakehold.settings import load_settings
from lakehold.state.holds import HeldTable
from lakehold.state.read_lease_store import ReadLeaseStore
from lakehold.state.store import MemoryState
from tests.dated_tables import FOREIGN, START_MS
from tests.unit.test_tags import Held
from tests.unit.test_tags import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name


def planned(shop: Held, full_name: str) -> TablePlan:
    """Plan the maintenance of a table that keeps only the history that holds need."""
    settings = load_settings(expire_grace_ms=0)
    leases = ReadLeaseStore(MemoryState())
    survey = Survey(shop.catalog, shop.timelines, shop.batches, shop.store, leases, shop.keeping, settings, shop.clock)
    return survey.plan(MaintenanceScope(full_name, 0, rewrites=False, orphans=False))


def test_a_hold_that_waits_for_another_table_keeps_no_more_history_than_max_lag(shop: Held) -> None:
    made = [shop.write(FOREIGN, ms) for ms in (100, 200, 300, 400)]
    waiting = shop.hold("h", FOREIGN, None)
    both = replace(waiting, max_lag_ms=200, tables=(*waiting.tables, HeldTable("another", "shop.gone")))
    shop.store.change(lambda _: [both])
    shop.clock.ms = 1_450  # the table is readable until 450
    shop.keeping.put([FOREIGN])
    assert shop.tags(FOREIGN) == {"hold_h": made[1], "mz_300": made[2], "mz_400": made[3]}
    plan = planned(shop, FOREIGN)
    assert (plan.kept_from_ms, plan.expired) == (START_MS + 250, (made[0],))


def test_a_hold_on_a_table_that_was_recreated_keeps_nothing_of_the_new_one(shop: Held) -> None:
    shop.write(FOREIGN, 100)
    shop.hold("h", FOREIGN, 100)
    shop.catalog.drop_table(FOREIGN)
    made = [shop.write(FOREIGN, ms) for ms in (200, 300, 400)]
    shop.clock.ms = 5_000
    assert planned(shop, FOREIGN).expired == tuple(made[:2])
