"""The steps of pages that need no server: upstream changes while a reader follows a page, and checks afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.resources import files
from string import Template
from typing import Any

from lakehold.demo.recording import unpack
from lakehold.timeline.timelines import common_window
from lakehold.times import iso, now_ms
from tests.debezium_messages import Topic
from tests.page_terminal import EXAMPLES, CtrlC, Terminal
from tests.s3_server import CREDENTIALS, S3Server

NUMBER, TEXT = {"type": "int64"}, {"type": "string"}


class PageShop:
    """Orders and customers of a shop, recorded in the directory `messages`; the lake is in `lake`.

    Args:
        terminal: Where the page is followed.
        s3_server: Starts the S3 server of pages that need one.
    """

    def __init__(self, terminal: Terminal, s3_server: Callable[[], S3Server]) -> None:
        self.terminal = terminal
        self.s3_server = s3_server
        self.standins = terminal.standins
        self.messages = terminal.directory / "messages"
        self.begin()

    def begin(self) -> None:
        """Start over, with no messages and a new lake."""
        for directory in (self.messages, self.terminal.directory / "lake"):
            shutil.rmtree(directory, ignore_errors=True)
        self.terminal.forget_sessions()
        self.terminal.set_variable("LAKEHOLD_ROLE", None)
        self.orders = Topic(
            "shop.public.orders", {"id": NUMBER, "customer_id": NUMBER, "status": TEXT, "total": {"type": "int32"}}
        )
        self.customers = Topic("shop.public.customers", {"id": NUMBER, "name": TEXT})
        items = {"id": NUMBER, "order_id": NUMBER, "quantity": NUMBER, "price": NUMBER}
        self.items = Topic("shop.public.items", items)
        self.rows: dict[int, dict[str, Any]] = {}

    def open(self) -> None:
        """Snapshot both tables, after which the connector streams."""
        self.begin()
        first = [(1, 1, "placed", 40), (2, 2, "placed", 15)]
        self.rows = {id_: {"id": id_, "customer_id": c, "status": s, "total": t} for id_, c, s, t in first}
        self.orders.snapshot([*self.rows.values()])
        self.customers.snapshot([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}])
        self.write()

    def place(self, id_: int, **values: Any) -> None:
        """Place a new order."""
        self.rows[id_] = {"id": id_, "customer_id": 1, "status": "placed", "total": 25, **values}
        self.orders.create(self.rows[id_])
        self.write()

    def change(self, id_: int, **values: Any) -> None:
        """Change an order."""
        before = self.rows[id_]
        self.rows[id_] = {**before, **values}
        self.orders.update(before, self.rows[id_])
        self.write()

    def delete(self, id_: int) -> None:
        """Delete an order."""
        self.orders.delete(self.rows.pop(id_))
        self.write()

    def write(self) -> None:
        """Write all new messages to the source's directory."""
        for topic in (self.orders, self.customers, self.items):
            topic.write(self.messages)

    def sql(self, text: str) -> None:
        """Run statements in the lake."""
        with self.terminal.connect("lake") as lake:
            lake.sql(text)

    def ingest(self) -> None:
        """Ingest the source."""
        with self.terminal.connect("lake") as lake:
            reports = lake.ingest("shop")
        assert not any(report.stopped for report in reports)

    def define(self, *tables: str) -> None:
        """Create the source and its tables."""
        self.sql("CREATE SOURCE shop FROM FILES 'messages' FORMAT JSON")
        for name in tables:
            self.sql(f"CREATE TABLE shop.{name} FROM SOURCE shop (TOPIC 'shop.public.{name}') ENVELOPE DEBEZIUM")

    def now(self) -> int:
        """Return the present time once the clock has moved on, so that what follows is later."""
        at_ms = now_ms()
        while now_ms() <= at_ms:
            pass
        return at_ms

    def paid(self) -> None:
        """Pay order 1."""
        self.change(1, status="paid")


def _orders_alone(shop: PageShop) -> None:
    shop.open()
    shop.define("orders")
    shop.ingest()


def _orders_and_customers(shop: PageShop) -> None:
    shop.open()
    shop.define("orders", "customers")
    shop.ingest()


def _total_is_text(shop: PageShop) -> None:
    _orders_and_customers(shop)
    shop.orders.columns["total"] = TEXT
    shop.rows = {id_: {**row, "total": str(row["total"])} for id_, row in shop.rows.items()}
    shop.change(2, status="paid", total="15 EUR")
    shop.customers.create({"id": 3, "name": "Edsger"})
    shop.write()


def _paid_and_placed(shop: PageShop) -> None:
    shop.paid()
    shop.ingest()
    shop.place(3)
    shop.ingest()


def _cancelled(shop: PageShop) -> None:
    shop.change(2, status="cancelled")
    shop.ingest()


def _months(shop: PageShop) -> None:
    _orders_and_customers(shop)
    shop.paid()
    shop.ingest()
    shop.standins.of["2026-11-01"] = iso(shop.now())
    shop.change(2, status="paid")
    shop.place(3)
    shop.ingest()


def _october_expires(shop: PageShop) -> None:
    settings = "retain_history_ms = 1\nexpire_grace_ms = 1\n"
    (shop.messages.parent / "lakehold.toml").write_text(settings)


def _note(shop: PageShop) -> None:
    shop.orders.columns["note"] = TEXT
    shop.rows = {id_: {**row, "note": None} for id_, row in shop.rows.items()}
    shop.change(1, note="leave at the door")


def _wide_total(shop: PageShop) -> None:
    shop.orders.columns["total"] = NUMBER
    shop.place(3, total=3_000_000_000, note=None)


def _renamed(shop: PageShop) -> None:
    shop.orders.columns = {{"status": "state"}.get(name, name): type_ for name, type_ in shop.orders.columns.items()}
    shop.rows = {id_: {**row, "state": row["status"]} for id_, row in shop.rows.items()}
    for row in shop.rows.values():
        del row["status"]
    shop.change(1, state="shipped")


def _without_note(shop: PageShop) -> None:
    del shop.orders.columns["note"]
    for row in shop.rows.values():
        del row["note"]
    shop.change(1, state="delivered")


def _three_changes(shop: PageShop) -> None:
    shop.paid()
    shop.delete(2)
    shop.place(3)


def _history(shop: PageShop) -> None:
    """Make a shop of which several batches are known; the pages' times are those of the first one."""
    shop.open()
    shop.items.snapshot([{"id": 1, "order_id": 1, "quantity": 2, "price": 20}])
    shop.write()
    shop.define("orders", "customers", "items")
    shop.ingest()
    opened_ms = shop.now()
    shop.paid()
    shop.place(3)
    shop.ingest()
    ended_ms = shop.now()
    shop.ingest()
    numbers, texts = ("1717156800000", "1795624026593"), ("2024-05-31 12:00:00", "2026-11-21 12:00")
    shop.standins.of |= dict.fromkeys(numbers, str(opened_ms)) | dict.fromkeys(texts, iso(opened_ms))
    shop.standins.of |= {"2024-06-01": iso(ended_ms), "1795624062984": str(ended_ms)}


def _one_order(shop: PageShop) -> None:
    """Make the smallest shop: the page shows all that there is."""
    shop.orders = Topic("shop.public.orders", {"id": NUMBER, "status": TEXT})
    placed, paid = {"id": 1, "status": "placed"}, {"id": 1, "status": "paid"}
    shop.orders.snapshot([placed])
    shop.write()
    shop.define("orders")
    shop.ingest()
    shop.standins.of["1795297206624"] = str(shop.now())
    shop.orders.update(placed, paid)
    shop.write()
    shop.ingest()


def _events(shop: PageShop) -> None:
    shop.sql(
        "CREATE TABLE shop.events (id BIGINT, body VARIANT) USING iceberg TBLPROPERTIES ('format-version' = '3');"
        """INSERT INTO shop.events SELECT 1, parse_json('{"total": 12.5}')"""
    )


def _history_and_script(shop: PageShop) -> None:
    _history(shop)
    script = "CREATE SOURCE IF NOT EXISTS shop FROM FILES 'messages' FORMAT JSON"
    (shop.terminal.directory / "shop.sql").write_text(script)


def _web_site(shop: PageShop) -> None:
    shop.open()
    shop.define()
    shop.sql("CREATE SOURCE web FROM FILES 'messages' FORMAT JSON")


def _recording(shop: PageShop) -> None:
    """Leave what `lakehold demo --directory demo` leaves."""
    directory = shop.terminal.directory / "demo"
    unpack(directory / "recording")
    script = Template(files("lakehold.demo").joinpath("shop.recorded.sql").read_text())
    (directory / "shop.sql").write_text(script.substitute(recording=directory / "recording"))


def _recorded_in_part(shop: PageShop) -> None:
    _recording(shop)
    shop.sql(
        "CREATE SOURCE shop FROM FILES 'demo/recording' FORMAT JSON TRANSACTION METADATA TOPIC 'shop.transaction';"
        "CREATE TABLE shop.customers FROM SOURCE shop (TOPIC 'shop.public.customers') ENVELOPE DEBEZIUM;"
        "CREATE TABLE shop.orders FROM SOURCE shop (TOPIC 'shop.public.orders') ENVELOPE DEBEZIUM"
    )
    shop.ingest()


def _recorded(shop: PageShop) -> None:
    """Ingest the recording, which has whole transactions and columns of many types, in several batches."""
    shop.begin()
    shop.terminal.set_variable("LAKEHOLD_MAX_BATCH_RECORDS", "2000")
    _recording(shop)
    shop.sql((shop.terminal.directory / "demo" / "shop.sql").read_text())
    shop.ingest()
    with shop.terminal.connect("lake") as lake:
        since_ms, _ = common_window([*lake.timelines.of(["shop.orders", "shop.order_items"]).values()])
    shop.standins.of |= {"1795624026593": str(since_ms), "2026-11-21 12:00": iso(since_ms)}


def _connections(shop: PageShop) -> None:
    shop.sql(
        "CREATE CONNECTION kafka TO KAFKA (BROKER 'broker.example:9092');"
        "CREATE CONNECTION registry TO SCHEMA REGISTRY (URL 'http://registry.example:8081')"
    )


def _captured(shop: PageShop) -> None:
    _connections(shop)
    shop.sql(
        "CREATE CONNECTION pg TO POSTGRES (HOST 'db.example', USER 'lakehold', DATABASE 'shop');"
        "CREATE CONNECTION connect TO CONNECT (URL 'http://connect.example:8083');"
        "CREATE SOURCE app FROM POSTGRES CONNECTION pg VIA CONNECT CONNECTION connect INTO KAFKA CONNECTION kafka FORMAT JSON"
    )


def _names(shop: PageShop) -> None:
    _connections(shop)
    shop.sql("CREATE SUBSCRIPTION order_changes AS SUBSCRIBE shop.orders; CREATE ROLE bi")


def _orders_have_items(shop: PageShop) -> None:
    with shop.terminal.connect("lake") as lake:
        assert lake.sql("SELECT count(*) FROM shop.order_items").rows == [(537,)]


def _snapshots_are_of_batches(shop: PageShop) -> None:
    with shop.terminal.connect("lake") as lake:
        snapshots = lake.sql("SELECT summary['lakehold.timestamp'] FROM shop.orders.snapshots").rows
        batches = {batch.mz_timestamp for batch in lake.batches.history("shop")}
    assert len(snapshots) == 2
    assert {int(at) for (at,) in snapshots} <= batches


def _since(shop: PageShop) -> None:
    with shop.terminal.connect("lake") as lake:
        since_ms, _ = common_window([*lake.timelines.of(["shop.orders"]).values()])
    shop.standins.of["1795676948209"] = str(since_ms)


def _is_held(shop: PageShop) -> None:
    with shop.terminal.connect("lake") as lake:
        assert "hold_report" in lake.catalog.load_table("shop.orders").refs()


def _published(shop: PageShop) -> None:
    with shop.terminal.connect() as lake:
        rows = lake.sql("SELECT mz_state, count(*) FROM shop.order_changes GROUP BY mz_state").rows
        assert rows == [("insert", 198)]
        assert "hold_week" in lake.catalog.load_table("shop.orders").refs()


def _handlers(shop: PageShop) -> None:
    """Give a program what it calls: the page describes the calls alone."""
    handled = list[object]()
    stop = CtrlC(None)
    names = {"on_snapshot": handled.extend, "on_update": lambda at, rows: handled.append((at, *rows)), "stop": stop}
    shop.terminal.python |= {**names, "write": lambda *delivered: handled.append(delivered)}


def _object_store(shop: PageShop) -> None:
    """Have an empty bucket on a server and credentials for it; the catalog of the page is a file."""
    shop.open()
    server, directory = shop.s3_server(), shop.terminal.directory
    server.new_bucket("shop-lake")
    shop.standins.of |= {
        "https://s3.example.com": server.endpoint,
        "postgresql+psycopg2://lakehold:secret@db.example/lake": f"sqlite:///{directory}/catalog.db",
    }
    shop.terminal.set_variable("LAKEHOLD_CATALOG_PROPERTIES", json.dumps(CREDENTIALS))


def _examples(shop: PageShop) -> None:
    shop.terminal.set_variable("COLUMNS", "170")
    shop.terminal.copy(EXAMPLES)


def _setting(name: str, value: str) -> Callable[[PageShop], None]:
    return lambda shop: shop.terminal.set_variable(name, value)


STEPS: dict[str, Callable[[PageShop], None]] = {
    "the examples are copied": _examples,
    "LAKEHOLD_WAREHOUSE is lake2": _setting("LAKEHOLD_WAREHOUSE", "lake2"),
    "Kafka and a registry are known": _connections,
    "a database was captured that is gone": _captured,
    "a program handles changes": _handlers,
    "a shop and a web site send messages": _web_site,
    "a shop has a history": _history,
    "a shop has a history, and a script": _history_and_script,
    "a shop has one order, which is then paid": _one_order,
    "a shop has orders and customers of the recording": _recorded_in_part,
    "each snapshot of the orders is of a batch": _snapshots_are_of_batches,
    "report is on the orders": _is_held,
    "the orders are readable from 1795676948209 on": _since,
    "the orders have items": _orders_have_items,
    "each order is published, and the week is held": _published,
    "an object store has an empty bucket, and a shop sends messages": _object_store,
    "events have a body of any shape": _events,
    "kafka, order_changes and bi exist": _names,
    "the demo has left its recording": _recording,
    "the lake is new": PageShop.begin,
    "the program has the role ops": _setting("LAKEHOLD_ROLE", "ops"),
    "the recording is ingested": _recorded,
    "the terminal is wide": _setting("COLUMNS", "170"),
    "the shop goes on": lambda _: None,
    "the shop is held on monday": lambda shop: shop.sql("CREATE HOLD monday ON shop.orders"),
    "a shop has a table of orders": _orders_alone,
    "a shop has orders and customers": _orders_and_customers,
    "october ends, and november begins": _months,
    "october is not retained any more": _october_expires,
    "order 1 is paid": PageShop.paid,
    "order 1 is paid, and order 3 is placed": _paid_and_placed,
    "order 1 is paid, order 2 is deleted, and order 3 is placed": _three_changes,
    "order 2 is cancelled": _cancelled,
    "the topics of a shop are recorded": PageShop.open,
    "upstream adds a note, and order 1 gets one": _note,
    "upstream drops the note, and order 1 is delivered": _without_note,
    "upstream makes total a bigint, and order 3 needs it": _wide_total,
    "upstream renames status to state, and order 1 is shipped": _renamed,
    "upstream turns a number into a text": _total_is_text,
}
