"""The shop of the how-to pages, with the upstream changes that happen while a reader follows a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakehold.lake import Lake
from lakehold.times import iso, now_ms
from tests.debezium_messages import Topic
from tests.runnable_pages import Standins

NUMBER, TEXT = {"type": "int64"}, {"type": "string"}


class HowToShop:
    """Orders and customers of a shop, recorded in the directory `messages`; the lake is in `lake`.

    Args:
        directory: Folder of the messages and the lake.
        connect: Opens the lake.
        standins: Receives texts that stand for times of this run.
    """

    def __init__(self, directory: Path, connect: Callable[..., Lake], standins: Standins) -> None:
        self.messages = directory / "messages"
        self._connect = connect
        self.standins = standins
        self.orders = Topic(
            "shop.public.orders", {"id": NUMBER, "customer_id": NUMBER, "status": TEXT, "total": {"type": "int32"}}
        )
        self.customers = Topic("shop.public.customers", {"id": NUMBER, "name": TEXT})
        self.rows: dict[int, dict[str, Any]] = {}

    def open(self) -> None:
        """Snapshot both tables, after which the connector streams."""
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
        self.orders.write(self.messages)
        self.customers.write(self.messages)

    def sql(self, text: str) -> None:
        """Run statements in the lake."""
        with self._connect("lake") as lake:
            lake.sql(text)

    def ingest(self) -> None:
        """Ingest the source."""
        with self._connect("lake") as lake:
            for report in lake.ingest("shop"):
                assert not report.stopped

    def define(self, *tables: str) -> None:
        """Create the source and its tables."""
        self.sql("CREATE SOURCE shop FROM FILES 'messages' FORMAT JSON")
        for name in tables:
            self.sql(f"CREATE TABLE shop.{name} FROM SOURCE shop (TOPIC 'shop.public.{name}') ENVELOPE DEBEZIUM")

    def paid(self) -> None:
        """Pay order 1."""
        self.change(1, status="paid")


def _orders_alone(shop: HowToShop) -> None:
    shop.open()
    shop.define("orders")
    shop.ingest()


def _orders_and_customers(shop: HowToShop) -> None:
    shop.open()
    shop.define("orders", "customers")
    shop.ingest()


def _total_is_text(shop: HowToShop) -> None:
    _orders_and_customers(shop)
    shop.orders.columns["total"] = TEXT
    shop.rows = {id_: {**row, "total": str(row["total"])} for id_, row in shop.rows.items()}
    shop.change(2, status="paid", total="15 EUR")
    shop.customers.create({"id": 3, "name": "Edsger"})
    shop.write()


def _paid_and_placed(shop: HowToShop) -> None:
    shop.paid()
    shop.ingest()
    shop.place(3)
    shop.ingest()


def _cancelled(shop: HowToShop) -> None:
    shop.change(2, status="cancelled")
    shop.ingest()


def _months(shop: HowToShop) -> None:
    _orders_and_customers(shop)
    shop.paid()
    shop.ingest()
    ended_ms = now_ms()
    while now_ms() <= ended_ms:
        pass
    shop.standins.of["2026-11-01"] = iso(ended_ms)
    shop.change(2, status="paid")
    shop.place(3)
    shop.ingest()


def _october_expires(shop: HowToShop) -> None:
    settings = "retain_history_ms = 1\nexpire_grace_ms = 1\n"
    (shop.messages.parent / "lakehold.toml").write_text(settings)


def _note(shop: HowToShop) -> None:
    shop.orders.columns["note"] = TEXT
    shop.rows = {id_: {**row, "note": None} for id_, row in shop.rows.items()}
    shop.change(1, note="leave at the door")


def _wide_total(shop: HowToShop) -> None:
    shop.orders.columns["total"] = NUMBER
    shop.place(3, total=3_000_000_000, note=None)


def _renamed(shop: HowToShop) -> None:
    shop.orders.columns = {{"status": "state"}.get(name, name): type_ for name, type_ in shop.orders.columns.items()}
    shop.rows = {id_: {**row, "state": row["status"]} for id_, row in shop.rows.items()}
    for row in shop.rows.values():
        del row["status"]
    shop.change(1, state="shipped")


def _without_note(shop: HowToShop) -> None:
    del shop.orders.columns["note"]
    for row in shop.rows.values():
        del row["note"]
    shop.change(1, state="delivered")


def _three_changes(shop: HowToShop) -> None:
    shop.paid()
    shop.delete(2)
    shop.place(3)


STEPS: dict[str, Callable[[HowToShop], None]] = {
    "a shop has a table of orders": _orders_alone,
    "a shop has orders and customers": _orders_and_customers,
    "october ends, and november begins": _months,
    "october is not retained any more": _october_expires,
    "order 1 is paid": HowToShop.paid,
    "order 1 is paid, and order 3 is placed": _paid_and_placed,
    "order 1 is paid, order 2 is deleted, and order 3 is placed": _three_changes,
    "order 2 is cancelled": _cancelled,
    "the topics of a shop are recorded": HowToShop.open,
    "upstream adds a note, and order 1 gets one": _note,
    "upstream drops the note, and order 1 is delivered": _without_note,
    "upstream makes total a bigint, and order 3 needs it": _wide_total,
    "upstream renames status to state, and order 1 is shipped": _renamed,
    "upstream turns a number into a text": _total_is_text,
}
