"""The shop's workload: the same for the same seed, and consistent after every transaction."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from itertools import islice

import pytest

from lakehold.demo.workload import Statement, Transaction, Value, Workload

ALTER_AFTER = 300


def series(seed: int, count: int = 1_000) -> list[Transaction]:
    workload = Workload(seed, alter_after=ALTER_AFTER)
    return [workload.opening(20), *islice(workload.transactions(), count)]


def statements(transactions: Iterable[Transaction]) -> list[Statement]:
    return [statement for transaction in transactions for statement in transaction.statements]


def test_the_same_seed_makes_the_same_transactions() -> None:
    assert series(7) == series(7)
    assert series(7) != series(8)


@pytest.mark.parametrize("seed", range(5))
def test_an_order_is_worth_its_items_after_every_transaction(seed: int) -> None:
    totals: dict[Value, Value] = {}
    amounts: dict[tuple[Value, Value], Decimal] = {}
    for transaction in series(seed):
        for statement in transaction.statements:
            match statement.sql.split()[:3], statement.values:
                case ["INSERT", "INTO", "orders"], (identity, _, _, total, *_):
                    totals[identity] = total
                case ["UPDATE", "orders", "SET"], (total, _, identity) if "SET total" in statement.sql:
                    totals[identity] = total
                case ["DELETE", "FROM", "orders"], (identity,):
                    del totals[identity]
                    amounts = {key: amount for key, amount in amounts.items() if key[0] != identity}
                case ["INSERT", "INTO", "order_items"], (identity, line, _, int(quantity), Decimal() as price, _):
                    amounts[identity, line] = quantity * price
                case ["UPDATE", "order_items", "SET"], (int(quantity), Decimal() as price, identity, line):
                    assert (identity, line) in amounts
                    amounts[identity, line] = quantity * price
                case ["DELETE", "FROM", "order_items"], (identity, line):
                    del amounts[identity, line]
                case _:
                    pass
        sums = dict.fromkeys(totals, Decimal(0))
        for (identity, _), amount in amounts.items():
            sums[identity] += amount
        assert sums == totals


def test_every_kind_of_change_of_a_shop_happens() -> None:
    kinds = {transaction.kind for transaction in series(3)}
    assert len(kinds) == 14
    assert {"customer with a new number", "customers merged", "letter", "change of nothing", "tables altered"} <= kinds


def test_the_tables_are_altered_once_and_new_columns_are_used_after_that() -> None:
    transactions = series(3)
    altered = [at for at, transaction in enumerate(transactions) if transaction.kind == "tables altered"]
    assert altered == [ALTER_AFTER + 1]
    before, after = statements(transactions[: altered[0]]), statements(transactions[altered[0] + 1 :])
    assert not any("phone" in statement.sql for statement in before)
    assert any("phone" in statement.sql for statement in after)


def test_a_small_shop_never_runs_out_of_customers_or_orders() -> None:
    workload = Workload(1)
    workload.opening(1)
    assert len(list(islice(workload.transactions(), 5_000))) == 5_000
