"""A writer that lost its lease meets its successor at the branch on which the successor stages its statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lakehold.errors import CommitConflict, LeaseLost
from lakehold.iceberg.data_tables import TableState
from lakehold.lake import Lake
from lakehold.tables.write_audit_publish import Publishing
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark

NAME = "shop.visits"


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    """Return a lake with a table without a key that has one row."""
    lake = make_lake()
    lake.sql(f"CREATE NAMESPACE shop; CREATE TABLE {NAME} (n INT) TBLPROPERTIES ('write.wap.enabled' = 'true')")
    lake.sql(f"INSERT INTO {NAME} VALUES (1)")
    return lake


def state_of(lake: Lake) -> TableState:
    found = lake.tables.table_state(NAME)
    assert found is not None
    return found


def publishing(lake: Lake, confirm_lease: Callable[[], None] = lambda: None) -> Publishing:
    return Publishing(lake.spark, lake.tables, confirm_lease, lambda _: False)


def statement(lake: Lake, text: str) -> Callable[[], None]:
    def run() -> None:
        lake.sql(text)

    return run


def change(lake: Lake, between: Callable[[], object] = lambda: None) -> Iterator[Callable[[], None]]:
    """Yield the statements that replace the row by an equal one, as a batch does that moves a row."""
    yield statement(lake, f"DELETE FROM {NAME} WHERE n = 1")
    between()
    yield statement(lake, f"INSERT INTO {NAME} VALUES (1)")


def rows(lake: Lake) -> list[tuple[object, ...]]:
    return [tuple(row) for row in lake.sql(f"SELECT n FROM {NAME}").rows]


@pytest.mark.parametrize("begins", [True, False], ids=["begins its own", "only removes"])
def test_half_a_change_is_not_published_if_another_writer_removes_the_branch(lake: Lake, begins: bool) -> None:
    decided_on = state_of(lake)

    def wakes() -> None:
        """Remove the branches of others, as a writer does that begins a batch."""
        lake.tables.make_branch(decided_on, "lakehold_batch_late", lambda name: name.startswith("lakehold_batch_"))

    def ends() -> None:
        for name in set(state_of(lake).table.refs()) - {"main"}:
            lake.sql(f"ALTER TABLE {NAME} DROP BRANCH `{name}`")

    with pytest.raises(CommitConflict):
        publishing(lake).run_together(change(lake, wakes if begins else ends), decided_on)
    assert rows(lake) == [(1,)]
    publishing(lake).run_together(change(lake), state_of(lake))
    assert rows(lake) == [(1,)]


def test_a_writer_without_the_lease_removes_no_branch(lake: Lake) -> None:
    def wakes() -> None:
        def lost() -> None:
            raise LeaseLost("another process has the lease")

        with pytest.raises(LeaseLost):
            publishing(lake, lost).run_together(change(lake), state_of(lake))

    publishing(lake).run_together(change(lake, wakes), state_of(lake))
    assert rows(lake) == [(1,)]
