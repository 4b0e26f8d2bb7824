"""The shop's workload: an endless series of transactions, the same for the same seed. It only makes statements, and runs none.

The series keeps its own picture of the shop, so that every statement finds its rows, if all earlier statements ran.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import LiteralString

Value = str | int | bool | Decimal | date | datetime | uuid.UUID | list[str] | None

Clock = Callable[[], datetime]
"""A function that returns the time of each transaction, with its zone."""

_NAMES = (
    "Ada",
    "Barbara",
    "Charles",
    "Donald",
    "Edgar",
    "Frances",
    "Grace",
    "Hedy",
    "Jean",
    "Katherine",
    "Leslie",
    "Mary",
)
_SURNAMES = (
    "Lovelace",
    "Liskov",
    "Bachman",
    "Knuth",
    "Codd",
    "Allen",
    "Hopper",
    "Lamarr",
    "Bartik",
    "Johnson",
    "Lamport",
    "O'Dea",
)
_TAGS = ("vip", "wholesale", "slow, but pays", 'says "hi"', "naïve", "日本", "trade")
_SKUS = tuple(f"{kind}-{size}" for kind in ("TEA", "MUG", "POT", "TIN", "SPOON") for size in ("S", "M", "L"))
_WORDS = (
    "dear",
    "shop",
    "please",
    "deliver",
    "behind",
    "the",
    "green",
    "gate",
    "and",
    "ring",
    "twice",
    "thanks",
    "ünlü",
    "🌱",
)
_STATUSES = ("placed", "paid", "shipped", "delivered")

_LETTER_WORDS = 1_500
"""Words of a letter, which makes it larger than PostgreSQL keeps in the row."""

_FEW = 5
"""The least number of customers, and of orders, that the shop has."""


@dataclass(frozen=True)
class Statement:
    """A statement, with its values apart from its text."""

    sql: LiteralString
    values: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Transaction:
    """A group of statements that are committed together; `kind` says what happened in the shop."""

    kind: str
    statements: tuple[Statement, ...]


def ticking_clock(start: datetime, random: Random) -> Clock:
    """Return a clock that advances by up to a minute, to the microsecond, each time it is read."""
    now = start

    def read() -> datetime:
        nonlocal now
        now += timedelta(microseconds=random.randrange(1, 60_000_000))
        return now

    return read


RECORDED_FROM = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
"""The time when the recorded shop opened."""


@dataclass
class _Order:
    status: str
    amounts: dict[int, Decimal] = field(default_factory=dict)

    @property
    def total(self) -> Decimal:
        return sum(self.amounts.values(), Decimal("0.00"))


class Workload:
    """The shop's transactions, one after the other.

    Args:
        seed: The same seed and clock give the same transactions.
        clock: By default one that ticks by the seed, from `RECORDED_FROM` on.
        alter_after: The number of transactions after which the tables are altered, once.
    """

    def __init__(self, seed: int, *, clock: Clock | None = None, alter_after: int = 200) -> None:
        self._random = Random(seed)
        self._clock = clock or ticking_clock(RECORDED_FROM, Random(seed + 1))
        self._alter_after = alter_after
        self._altered = False
        self._customers: list[int] = []
        self._orders: dict[int, _Order] = {}
        self._next_id = 1

    def opening(self, customers: int) -> Transaction:
        """Return the first transaction, which inserts `customers` and an order for each of them."""
        statements = [s for _ in range(customers) for s in self._register()]
        statements += [s for _ in range(customers) for s in self._order()]
        return Transaction("opening", tuple(statements))

    def transactions(self) -> Iterator[Transaction]:
        """Yield transactions without end; `opening` must run first."""
        happenings: tuple[tuple[str, int, Callable[[], list[Statement]]], ...] = (
            ("order", 26, self._order),
            ("change of status", 22, self._change_status),
            ("change of quantity", 12, self._change_quantity),
            ("one more item", 8, self._add_item),
            ("one item less", 6, self._remove_item),
            ("order deleted", 6, self._delete_order),
            ("new customer", 8, self._register),
            ("customer edited", 8, self._edit_customer),
            ("customer with a new number", 3, self._renumber_customer),
            ("customers merged", 3, self._merge_customers),
            ("letter", 2, self._write_letter),
            ("change of nothing", 3, self._change_nothing),
        )
        weights = [weight for _, weight, _ in happenings]
        number = 0
        while True:
            if number == self._alter_after:
                yield self._alter()
            kind, _, happen = self._random.choices(happenings, weights)[0]
            yield Transaction(kind, tuple(happen()))
            number += 1

    def _alter(self) -> Transaction:
        self._altered = True
        return Transaction(
            "tables altered",
            (
                Statement("ALTER TABLE customers ADD COLUMN phone text"),
                Statement("ALTER TABLE customers ALTER COLUMN balance TYPE numeric(12, 2)"),
                Statement("ALTER TABLE order_items ALTER COLUMN quantity TYPE bigint"),
            ),
        )

    def _register(self) -> list[Statement]:
        random, identity = self._random, self._new_id()
        self._customers.append(identity)
        first, last = random.choice(_NAMES), random.choice(_SURNAMES)
        account = uuid.UUID(int=random.getrandbits(128), version=4)
        email = f"{first}.{identity}@example.com".lower() if self._chance(90) else None
        born = date(1940, 1, 1) + timedelta(days=random.randrange(25_000)) if self._chance(80) else None
        return [
            Statement(
                "INSERT INTO customers"
                " (id, account, name, email, born, newsletter, tags, preferences, balance, registered_at)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    *(identity, account, f"{first} {last}", email, born, self._chance(40)),
                    *(self._tags(), self._preferences(), self._amount(0, 500), self._clock()),
                ),
            )
        ]

    def _edit_customer(self) -> list[Statement]:
        customer, random = self._any_customer(), self._random
        values = (self._tags(), self._preferences(), self._chance(50))
        if not self._altered:
            return [
                Statement(
                    "UPDATE customers SET tags = %s, preferences = %s, newsletter = %s, balance = %s WHERE id = %s",
                    (*values, self._amount(-200, 2_000), customer),
                )
            ]
        phone = f"+44 {random.randrange(10**9, 10**10)}" if self._chance(80) else None
        return [
            Statement(
                "UPDATE customers SET tags = %s, preferences = %s, newsletter = %s, balance = %s, phone = %s"
                " WHERE id = %s",
                # More digits than the column had room for before it was altered.
                (*values, self._amount(-200, 2_000_000), phone, customer),
            )
        ]

    def _renumber_customer(self) -> list[Statement]:
        old, new = self._any_customer(), self._new_id()
        self._customers[self._customers.index(old)] = new
        # The orders follow, by the foreign key.
        return [Statement("UPDATE customers SET id = %s WHERE id = %s", (new, old))]

    def _merge_customers(self) -> list[Statement]:
        if len(self._customers) <= _FEW:
            return self._register()
        gone, kept = self._random.sample(self._customers, 2)
        self._customers.remove(gone)
        return [
            Statement(
                "UPDATE orders SET customer_id = %s, changed_at = %s WHERE customer_id = %s",
                (kept, self._clock(), gone),
            ),
            Statement(
                "UPDATE customers SET balance = balance + (SELECT balance FROM customers WHERE id = %s) WHERE id = %s",
                (gone, kept),
            ),
            Statement("DELETE FROM customers WHERE id = %s", (gone,)),
        ]

    def _order(self) -> list[Statement]:
        random, identity, customer, now = self._random, self._new_id(), self._any_customer(), self._clock()
        order = _Order("placed")
        items = [self._item(identity, order, line) for line in range(1, random.randrange(2, 6))]
        self._orders[identity] = order
        deliver_on = (now + timedelta(days=random.randrange(1, 30))).date() if self._chance(70) else None
        note = json.dumps({"gate": random.randrange(9), "call": None}) if self._chance(30) else None
        placed_at = now.replace(tzinfo=None)
        return [
            Statement(
                "INSERT INTO orders (id, customer_id, status, total, note, deliver_on, placed_at, changed_at)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
                (identity, customer, order.status, order.total, note, deliver_on, placed_at, now),
            ),
            *items,
        ]

    def _change_status(self) -> list[Statement]:
        identity = self._any_order()
        order = self._orders[identity]
        at = _STATUSES.index(order.status) if order.status in _STATUSES else 0
        order.status = "cancelled" if self._chance(10) else _STATUSES[min(at + 1, len(_STATUSES) - 1)]
        return [
            Statement(
                "UPDATE orders SET status = %s, changed_at = %s WHERE id = %s", (order.status, self._clock(), identity)
            )
        ]

    def _change_quantity(self) -> list[Statement]:
        identity = self._any_order()
        order = self._orders[identity]
        if not order.amounts:
            return self._add_item_to(identity)
        line = self._random.choice(list(order.amounts))
        quantity, price = self._quantity_and_price()
        order.amounts[line] = quantity * price
        return [
            Statement(
                "UPDATE order_items SET quantity = %s, price = %s WHERE order_id = %s AND line = %s",
                (quantity, price, identity, line),
            ),
            self._new_total(identity),
        ]

    def _add_item(self) -> list[Statement]:
        return self._add_item_to(self._any_order())

    def _add_item_to(self, identity: int) -> list[Statement]:
        order = self._orders[identity]
        return [self._item(identity, order, max(order.amounts, default=0) + 1), self._new_total(identity)]

    def _remove_item(self) -> list[Statement]:
        identity = self._any_order()
        order = self._orders[identity]
        if not order.amounts:
            return self._add_item_to(identity)
        line = self._random.choice(list(order.amounts))
        del order.amounts[line]
        return [
            Statement("DELETE FROM order_items WHERE order_id = %s AND line = %s", (identity, line)),
            self._new_total(identity),
        ]

    def _delete_order(self) -> list[Statement]:
        if len(self._orders) <= _FEW:
            return self._order()
        identity = self._any_order()
        del self._orders[identity]
        # Its items go with it, by the foreign key.
        return [Statement("DELETE FROM orders WHERE id = %s", (identity,))]

    def _write_letter(self) -> list[Statement]:
        letter = " ".join(self._random.choices(_WORDS, k=_LETTER_WORDS))
        return [
            Statement(
                "UPDATE orders SET letter = %s, changed_at = %s WHERE id = %s",
                (letter, self._clock(), self._any_order()),
            )
        ]

    def _change_nothing(self) -> list[Statement]:
        return [Statement("UPDATE orders SET status = status WHERE id = %s", (self._any_order(),))]

    def _item(self, order_id: int, order: _Order, line: int) -> Statement:
        quantity, price = self._quantity_and_price()
        order.amounts[line] = quantity * price
        return Statement(
            "INSERT INTO order_items (order_id, line, sku, quantity, price, gift) VALUES (%s, %s, %s, %s, %s, %s)",
            (order_id, line, self._random.choice(_SKUS), quantity, price, self._chance(10)),
        )

    def _new_total(self, identity: int) -> Statement:
        return Statement(
            "UPDATE orders SET total = %s, changed_at = %s WHERE id = %s",
            (self._orders[identity].total, self._clock(), identity),
        )

    def _quantity_and_price(self) -> tuple[int, Decimal]:
        return self._random.randrange(1, 9), self._amount(1, 90)

    def _amount(self, low: int, high: int) -> Decimal:
        return Decimal(self._random.randrange(low * 100, high * 100)).scaleb(-2)

    def _tags(self) -> list[str]:
        return self._random.sample(_TAGS, self._random.randrange(4))

    def _preferences(self) -> str | None:
        if self._chance(30):
            return None
        return json.dumps({"colour": self._random.choice(("red", "blue", None)), "pages": self._random.randrange(90)})

    def _any_customer(self) -> int:
        return self._random.choice(self._customers)

    def _any_order(self) -> int:
        return self._random.choice(list(self._orders))

    def _chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id
