"""A subscription exists with its hold or not at all, alone and between BEGIN and COMMIT, and nobody moves its hold by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakehold.errors import DefinitionError, LakeholdError, PermissionDenied
from lakehold.holds import rules
from lakehold.holds.commands import NewHold
from lakehold.lake import Lake, connect
from lakehold.model.lake_definitions import Definitions
from lakehold.sql.run.list_holds import HOLD_COLUMNS
from lakehold.state.objects import DefinitionStore
from lakehold.state.subscribers import Subscriber, SubscriberKind
from tests.waiting import wait_for

COLUMNS = pa.schema([("id", pa.int64())])
FEED = "CREATE SOURCE feed FROM FILES '/x' FORMAT JSON;"
FED = "CREATE TABLE shop.fed FROM SOURCE feed (TOPIC 'fed') ENVELOPE UPSERT;"


class Killed(BaseException):
    """The death of the process: no handler for errors catches it."""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """Return a lake with the table `shop.t` of a foreign writer."""
    with connect(str(tmp_path), foreign_lag_ms=0) as lake:
        lake.catalog.create_namespace("shop")
        lake.catalog.create_table("shop.t", COLUMNS).append(pa.table({"id": [1]}, COLUMNS))
        yield lake


def stored(lake: Lake) -> list[str]:
    """Return the names of all stored holds, visible or not."""
    table = lake.catalog.load_table("mz_catalog.mz_holds")
    return [row["name"] for row in table.scan().to_arrow().to_pylist()]


def tags(lake: Lake) -> list[str]:
    return sorted(lake.catalog.load_table("shop.t").metadata.refs.keys() - {"main"})


def test_tables_and_subscriptions_are_created_together(lake: Lake) -> None:
    lake.sql(f"""
        BEGIN;
        {FEED} {FED}
        CREATE HOLD own ON shop.fed;
        CREATE SUBSCRIPTION fed_changes AS SUBSCRIBE shop.fed;
        CREATE SUBSCRIPTION t_changes WITH (MAX LAG = '1 day') AS SUBSCRIBE shop.t;
        COMMIT
    """)
    assert [row[0] for row in lake.sql("SHOW SUBSCRIPTIONS").rows] == ["fed_changes", "t_changes"]
    holds = {hold.name: hold for hold in lake.holds.all()}
    assert holds.keys() == {"own", "subscription_fed_changes", "subscription_t_changes"}
    assert holds["subscription_fed_changes"].at_ms is None, "the hold begins with the table's first rows"
    assert holds["subscription_t_changes"].at_ms is not None
    assert tags(lake) == ["hold_subscription_t_changes"]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("CREATE SUBSCRIPTION c AS SUBSCRIBE shop.nothing;", "table-missing"),
        ("CREATE SUBSCRIPTION c AS SUBSCRIBE shop.t AS OF 5;", "not-readable"),
        ("CREATE SUBSCRIPTION c AS SUBSCRIBE shop.fed AS OF 5;", "not-readable"),
        ("CREATE SUBSCRIPTION c AS SUBSCRIBE shop.t ENVELOPE UPSERT (KEY (nothing));", "column-missing"),
        ("CREATE SUBSCRIPTION c INTO shop.t AS SUBSCRIBE shop.fed;", "output-exists"),
        (
            "CREATE SUBSCRIPTION c AS SUBSCRIBE shop.t; CREATE SUBSCRIPTION c AS SUBSCRIBE shop.t;",
            "subscription-exists",
        ),
    ],
)
def test_an_impossible_subscription_leaves_nothing_of_a_transaction(lake: Lake, statement: str, code: str) -> None:
    with pytest.raises(LakeholdError) as refused:
        lake.sql(f"BEGIN; {FEED} {FED}\nCREATE SUBSCRIPTION first AS SUBSCRIBE shop.t;\n{statement}\nCOMMIT")
    assert refused.value.code == code
    assert refused.value.place is not None
    assert refused.value.place.line == 3
    assert lake.definitions.definitions() == Definitions()
    assert (stored(lake), tags(lake)) == ([], [])


def test_a_transaction_takes_the_privileges_of_its_statements(lake: Lake, tmp_path: Path) -> None:
    lake.sql("CREATE ROLE ops")
    with connect(str(tmp_path), role="ops") as ops:
        ops.sql("CREATE ROLE bi; GRANT CREATE ON SCHEMA shop TO bi; GRANT SELECT ON shop.fed TO bi")
    made = f"""
        BEGIN; {FEED} {FED} CREATE HOLD h ON shop.fed;
        CREATE SUBSCRIPTION s AS SUBSCRIBE (SELECT a.id FROM shop.fed a JOIN shop.t b USING (id));
        COMMIT
    """
    with connect(str(tmp_path), role="bi") as bi:
        with pytest.raises(PermissionDenied) as refused:
            bi.sql(made)
        assert (refused.value.place and refused.value.place.line) == 3
        assert refused.value.detail == 'It lacks SELECT on table "shop.t".'
        assert lake.definitions.definitions() == Definitions()
        assert stored(lake) == []
        with connect(str(tmp_path), role="ops") as ops:
            ops.sql("GRANT SELECT ON shop.t TO bi")
        bi.sql(made)
    assert stored(lake) == ["h", "subscription_s"]


def test_a_process_that_dies_before_the_commit_leaves_a_hold_that_nobody_sees(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep the invisible hold while its commit may follow; later the next change of holds deletes it."""

    def die(_: object, __: Callable[[Definitions], Definitions]) -> Definitions:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(DefinitionStore, "change", die)
        patch.setattr("lakehold.holds.hold_changes.HoldChanges.take_back", lambda *_: None)
        with pytest.raises(Killed):
            lake.sql("CREATE SUBSCRIPTION s AS SUBSCRIBE shop.t")
    assert lake.sql("SHOW HOLDS").rows == lake.sql("SHOW SUBSCRIPTIONS").rows == []
    assert (stored(lake), tags(lake)) == (["subscription_s"], ["hold_subscription_s"])
    lake.sql("CREATE HOLD other ON shop.t")
    assert stored(lake) == ["subscription_s", "other"]
    monkeypatch.setattr(rules, "ABANDONED_MS", -1)
    lake.sql("DROP HOLD other")
    assert (stored(lake), tags(lake)) == ([], [])


def test_a_subscription_that_was_begun_and_not_declared_can_be_created(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(DefinitionStore, "change", lambda *_: (_ for _ in ()).throw(Killed))
        patch.setattr("lakehold.holds.hold_changes.HoldChanges.take_back", lambda *_: None)
        with pytest.raises(Killed):
            lake.sql("CREATE SUBSCRIPTION s AS SUBSCRIBE shop.t")
    lake.sql("CREATE SUBSCRIPTION s AS SUBSCRIBE shop.t")
    assert stored(lake) == ["subscription_s"]
    assert [hold.name for hold in lake.holds.all()] == ["subscription_s"]


def test_the_holds_of_subscribers_are_shown_with_their_names_and_cannot_be_changed(lake: Lake) -> None:
    lake.sql('CREATE SUBSCRIPTION "Odd one" AS SUBSCRIBE shop.t')
    lake.subscriptions.holds.create(
        NewHold("client_app", None, ("shop.t",), kept_by="app", keeper=SubscriberKind.CLIENT)
    )
    kept_by = HOLD_COLUMNS.index("kept_by")
    assert [row[kept_by] for row in lake.sql("SHOW HOLDS").rows] == ["app", "Odd one"]
    before = lake.holds.all()
    for name, ends in (("subscription_Odd one", "DROP SUBSCRIPTION `Odd one`"), ("client_app", "its forget()")):
        for statement in (f'ALTER HOLD "{name}" ADVANCE', f'ALTER HOLD "{name}" ADVANCE TO 5', f'DROP HOLD "{name}"'):
            with pytest.raises(DefinitionError) as refused:
                lake.sql(statement)
            assert refused.value.code == "hold-kept"
            assert ends in refused.value.hint
        for call in (lake.holds.advance, lake.holds.drop):
            with pytest.raises(DefinitionError, match="by hand"):
                call(name)
    assert lake.holds.all() == before
    lake.sql('ALTER HOLD client_app RENAME TO app; DROP SUBSCRIPTION "Odd one"')
    assert stored(lake) == ["app"]
    assert tags(lake) == ["hold_app"]


def test_max_lag_moves_the_hold_of_a_subscription(lake: Lake) -> None:
    lake.sql("CREATE SUBSCRIPTION s WITH (MAX LAG = '1ms') AS SUBSCRIBE shop.t")
    (before,) = lake.holds.all()
    assert lake.subscriptions.holds.enforce_lag() == (), "nothing has changed since"
    lake.catalog.load_table("shop.t").append(pa.table({"id": [2]}, COLUMNS))
    wait_for(lambda: bool(lake.subscriptions.holds.enforce_lag()), "the change is older than MAX LAG")
    (after,) = lake.holds.all()
    assert after.forced_from_ms == before.at_ms
    assert (after.at_ms or 0) > (before.at_ms or 0)


def test_holds_of_dropped_subscribers_are_removed(lake: Lake) -> None:
    """Simulate `DROP SUBSCRIPTION` and `forget()` that died halfway."""
    lake.sql("CREATE SUBSCRIPTION s AS SUBSCRIBE shop.t; CREATE SUBSCRIPTION kept AS SUBSCRIBE shop.t")
    entry = lake.definitions.definitions().subscription("s")
    store, holds = lake.subscriptions.store, lake.subscriptions.holds
    store.register(Subscriber(entry.object_id, SubscriberKind.SUBSCRIPTION, "s", ""))
    store.register(Subscriber("app", SubscriberKind.CLIENT, "app", ""))
    for name in ("app", "gone"):
        holds.create(NewHold(f"client_{name}", None, ("shop.t",), kept_by=name, keeper=SubscriberKind.CLIENT))
    lake.definitions.change(lambda definitions: definitions.without(entry.definition))
    age_all(lake)

    lake.subscriptions.let_go()
    assert sorted(stored(lake)) == ["client_app", "subscription_kept"]
    assert [tag for tag in tags(lake) if tag.startswith("hold_")] == ["hold_client_app", "hold_subscription_kept"]
    assert [subscriber.subscriber_id for subscriber in store.subscribers()] == ["app"]


def age_all(lake: Lake) -> None:
    """Set the creation time of all holds to long ago."""
    store = lake.subscriptions.holds._changes.store
    store.change(lambda holds: (replace(hold, created_at_ms=1) for hold in holds))
