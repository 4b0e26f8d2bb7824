"""The life of a subscription: its publisher and lease, lapses, retention, and the statements that create, show and drop it."""

from __future__ import annotations

from collections.abc import Generator
from threading import Event

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from lakehold.errors import DefinitionError, LakeholdError, LeaseLost, SubscriberBusy, SubscriberLapsed
from lakehold.failpoints import Point
from lakehold.publish import publisher
from lakehold.publish.deliveries import Delivery
from lakehold.publish.output_table import OutputTable
from lakehold.publish.publisher import PublishReport
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.published_shop import COLUMNS, DAY_MS, Shop, publish_and_die

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = Shop(make_lake)
    made.write((1, "a"), (2, "b"))
    return made


# --- who publishes ----------------------------------------------------------------------------------------------------


def test_a_second_publisher_is_refused_and_learns_who_runs(shop: Shop) -> None:
    shop.subscribe()
    running = shop.lake.publications("s")
    next(running)
    assert shop.state() == "running"
    with pytest.raises(SubscriberBusy, match="another process") as refused:
        shop.again().publish("s")
    assert ":" in refused.value.detail
    running.close()
    assert shop.again().publish("s") == []


def test_a_publisher_whose_lease_was_taken_over_commits_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suspend a publisher after it checked its lease, until another publisher has published the same rows and more."""
    shop.subscribe()
    shop.lake.publish("s")
    shop.write((3, "c"))
    successor = shop.again()
    published: list[list[PublishReport]] = []

    def succeeded(here: Point) -> None:
        if here == "before-publication" and not published:
            published.append([])
            store = shop.lake.subscriptions.store
            (subscriber,) = store.subscribers()
            store.release(subscriber.subscriber_id, subscriber.lease.holder if subscriber.lease else "")
            published[0] += successor.publish("s")

    monkeypatch.setattr(publisher, "failpoint", succeeded)
    monkeypatch.setattr("lakehold.state.lease.HeldLease.confirm", lambda _: None)
    with pytest.raises(LeaseLost, match="another publisher") as lost:
        shop.lake.publish("s")
    assert published[0]
    assert "has published up to" in lost.value.detail
    assert shop.output() == shop.expected()


def test_a_publisher_whose_subscription_was_dropped_does_not_create_the_output_again(shop: Shop) -> None:
    shop.subscribe()
    running = shop.lake.publications("s", Event())
    next(running)
    shop.lake.sql("DROP SUBSCRIPTION s CASCADE")
    shop.write((3, "c"))
    with pytest.raises(DefinitionError) as gone:
        next(running)
    assert gone.value.code == "subscriber-missing"
    shop.subscribe()
    shop.lake.publish("s")
    assert shop.output() == shop.expected()


# --- lapses -----------------------------------------------------------------------------------------------------------


def lapse(shop: Shop) -> None:
    """Move the hold past unpublished changes, as MAX LAG does."""
    shop.write((3, "c"))
    shop.write((1, None))
    shop.lake.subscriptions.holds.advance("subscription_s", now_ms())


def test_a_lapsed_subscription_stops_with_an_error(shop: Shop) -> None:
    shop.subscribe()
    shop.lake.publish("s")
    lapse(shop)
    before = shop.output()
    with pytest.raises(SubscriberLapsed) as lapsed:
        shop.lake.publish("s")
    assert lapsed.value.code == "subscriber-lapsed"
    assert "subscription_s" in lapsed.value.detail
    assert "ALTER SUBSCRIPTION s SET (ON LAPSE = 'resnapshot')" in lapsed.value.hint
    assert "DROP SUBSCRIPTION without CASCADE" in lapsed.value.hint
    assert shop.state() == "lapsed"
    assert shop.output() == before


def test_the_hints_for_a_subscription_with_a_quoted_name_are_statements_that_run(shop: Shop) -> None:
    shop.lake.sql("CREATE SUBSCRIPTION `my-sub` INTO bi.out AS SUBSCRIBE shop.t")
    shop.lake.publish("my-sub")
    shop.write((3, "c"))
    shop.write((1, None))
    shop.lapse()
    with pytest.raises(SubscriberLapsed) as lapsed:
        shop.lake.publish("my-sub")
    shop.lake.sql(lapsed.value.hint.partition(":")[0])
    assert [report.restarted for report in shop.lake.publish("my-sub")] == [True]
    with pytest.raises(DefinitionError) as refused:
        shop.lake.sql("DELETE FROM bi.out")
    shop.lake.sql(refused.value.hint.partition(" leaves")[0])
    assert shop.lake.sql("SHOW SUBSCRIPTIONS").rows == []


def test_a_lapsed_subscription_starts_over_in_one_commit(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.subscribe(options="WITH (ON LAPSE = 'resnapshot')")
    shop.lake.publish("s")
    lapse(shop)
    publish_and_die(shop.lake, "s", monkeypatch, "before-publication")
    (report,) = shop.lake.publish("s")
    assert report.restarted
    assert [(row["mz_diff"], row["id"], row["v"]) for row in shop.output()] == [(1, 2, "b"), (1, 3, "c")]
    table = shop.lake.catalog.load_table("bi.out")
    assert table.properties["lakehold.restarted-at"] == str(shop.output()[0]["mz_timestamp"])
    shop.write((4, "d"))
    (report,) = shop.lake.publish("s")
    assert not report.restarted
    assert shop.output() == shop.expected()


def test_a_subscription_whose_hold_max_lag_moved_before_its_first_publication_says_so(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.subscribe("WITH (SNAPSHOT = false)", options="WITH (MAX LAG = '1 ms')")
    shop.lake.sql("CREATE MATERIALIZED VIEW bi.v WITH (MAX LAG = '1 ms') AS SELECT id FROM shop.t")
    shop.write((3, "c"))
    shop.write((1, None))
    assert shop.lake.holds.enforce_lag()
    assert shop.state() == "lapsed"
    with pytest.raises(SubscriberLapsed) as lapsed:
        shop.lake.publish("s")
    assert lapsed.value.detail is not None
    assert "It has read nothing yet." in lapsed.value.detail
    assert "MAX LAG moved it" in lapsed.value.detail
    shop.lake.sql("ALTER SUBSCRIPTION s SET (ON LAPSE = 'resnapshot')")
    publish_and_die(shop.lake, "s", monkeypatch, "before-publication")
    (report,) = shop.lake.publish("s")
    assert report.restarted
    assert [(row["mz_diff"], row["id"], row["v"]) for row in shop.output()] == [(1, 2, "b"), (1, 3, "c")]
    assert shop.state() == "idle"
    # A view misses nothing: it begins later, with all rows.
    shop.lake.publish("bi.v")
    assert shop.lake.verify("bi.v").is_equal


def test_a_client_whose_hold_max_lag_moved_before_it_acknowledged_anything_has_lapsed(shop: Shop) -> None:
    def deliveries(on_lapse: str) -> Generator[Delivery, None, None]:
        return shop.lake.durable("app", "SUBSCRIBE shop.t", on_lapse=on_lapse, max_lag_ms=1).deliveries()

    killed = deliveries("stop")
    assert [row[2:] for row in next(killed)] == [(1, "a"), (2, "b")]
    killed.close()
    shop.write((3, "c"), (1, None))
    assert shop.lake.holds.enforce_lag()
    with pytest.raises(SubscriberLapsed, match="fallen behind"):
        next(deliveries("stop"))
    again = next(deliveries("resnapshot"))
    assert again.is_snapshot
    assert [row[2:] for row in again] == [(2, "b"), (3, "c")]


def test_a_dropped_hold_is_created_again_while_history_remains(shop: Shop) -> None:
    shop.subscribe()
    shop.lake.publish("s")
    shop.write((3, "c"))
    shop.lake.subscriptions.holds.drop("subscription_s")
    shop.lake.publish("s")
    assert shop.output() == shop.expected()
    shop.lake.subscriptions.holds.drop("subscription_s")
    shop.write((4, "d"))
    table = shop.lake.catalog.load_table("shop.t")
    with table.manage_snapshots() as refs:
        for tag in table.metadata.refs.keys() - {"main"}:
            refs.remove_tag(tag)
    old = [snapshot.snapshot_id for snapshot in table.snapshots()[:-1]]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    with pytest.raises(SubscriberLapsed, match="fallen behind"):
        shop.lake.publish("s")


# --- retention and columns --------------------------------------------------------------------------------------------


def test_old_rows_of_the_output_are_removed_by_whole_days(shop: Shop) -> None:
    shop.subscribe(options="WITH (RETAIN OUTPUT = '7 days')")
    shop.lake.publish("s")
    entry = shop.lake.definitions.definitions().subscription("s")
    output = OutputTable(shop.lake.catalog, "bi.out", entry.object_id)
    day = shop.output()[0]["mz_timestamp"] // DAY_MS * DAY_MS
    assert output.remove_rows_before(day, lambda: None)
    assert len(shop.output()) == 2
    assert output.remove_rows_before(day + DAY_MS, lambda: None)
    assert shop.output() == []
    shop.write((3, "c"))
    shop.lake.publish("s")
    assert {row["id"] for row in shop.output()} >= {3}


def test_a_column_added_to_the_table_is_added_to_the_output(shop: Shop) -> None:
    shop.subscribe("ENVELOPE UPSERT (KEY (id))")
    shop.lake.publish("s")
    with shop.lake.catalog.load_table("shop.t").update_schema() as update:
        update.union_by_name(pa.schema([*COLUMNS, ("n", pa.int32())]))
    shop.lake.catalog.load_table("shop.t").append(pa.table({"id": [3], "v": ["c"], "n": pa.array([7], pa.int32())}))
    while now_ms() <= shop.lake.catalog.load_table("shop.t").metadata.last_updated_ms:
        pass
    shop.lake.publish("s")
    assert [(row["id"], row["n"]) for row in shop.output()] == [(1, None), (2, None), (3, 7)]


def test_a_type_that_a_table_cannot_have_is_refused(shop: Shop) -> None:
    shop.lake.sql("CREATE SUBSCRIPTION s INTO bi.out AS SUBSCRIBE (SELECT id, NULL AS nothing FROM shop.t)")
    with pytest.raises(DefinitionError, match="cannot take the output") as refused:
        shop.lake.publish("s")
    assert "nothing" in refused.value.detail


# --- statements -------------------------------------------------------------------------------------------------------


def test_a_subscription_that_cannot_begin_does_not_exist(shop: Shop) -> None:
    shop.lake.catalog.create_namespace("bi")
    shop.lake.catalog.create_table("bi.taken", COLUMNS)
    for statement, code in [
        ("CREATE SUBSCRIPTION s AS SUBSCRIBE shop.nothing", "table-missing"),
        ("CREATE SUBSCRIPTION s AS SUBSCRIBE shop.t ENVELOPE UPSERT (KEY (nothing))", "column-missing"),
        ("CREATE SUBSCRIPTION s AS SUBSCRIBE shop.t AS OF 1", "not-readable"),
        ("CREATE SUBSCRIPTION s INTO bi.taken AS SUBSCRIBE shop.t", "output-exists"),
        ("CREATE SUBSCRIPTION s INTO shop.t AS SUBSCRIBE shop.t", "output-exists"),
        ("CREATE SUBSCRIPTION s INTO mz_catalog.x AS SUBSCRIBE shop.t", "namespace-reserved"),
    ]:
        with pytest.raises(LakeholdError) as refused:
            shop.lake.sql(statement)
        assert refused.value.code == code, statement
    assert shop.lake.sql("SHOW SUBSCRIPTIONS").rows == []
    assert shop.lake.holds.all() == ()


def test_as_of_at_least_begins_with_the_first_rows_that_are_readable(shop: Shop) -> None:
    shop.write((3, "c"))
    shop.lake.sql("CREATE SUBSCRIPTION s INTO bi.out AS SUBSCRIBE shop.t AS OF AT LEAST 1")
    client = shop.lake.durable("c", "SUBSCRIBE shop.t AS OF EARLIEST")
    shop.lake.publish("s")
    versions = [entry.timestamp_ms for entry in shop.lake.catalog.load_table("shop.t").history()]
    first = [row["id"] for row in shop.output() if row["mz_timestamp"] == versions[0]]
    assert sorted(first) == [1, 2]
    assert [row[:3] for row in next(client.deliveries())] == [(versions[0], 1, 1), (versions[0], 1, 2)]


def test_an_output_table_is_never_shared_with_other_writers_or_subscriptions(shop: Shop) -> None:
    shop.subscribe()
    shop.lake.publish("s")
    for statement, code in [
        ("DELETE FROM bi.out", "table-published"),
        ("DROP TABLE bi.out", "table-published"),
        ("CREATE SUBSCRIPTION second AS SUBSCRIBE bi.out", "output-read"),
        ("CREATE SUBSCRIPTION second INTO bi.out AS SUBSCRIBE shop.t", "output-exists"),
        ("CREATE SUBSCRIPTION s INTO bi.out AS SUBSCRIBE shop.t", "subscription-exists"),
    ]:
        with pytest.raises(LakeholdError) as refused:
            shop.lake.sql(statement)
        assert refused.value.code == code, statement


def test_drop_keeps_the_output_unless_it_cascades(shop: Shop) -> None:
    shop.subscribe()
    shop.lake.publish("s")
    shop.lake.sql("DROP SUBSCRIPTION s")
    assert len(shop.output()) == 2
    assert (shop.lake.holds.all(), shop.lake.subscriptions.store.subscribers()) == ((), ())
    with pytest.raises(DefinitionError, match="already exists"):
        shop.subscribe()
    shop.subscribe(into="bi.other")
    shop.lake.publish("s")
    shop.lake.sql("DROP SUBSCRIPTION s CASCADE")
    assert not _exists(shop.lake.catalog, "bi.other")
    shop.lake.sql("DROP SUBSCRIPTION IF EXISTS s")


def test_a_hold_of_an_interrupted_drop_is_reused(shop: Shop) -> None:
    shop.subscribe()
    definition = shop.lake.definitions.definitions().subscription("s").definition
    shop.lake.definitions.change(lambda defined: defined.without(definition))
    shop.subscribe()
    shop.lake.publish("s")
    assert len(shop.lake.holds.all()) == 1


def test_show_create_recreates_the_same_subscription(shop: Shop) -> None:
    options = "WITH (ON LAPSE = 'resnapshot', MAX LAG = '90m', RETAIN OUTPUT = '2 weeks')"
    shop.subscribe("ENVELOPE UPSERT (KEY (id))", options)
    before = shop.lake.definitions.definitions().subscription("s").definition
    ((name, statement),) = shop.lake.sql("SHOW CREATE SUBSCRIPTION s").rows
    shop.lake.sql(f"DROP SUBSCRIPTION {name}; {statement}")
    assert shop.lake.definitions.definitions().subscription("s").definition == before
    assert shop.hold.max_lag_ms == 90 * 60_000


def test_options_change_while_name_table_and_statement_stay(shop: Shop) -> None:
    shop.subscribe()
    shop.lake.publish("s")
    shop.lake.sql("ALTER SUBSCRIPTION s SET (ON LAPSE = 'resnapshot', RETAIN OUTPUT = '2 weeks', MAX LAG = '90m')")
    assert shop.hold.max_lag_ms == 90 * 60_000
    changed = shop.lake.definitions.definitions().subscription("s").definition
    assert (changed.on_lapse, changed.retain_output_ms, changed.max_lag_ms) == ("resnapshot", 14 * DAY_MS, 5_400_000)
    lapse(shop)
    (report,) = shop.lake.publish("s")
    assert report.restarted
    shop.lake.sql("ALTER SUBSCRIPTION s RESET (ON LAPSE, MAX LAG)")
    definition = shop.lake.definitions.definitions().subscription("s").definition
    assert (definition.on_lapse, definition.retain_output_ms) == ("stop", 14 * DAY_MS)
    assert shop.hold.max_lag_ms == shop.lake.settings.default_max_lag_ms
    for statement, code, hint in [
        ("ALTER SUBSCRIPTION s RENAME TO t", "syntax", "create another subscription"),
        ("ALTER SUBSCRIPTION s SET (INTO = 'bi.other')", "syntax", "the options here are"),
        ("ALTER SUBSCRIPTION t SET (MAX LAG = '1h')", "subscription-missing", ""),
        ("ALTER SUBSCRIPTION s SET (MAX LAG = '900 days', RETAIN OUTPUT = '1 day')", "hold-max-lag", "shorter"),
    ]:
        with pytest.raises(LakeholdError) as refused:
            shop.lake.sql(statement)
        assert refused.value.code == code, statement
        assert hint in refused.value.hint
    assert shop.lake.definitions.definitions().subscription("s").definition == definition


def _exists(catalog: Catalog, name: str) -> bool:
    try:
        catalog.load_table(name)
    except NoSuchTableError:
        return False
    return True
