"""The size of a batch, and faults that prevent its reading."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakehold.ingest.read.bounding import fair_shares, record_budget
from lakehold.ingest.read.kafka import KafkaReader
from lakehold.ingest.read.offset_checks import faults
from lakehold.ingest.read.reader import FetchedOffsets, Limits, ReadPlan
from lakehold.kafka.connection_options import KafkaOptions
from lakehold.model.offsets import Offsets, TopicPartition, Watermarks

A, B, C = (TopicPartition(topic, 0) for topic in "abc")


def fetched_offsets(**partitions: tuple[int, int]) -> FetchedOffsets:
    watermarks = {TopicPartition(topic, 0): Watermarks(*bounds) for topic, bounds in partitions.items()}
    return FetchedOffsets(
        frozenset(partitions),
        watermarks,
        {topic: f"id-{topic}" for topic in partitions},
        where="Kafka at 127.0.0.1:9092",
    )


def test_small_backlogs_go_whole_and_large_ones_share_the_rest() -> None:
    assert fair_shares({A: 10, B: 1_000, C: 2_000}, 110) == {A: 10, B: 50, C: 50}


def test_budget_that_one_partition_leaves_goes_to_the_others() -> None:
    assert fair_shares({A: 10, B: 1_000}, 100) == {A: 10, B: 90}


def test_everything_is_read_when_it_fits() -> None:
    assert fair_shares({A: 10, B: 20, C: 0}, 100) == {A: 10, B: 20}


def test_no_partition_starves_behind_a_small_budget() -> None:
    assert fair_shares({A: 10, B: 20, C: 30}, 1) == {A: 1, B: 1, C: 1}


@given(
    st.dictionaries(st.builds(TopicPartition, st.text("abc"), st.integers(0, 5)), st.integers(0, 100)),
    st.integers(1, 500),
)
def test_shares_use_the_budget_and_no_more(backlogs: dict[TopicPartition, int], budget: int) -> None:
    shares = fair_shares(backlogs, budget)
    waiting = {tp: backlog for tp, backlog in backlogs.items() if backlog}
    assert shares.keys() == waiting.keys()
    assert all(1 <= shares[tp] <= waiting[tp] for tp in shares)
    total, wanted = sum(shares.values()), sum(waiting.values())
    assert min(wanted, budget) <= total <= max(budget, len(waiting)) or total == wanted


def grown(*ends: int, earliest: int = 0) -> FetchedOffsets:
    """Return topic `a`, whose partitions have these ends; all partitions but the first begin at `earliest`."""
    watermarks = {TopicPartition("a", p): Watermarks(earliest if p else 0, end) for p, end in enumerate(ends)}
    return replace(fetched_offsets(a=(0, 0), b=(0, 1_000)), partitions={B: Watermarks(0, 1_000), **watermarks})


def plan(fetched: FetchedOffsets, position: Offsets) -> ReadPlan:
    limits = Limits(max_records=100, max_bytes=10**9, record_bytes=1.0)
    return KafkaReader(KafkaOptions("127.0.0.1:1", {}, {})).plan(fetched, position, limits)


def test_a_topic_that_grew_is_read_to_its_end_until_a_new_partition_was() -> None:
    at = {A: 10, B: 0}
    empty = plan(grown(500, 0, 0), at)
    assert empty.position == {A: 500, B: 50}, "the new partitions are unknown before one of them has a record"
    first_read = plan(grown(900, 0, 3), empty.position)
    assert first_read.position == {A: 900, TopicPartition("a", 1): 0, TopicPartition("a", 2): 3, B: 99}
    after = plan(grown(2_000, 500, 500), first_read.position)
    assert after.records == 100, "and is bounded from then on"


def test_records_deleted_by_retention_are_no_fault_of_a_new_partition() -> None:
    fetched = grown(500, 9, earliest=4)
    assert faults(fetched, {A: 10})["a"].code == "offsets-lost"
    assert faults(fetched, {B: 10}) == {}, "the topic was not read before"


def test_bytes_bound_a_batch_as_records_do() -> None:
    assert record_budget(Limits(1_000, 50_000), record_bytes=500.0) == 100
    assert record_budget(Limits(50, 50_000), record_bytes=500.0) == 50
    assert record_budget(Limits(50, 10), record_bytes=500.0) == 1
    assert record_budget(Limits(50, 50_000), record_bytes=0.0) == 50


def test_a_position_within_the_existing_offsets_is_no_fault() -> None:
    fetched = fetched_offsets(a=(5, 10), b=(0, 0))
    assert faults(fetched, {A: 5, B: 0}, {"a": "id-a", "b": "id-b"}) == {}
    assert faults(fetched, {A: 10}) == {}
    assert faults(fetched, {}) == {}
    assert faults(fetched, {C: 3}) == {}  # a topic that was not requested


def test_records_deleted_by_retention_are_a_fault() -> None:
    error = faults(fetched_offsets(a=(8, 10)), {A: 5})["a"]
    assert error.code == "offsets-lost"
    assert str(error) == (
        'records of topic "a" partition 0 were deleted before they were read\n'
        "detail: The next offset to read is 5, but the partition now begins at 8: offsets 5 to 7 are gone. "
        "The topic's retention (retention.ms, retention.bytes) or a deletion removed them.\n"
        "hint: Raise the topic's retention above the longest pause between runs; then drop the tables of this topic "
        "and create them again. They get the rows that the topic has: if a connector that lakehold does not manage writes it, "
        "first have the connector snapshot them again."
    )


def test_a_topic_that_ends_before_the_position_is_a_fault() -> None:
    error = faults(fetched_offsets(a=(0, 3)), {A: 5})["a"]
    assert error.code == "topic-recreated"
    assert str(error) == (
        'topic "a" was deleted and created again since it was last read\n'
        "detail: The offsets of partition 0 below 5 were read before, but it now ends at 3.\n"
        "hint: If the new topic is meant to be read, drop the tables of this topic and create them again. They get the rows "
        "that the topic has: if a connector that lakehold does not manage writes it, first have the "
        "connector snapshot them again."
    )


def test_a_topic_with_another_identity_is_a_fault() -> None:
    error = faults(fetched_offsets(a=(0, 9)), {A: 5}, {"a": "id-before"})["a"]
    assert error.code == "topic-recreated"
    assert error.detail == "Its identity was id-before when it was first read and is id-a now."


def test_a_topic_that_lost_a_partition_is_a_fault() -> None:
    error = faults(fetched_offsets(a=(0, 9)), {A: 5, TopicPartition("a", 1): 5})["a"]
    assert error.code == "topic-recreated"
    assert error.detail == "It has no partition 1 any more, which was read before."


def test_each_topic_has_its_own_fault_and_the_others_go_on() -> None:
    fetched = FetchedOffsets(
        frozenset("abc"),
        {A: Watermarks(8, 9), B: Watermarks(0, 9)},
        {"a": "id-a", "b": "id-b"},
        missing=("c",),
        other_topics=("a", "b"),
        where="Kafka at 127.0.0.1:9092",
    )
    found = faults(fetched, {A: 5, B: 5})
    assert {topic: error.code for topic, error in found.items()} == {"a": "offsets-lost", "c": "topic-missing"}
    rest = fetched.without(found)
    assert rest.topics == {"b"}
    assert faults(rest, {A: 5, B: 5}) == {}


def test_a_missing_topic_is_reported_with_similar_names_if_any() -> None:
    fetched = FetchedOffsets(
        frozenset({"shop.order", "x"}),
        {},
        missing=("shop.order", "x"),
        other_topics=("shop.orders", "shop.items"),
        where="Kafka",
    )
    found = faults(fetched, {})
    assert str(found["shop.order"]) == (
        'topic "shop.order" does not exist\ndetail: Kafka has 2 other topics.\nhint: Did you mean "shop.orders"?'
    )
    assert found["x"].hint == "Create the topic or correct its name in the source."
