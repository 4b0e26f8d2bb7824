"""For whom what is decoded is kept: for the tables of sources that read on with the same records."""

from __future__ import annotations

from lakehold.definitions import Envelope, Table
from lakehold.ingest.shelf import Shelf, Stretch
from lakehold.model.offsets import OffsetRange, TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
STRETCH = Stretch("orders", frozenset({OffsetRange(P0, 10, 20), OffsetRange(P1, 5, 6)}), in_driver=False)


def table(source: str, topic: str = "orders") -> Table:
    return Table(source, topic, source, topic, Envelope.DEBEZIUM)


SHELF_OF = {"shop": [table("shop")], "billing": [table("billing"), table("billing", "items")]}


def waiting(*positions: dict[TopicPartition, int], own: dict[TopicPartition, int] | None = None) -> list[str]:
    """Tables that wait for what `shop` reads, from `own` on, while readers of `billing` stand at `positions`."""
    shelf = Shelf(SHELF_OF)
    shelf.stands("shop", [{P0: 10, P1: 5} if own is None else own])
    shelf.stands("billing", positions)
    return [waits.full_name for waits in shelf.waiting("shop", STRETCH)]


def test_a_source_at_the_same_offsets_waits_with_its_tables_over_the_topic() -> None:
    assert waiting({P0: 10, P1: 5, TopicPartition("items", 0): 99}) == ["billing.orders"]
    assert waiting({P0: 0}, {P0: 10, P1: 5}) == ["billing.orders"]


def test_a_source_elsewhere_does_not_wait() -> None:
    assert waiting({P0: 20, P1: 6}) == []
    assert waiting({P0: 10, P1: 6}) == []
    assert waiting() == []


def test_a_source_that_has_read_nothing_waits_for_the_beginning() -> None:
    """Which need not be the offset 0: what was before may be deleted."""
    assert waiting({}) == []
    assert waiting({P0: 10}) == []
    assert waiting({}, own={}) == ["billing.orders"]
    assert waiting({P0: 10}, own={P0: 10}) == ["billing.orders"]


def test_a_source_of_which_nothing_is_told_does_not_wait() -> None:
    assert Shelf(SHELF_OF).waiting("shop", STRETCH) == []
