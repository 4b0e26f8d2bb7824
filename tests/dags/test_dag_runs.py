"""Each DAG is run for real, over Spark Connect: its effects, its red tasks, and its logs."""

from __future__ import annotations

import json

import pytest
from pyarrow import parquet
from pyiceberg.table.snapshots import Operation

from lakehold.holds.commands import NewHold
from tests.dags.conftest import Orchestrated

pytestmark = pytest.mark.spark


def test_ingest_announces_changed_tables_and_a_broken_table_is_red_alone(orchestrated: Orchestrated) -> None:
    shop, lake = orchestrated.records, orchestrated.lake
    shop.write("orders", (1, "new"), (2, "new"))
    shop.write("rates", (1, "one"))
    run = orchestrated.airflow.run("lakehold_ingest")
    assert (run.state, run.labels["ingest[0]"]) == ("success", "shop")
    assert {name for name, _ in run.events} == {"orchestrated.shop.orders", "orchestrated.shop.rates"}
    assert "shop.orders: 2 messages, 2 inserted, 0 updated" in run.log
    first = dict(run.events)["orchestrated.shop.orders"]
    assert (first["table"], first["previous_snapshot_id"]) == ("shop.orders", None)
    assert first["mz_timestamp"] + 1 == lake.batches.readers("shop")["main"].upper_ms

    shop.write("orders", (1, "paid"))
    shop.break_("rates")
    run = orchestrated.airflow.run("lakehold_ingest")
    assert run.state == "failed"
    assert (run.tasks["ingest[0]"], run.tasks["table[0]"], run.labels["table[0]"]) == (
        "success",
        "failed",
        "shop.rates",
    )
    assert lake.timelines.of(["shop.orders"])["shop.orders"].upper_ms > 0
    second = dict(run.events)["orchestrated.shop.orders"]
    assert (second["table"], second["previous_snapshot_id"]) == ("shop.orders", first["snapshot_id"])
    assert second["mz_timestamp"] > first["mz_timestamp"]
    last = run.log[run.log.rindex("shop.rates: table") :]
    assert "hint: Correct the producer" in last
    assert "code: bad-input" in last


def test_each_change_is_announced_once_while_a_table_is_stopped_and_others_write(orchestrated: Orchestrated) -> None:
    shop, lake, airflow = orchestrated.records, orchestrated.lake, orchestrated.airflow
    run = airflow.run("lakehold_ingest")
    assert (run.labels["table[0]"], run.state, run.events) == ("shop.rates", "failed", ())

    before = lake.catalog.load_table("shop.orders").metadata.current_snapshot_id
    shop.write("orders", (2, "paid"))
    lake.ingest("shop")
    lake.sql(f"CREATE SOURCE till FROM FILES '{shop.directory}' FORMAT JSON")
    lake.sql("CREATE TABLE till.orders (id BIGINT, v STRING) FROM SOURCE till (TOPIC 'orders') ENVELOPE UPSERT")
    run = airflow.run("lakehold_ingest", sources=["till"])
    assert (run.state, [name for name, _ in run.events]) == ("success", ["orchestrated.till.orders"])
    lake.sql("DROP SOURCE till CASCADE")
    ((name, extra),) = airflow.run("lakehold_ingest").events
    assert (name, extra["previous_snapshot_id"]) == ("orchestrated.shop.orders", str(before))
    assert airflow.run("lakehold_ingest").events == ()

    options = "options => map('rewrite-all', 'true')"
    lake.spark.sql(f"CALL orchestrated.system.rewrite_data_files(table => 'shop.orders', {options})")
    newest = lake.catalog.load_table("shop.orders").current_snapshot()
    assert newest is not None
    assert newest.summary is not None
    assert newest.summary.operation is Operation.REPLACE
    assert airflow.run("lakehold_ingest").events == ()
    shop.write("orders", (2, "new"))
    ((_, after),) = airflow.run("lakehold_ingest").events
    assert after["previous_snapshot_id"] == extra["snapshot_id"]


def test_sources_over_the_same_topics_are_one_task(orchestrated: Orchestrated) -> None:
    shop, lake = orchestrated.records, orchestrated.lake
    lake.sql(f"CREATE SOURCE billing FROM FILES '{shop.directory}' FORMAT JSON")
    lake.sql("CREATE TABLE billing.orders (id BIGINT, v STRING) FROM SOURCE billing (TOPIC 'orders') ENVELOPE UPSERT")
    lake.sql(f"CREATE SOURCE elsewhere FROM FILES '{shop.directory}/other' FORMAT JSON")
    lake.sql("CREATE TABLE elsewhere.orders (id BIGINT) FROM SOURCE elsewhere (TOPIC 'orders') ENVELOPE UPSERT")
    shop.write("orders", (9, "new"))
    run = orchestrated.airflow.run("lakehold_ingest")
    assert {run.labels[task] for task in run.labels if task.startswith("ingest[")} == {"billing, shop", "elsewhere"}
    assert {"orchestrated.shop.orders", "orchestrated.billing.orders"} <= {name for name, _ in run.events}
    assert "source elsewhere was not ingested" in run.log
    for source in ("billing", "elsewhere"):
        lake.sql(f"DROP SOURCE {source} CASCADE")


def test_backfill_lets_new_tables_catch_up_and_a_stopped_one_is_red_alone(
    orchestrated: Orchestrated,
) -> None:
    for name in ("again", "more"):
        orchestrated.lake.sql(
            f"CREATE TABLE shop.{name} (id BIGINT, v STRING) FROM SOURCE shop (TOPIC 'orders') ENVELOPE UPSERT"
        )
    run = orchestrated.airflow.run("lakehold_backfill")
    assert run.state == "failed"
    assert run.labels["backfill[0]"] == "shop.again, shop.more, shop.rates"
    assert {run.labels[name]: state for name, state in run.tasks.items() if name.startswith("table[")} == {
        "shop.again": "success",
        "shop.more": "success",
        "shop.rates": "failed",
    }
    assert "shop.again is readable from" in run.log
    assert {"orchestrated.shop.again", "orchestrated.shop.more"} <= {name for name, _ in run.events}
    last = run.log[run.log.rindex("shop.rates: table") :]
    assert "hint: Correct the producer" in last
    assert "code: bad-input" in last

    run = orchestrated.airflow.run("lakehold_backfill", tables=["shop.again"])
    assert (run.state, run.tasks["table[0]"], run.labels["table[0]"]) == ("success", "success", "shop.again")
    missing = orchestrated.airflow.run("lakehold_backfill", tables=["shop.missing"])
    assert missing.state == "failed"
    assert "code: table-missing" in missing.log


def test_subscriptions_publish_and_announce_their_outputs(orchestrated: Orchestrated) -> None:
    lake = orchestrated.lake
    lake.sql("""
        CREATE SUBSCRIPTION changes INTO bi.changes AS SUBSCRIBE shop.orders;
        CREATE MATERIALIZED VIEW bi.ids KEY (id) AS SELECT id FROM shop.orders;
        CREATE MATERIALIZED VIEW bi.count AS SELECT count(*) AS n FROM bi.ids;
    """)
    run = orchestrated.airflow.run("lakehold_subscriptions")
    assert (run.state, run.labels) == ("success", {"publish[0]": "bi.ids, bi.count, changes"})
    assert [name for name, _ in run.events] == [f"orchestrated.bi.{name}" for name in ("ids", "count", "changes")]
    output = lake.catalog.load_table("bi.changes")
    assert output.scan().count() > 0
    published = dict(run.events)["orchestrated.bi.changes"]
    assert (published["snapshot_id"], published["previous_snapshot_id"]) == (
        str(output.metadata.current_snapshot_id),
        None,
    )
    assert published["mz_timestamp"] == int(output.properties["lakehold.position"]) - 1
    assert "rows of" in run.log
    again = orchestrated.airflow.run("lakehold_subscriptions", subscriptions=["changes"])
    assert (again.state, again.events) == ("success", ())

    # As a task does that is killed before its event is sent.
    orchestrated.records.write("orders", (19, "new"))
    lake.ingest("shop")
    (report,) = lake.publish("changes")
    late = orchestrated.airflow.run("lakehold_subscriptions", subscriptions=["changes"])
    ((name, event),) = late.events
    assert (late.state, name) == ("success", "orchestrated.bi.changes")
    assert (event["snapshot_id"], event["previous_snapshot_id"]) == (str(report.snapshot_id), published["snapshot_id"])
    assert (event["at_ms"], event["mz_timestamp"]) == (report.position_ms, report.position_ms - 1)
    again = orchestrated.airflow.run("lakehold_subscriptions", subscriptions=["changes"])
    assert (again.state, again.events) == ("success", ())

    missing = orchestrated.airflow.run("lakehold_subscriptions", subscriptions=["missing"])
    assert missing.state == "failed"
    assert "code: subscription-missing" in missing.log


def test_lineage_leads_from_topics_to_tables_and_from_these_to_outputs(orchestrated: Orchestrated) -> None:
    events = [json.loads(line) for line in orchestrated.lineage.read_text().splitlines()]
    done = [event for event in events if event["eventType"] == "COMPLETE" and event["outputs"]]
    found = {
        event["job"]["name"]: (
            {(each["namespace"], each["name"]) for each in event["inputs"]},
            {(each["namespace"], each["name"]) for each in event["outputs"]},
        )
        for event in reversed(done)
    }
    lake = "lakehold://orchestrated"
    read, written = found["lakehold_ingest.ingest"]
    assert read == {("file", str(orchestrated.records.directory))}
    assert written == {(lake, "shop.orders"), (lake, "shop.rates")}
    # Here all tasks run in one process, whose collector keeps what earlier ones reported.
    read, written = found["lakehold_subscriptions.publish"]
    assert read >= {(lake, "shop.orders"), (lake, "bi.ids")}
    assert written >= {(lake, "bi.ids"), (lake, "bi.count"), (lake, "bi.changes")}
    versions = [each["facets"]["version"]["datasetVersion"] for event in done for each in event["outputs"]]
    assert all(version.isdigit() for version in versions)


def test_a_subscription_that_fails_is_red_alone(orchestrated: Orchestrated) -> None:
    lake, shop = orchestrated.lake, orchestrated.records
    for name in ("amounts", "broken"):
        lake.sql(f"CREATE SUBSCRIPTION {name} INTO bi.{name} AS SUBSCRIBE shop.orders")
    lake.catalog.create_table("bi.broken", lake.catalog.load_table("shop.orders").schema())
    shop.write("orders", (3, "new"))
    lake.ingest("shop")
    run = orchestrated.airflow.run("lakehold_subscriptions", subscriptions=["amounts", "broken", "changes"])
    assert run.state == "failed"
    assert {run.labels[task]: state for task, state in run.tasks.items() if task in run.labels} == {
        "amounts, broken, changes": "success",
        "broken": "failed",
    }
    assert {name for name, _ in run.events} == {"orchestrated.bi.amounts", "orchestrated.bi.changes"}
    assert "code: output-exists" in run.log
    lake.sql("DROP SUBSCRIPTION broken")


def test_quality_checks_each_snapshot_once_and_names_the_expectation(orchestrated: Orchestrated) -> None:
    suites = orchestrated.lake.settings.expectations
    assert suites is not None
    expectation = {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "v", "value_set": ["new"]}}
    suite = {"name": "shop.orders", "expectations": [expectation], "meta": {}}
    (suites / "shop.orders.json").write_text(json.dumps(suite))
    run = orchestrated.airflow.run("lakehold_quality", tables=["shop.orders", "shop.again"])
    assert run.state == "failed"
    assert {run.labels[name]: state for name, state in run.tasks.items() if name in run.labels} == {
        "shop.orders": "failed"
    }
    last = run.log[run.log.rindex("AirflowFailException") :]
    assert "expect_column_values_to_be_in_set (v)" in last
    assert "such as paid" in last
    assert "in the rows id 1" in last
    again = orchestrated.airflow.run("lakehold_quality", tables=["shop.orders"], verify=True)
    assert again.state == "failed", "a person asked for the check"
    assert "shop.orders is not captured from a database" in again.log
    by_clock = orchestrated.airflow.run("lakehold_quality")
    assert by_clock.state == "success"
    assert "shop.orders has been checked before" in by_clock.log


def test_holds_are_moved_and_checked(orchestrated: Orchestrated) -> None:
    lake = orchestrated.lake
    lake.holds.create(NewHold("kept", None, ("shop.again",)))
    run = orchestrated.airflow.run("lakehold_holds", advance=["kept"])
    assert run.state == "success"
    assert "hold kept keeps history from" in run.log
    run = orchestrated.airflow.run("lakehold_holds", advance=["kept", "missing"])
    assert (run.state, run.labels) == ("failed", {"hold[0]": "missing"})
    assert "code: hold-missing" in run.log


def test_maintenance_reports_its_deletions(orchestrated: Orchestrated) -> None:
    dry = orchestrated.airflow.run("lakehold_maintenance", dry_run=True)
    assert dry.state == "success"
    assert "would go" in dry.log
    run = orchestrated.airflow.run("lakehold_maintenance", tables=["shop.orders", "shop.missing"])
    assert (run.state, run.labels) == ("failed", {"table[0]": "shop.missing"})
    assert "code: table-missing" in run.log


def test_the_example_exports_the_newest_state(orchestrated: Orchestrated) -> None:
    orchestrated.records.write("orders", (7, "exported"))
    orchestrated.lake.ingest("shop")
    run = orchestrated.airflow.run("orders_export")
    assert run.state == "success", run.log
    (file,) = orchestrated.exports.glob("orders-*.parquet")
    assert (7, "exported") in {(row["id"], row["v"]) for row in parquet.read_table(file).to_pylist()}
