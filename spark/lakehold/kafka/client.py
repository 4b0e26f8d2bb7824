"""Long-lived librdkafka clients: opening one costs more than reading a small batch.

They fetch offsets, read small batches (Spark reads large ones), and create, fill and delete the topics of captured databases. An
offset range is `[start, end)` of a partition; lakehold keeps its own positions, and uses no consumer groups.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, OffsetSpec, TopicDescription
from tenacity import Retrying, retry_if_exception, retry_if_result, stop_after_delay, wait_fixed

from lakehold.kafka.connection_options import KafkaOptions
from lakehold.kafka.faults import offsets_lost
from lakehold.kafka.refusals import is_refusal, too_large, unreachable, unusable
from lakehold.model.offsets import OffsetRange, TopicPartition, Watermarks

_log = logging.getLogger("lakehold.librdkafka")
# Our errors contain librdkafka's relevant messages. None goes to stderr, whatever the program's logging is.
_log.addHandler(logging.NullHandler())
_log.propagate = False

Answer = TypeVar("Answer")

_MESSAGES_PER_CALL = 10_000
_LEADER_POLL_S = 0.1
_LARGEST_RECORD = 100_000_000
"""The limit of the client in bytes, so that the limit of the topic decides, which its owner can raise."""
_UNLED = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._NOENT})
"""Errors for partitions without a known leader: librdkafka raises the second if it finds a leader for none of them."""
_CHANGING_LEADER = _UNLED | {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    # A leader that has just been elected, and a client that knows an earlier one.
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
}
_ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION, KafkaError.UNKNOWN_TOPIC_ID})
_REFUSED_AFTER_S = 3.0
"""How long a request that a broker refuses waits for another broker."""
_REFUSAL_POLL_S = 0.2


class KafkaClient:
    """A client for metadata and records of one cluster. Threads may share it; one at a time reads records.

    Args:
        options: The options that reach the brokers.
        timeout_s: How long a broker may stay silent before `UpstreamUnavailable` is raised.
    """

    def __init__(self, options: KafkaOptions, timeout_s: float) -> None:
        self._options = options
        self._timeout_s = timeout_s
        self._last_error: KafkaError | None = None
        self._refused_s = 0.0
        self._reading = threading.Lock()
        common: dict[str, Any] = {
            **options.librdkafka,
            "bootstrap.servers": options.brokers,
            "socket.connection.setup.timeout.ms": max(1_000, int(timeout_s * 1_000)),
            "error_cb": self._keep_error,
            "logger": _log,
        }
        consumer_options = {
            # assign() needs the name of a group only: nothing is committed, and no consumer joins the group.
            "group.id": "lakehold",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            # Offsets of control records are visible only through the end of the partition ...
            "enable.partition.eof": True,
            # ... which an empty answer reports: let brokers send it at once.
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 10,
            "check.crcs": True,
        }
        self._common = common
        try:
            self._admin = AdminClient(common)
            self._consumer = Consumer({**common, **consumer_options})
        except KafkaException as error:
            raise unusable(error.args[0]) from error

    def describe(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        """Fetch a description of each of `topics` that exists."""
        return self._described(topics)

    def describe_readable(self, topics: Collection[str]) -> tuple[dict[str, TopicDescription], frozenset[str]]:
        """Fetch a description of each of `topics` that exists and that the user may read, and the names of those it may not."""
        refused: set[str] = set()
        described = self._described(topics, refused)
        refused |= {name for name, topic in described.items() if not _may_read(topic)}
        return {name: topic for name, topic in described.items() if name not in refused}, frozenset(refused)

    def existing(self, topics: Collection[str]) -> frozenset[str]:
        """Return which of `topics` exist; those that the user may not read count as existing."""
        described, refused = self.describe_readable(topics)
        return refused.union(described)

    def check_login(self) -> None:
        """Check that a broker answers and takes the login, which need not have rights on any topic.

        Unlike a list of all topics, a description of one reports a refused login at once.
        """
        self.describe_readable({"lakehold"})

    def _described(self, topics: Collection[str], refused: set[str] | None = None) -> dict[str, TopicDescription]:
        """Describe the topics that exist. Those that the user may not see are added to `refused`; None: they are an error."""
        found: dict[str, TopicDescription] = {}
        if not topics:
            return found
        with self._explained():
            futures = self._admin.describe_topics(
                TopicCollection(sorted(topics)),
                include_authorized_operations=refused is not None,
                request_timeout=self._timeout_s,
            )
            for topic, future in futures.items():
                try:
                    found[topic] = self._result(future)
                except KafkaException as error:
                    code = error.args[0].code()
                    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED and refused is not None:
                        refused.add(topic)
                    elif code not in _ABSENT:
                        raise
        return found

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        """Fetch the partitions of each of `topics` that exists."""
        return [
            TopicPartition(name, each.id) for name, topic in self.describe(topics).items() for each in topic.partitions
        ]

    def topic_names(self) -> tuple[str, ...]:
        """Fetch the names of all but internal topics, sorted."""
        with self._explained():
            names = self._admin.list_topics(timeout=self._timeout_s).topics
        return tuple(sorted(name for name in names if not name.startswith("__")))

    def watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Fetch earliest and last stable offsets, with one request per broker for each; deleted topics are skipped."""
        with self._explained():
            return self._until_led()(self._of_existing, self._watermarks, partitions)

    def written_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Fetch end offsets (exclusive) including records of open transactions, with one request per broker.

        Deleted topics are skipped.
        """
        with self._explained():
            return self._until_led()(self._of_existing, self._written_ends, partitions)

    def first_sent_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """Fetch for each partition its first offset with that timestamp or a later one, with one request per broker.

        Partitions without such a record and deleted topics are skipped.
        """
        spec, isolation = OffsetSpec.for_timestamp(timestamp_ms), IsolationLevel.READ_COMMITTED
        ask = partial(self._offsets, spec=spec, isolation=isolation)
        with self._explained():
            found = self._until_led()(self._of_existing, ask, partitions)
        return {tp: offset for tp, offset in found.items() if offset >= 0}

    def _of_existing(
        self,
        ask: Callable[[Collection[TopicPartition]], dict[TopicPartition, Answer]],
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, Answer]:
        """Call `ask` for `partitions`, and again without those whose topics were deleted meanwhile."""
        if not partitions:
            return {}
        try:
            return ask(partitions)
        except KafkaException as error:
            if error.args[0].code() not in _UNLED:
                raise
            described = self.describe({tp.topic for tp in partitions})
            left = [tp for tp in partitions if tp.topic in described]
            if len(left) == len(partitions):
                # A topic is so new that not every broker knows it.
                raise
        return self._of_existing(ask, left)

    def _watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        earliest, latest = (
            self._offsets(partitions, spec, IsolationLevel.READ_COMMITTED)
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        return {tp: Watermarks(earliest[tp], latest[tp]) for tp in partitions}

    def _written_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def _offsets(
        self, partitions: Collection[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        wanted = {tp: KafkaPartition(tp.topic, tp.partition) for tp in partitions}
        found = self._admin.list_offsets(
            dict.fromkeys(wanted.values(), spec), isolation_level=isolation, request_timeout=self._timeout_s
        )
        return {tp: self._result(found[request]).offset for tp, request in wanted.items()}

    def _until_led(self) -> Retrying:
        """Return a retry policy for partitions that change their leader: a topic is new, or a broker leaves."""
        return Retrying(
            retry=retry_if_exception(lambda e: isinstance(e, KafkaException) and e.args[0].code() in _CHANGING_LEADER),
            stop=stop_after_delay(self._timeout_s),
            wait=wait_fixed(_LEADER_POLL_S),
            reraise=True,
        )

    def records(self, ranges: Collection[OffsetRange]) -> Iterator[Message]:
        """Read the committed records of `ranges`, each partition's in order.

        Raises:
            UpstreamError: The first offset of a range is gone (`offsets-lost`).
        """
        pending = {(r.topic_partition.topic, r.topic_partition.partition): r for r in ranges if not r.is_empty}
        with self._reading, self._explained():
            self._consumer.assign([KafkaPartition(*tp, r.start_inclusive) for tp, r in pending.items()])
            try:
                while pending:
                    for message in self._fetched(sum(r.width for r in pending.values())):
                        yield from self._accept(message, pending)
            finally:
                self._consumer.unassign()

    def create_topic(self, name: str, partitions: int, options: Mapping[str, str]) -> None:
        """Create a topic with the broker's replication factor, unless it exists; `options` are `retention.ms` and the like."""
        topic = NewTopic(name, partitions, config=dict(options))
        with self._explained():
            self._done(
                self._admin.create_topics([topic], request_timeout=self._timeout_s), KafkaError.TOPIC_ALREADY_EXISTS
            )

    def delete_topics(self, names: Collection[str]) -> None:
        """Delete the topics that exist, and wait until brokers no longer list them.

        Brokers list a deleted topic for a moment, without its records.
        """
        with self._explained():
            deleted = self._admin.delete_topics(sorted(names), request_timeout=self._timeout_s)
            self._done(deleted, KafkaError.UNKNOWN_TOPIC_OR_PART)
        gone = Retrying(
            retry=retry_if_result(bool),
            stop=stop_after_delay(self._timeout_s),
            wait=wait_fixed(_LEADER_POLL_S),
            retry_error_callback=lambda _: self._fail(None),
        )
        gone(self.describe, names)

    def send(self, topic: str, key: str, values: Collection[str]) -> None:
        """Write records to partition 0 of a topic, and wait until brokers have stored them.

        Raises:
            UpstreamError: The brokers take no record of this size (`kafka-record-size`).
        """
        with self._explained():
            failed: list[KafkaError] = []
            producer = Producer({**self._common, "enable.idempotence": True, "message.max.bytes": _LARGEST_RECORD})
            for value in values:
                producer.produce(
                    topic,
                    value.encode(),
                    key.encode(),
                    partition=0,
                    on_delivery=lambda error, _: failed.append(error) if error is not None else None,
                )
            if producer.flush(self._timeout_s):
                self._fail(None)
            if failed:
                self._fail(failed[0])

    def _done(self, futures: Mapping[str, Future[Any]], harmless: int) -> None:
        """Wait for changes of topics; the error code `harmless` means that a change was made before."""
        for future in futures.values():
            try:
                self._result(future)
            except KafkaException as error:
                if error.args[0].code() != harmless:
                    raise

    def close(self) -> None:
        """Close the connections to the brokers."""
        with self._reading:
            self._consumer.close()

    def _fetched(self, wanted: int) -> list[Message]:
        """Fetch messages: at least one, and not many more than `wanted`."""
        first = self._consumer.poll(self._timeout_s)
        if first is None:
            self._fail(None)
        # consume() waits until it has the requested number, unless its timeout is 0.
        return [first, *self._consumer.consume(min(wanted, _MESSAGES_PER_CALL), timeout=0)]

    def _accept(self, message: Message, pending: dict[tuple[str, int], OffsetRange]) -> Iterator[Message]:
        """Yield the message if it is in its range; a range that is complete leaves `pending`."""
        tp = (message.topic() or "", message.partition() or 0)
        wanted = pending.get(tp)
        error = message.error()
        if wanted is None:
            if is_refusal(error):
                self._fail(error)
            return
        offset = message.offset() or 0
        if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
            watermarks = self.watermarks([wanted.topic_partition]).get(wanted.topic_partition)
            if watermarks is None:
                self._fail(error)
            raise offsets_lost(wanted.topic_partition, wanted.start_inclusive, watermarks.earliest)
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._fail(error)
        if error is None and offset < wanted.end_exclusive:
            yield message
            offset += 1
        if offset >= wanted.end_exclusive:
            del pending[tp]
            # Not pause(): a partition stays paused when it is assigned again, and resumes after a second.
            self._consumer.incremental_unassign([KafkaPartition(*tp)])

    def _result(self, future: Future[Any]) -> Any:
        while self._admin.poll(0):  # passes pending errors, which are of earlier requests, to `_keep_error`
            pass
        began_s = time.monotonic()
        # librdkafka applies the timeout itself; the extra second lets it report that.
        ends_s = began_s + self._timeout_s + 1
        while not wait([future], _REFUSAL_POLL_S).done and (now_s := time.monotonic()) < ends_s:
            self._admin.poll(0)
            # librdkafka repeats a refused login until the timeout ends. A refusal of an earlier request says nothing.
            if self._refused_s > began_s and now_s - began_s >= _REFUSED_AFTER_S:
                raise KafkaException(self._last_error)
        return future.result(timeout=0)

    def _keep_error(self, error: KafkaError) -> None:
        if is_refusal(error):
            self._refused_s = time.monotonic()
        # "All brokers are down" follows from a cause that was reported before, and so does a lost connection from a refusal.
        if error.code() != KafkaError._ALL_BROKERS_DOWN and (is_refusal(error) or not is_refusal(self._last_error)):
            self._last_error = error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
            self._last_error = None
        except KafkaException as error:
            self._fail(error.args[0])
        except FutureTimeoutError:
            self._fail(None)

    def _fail(self, error: KafkaError | None) -> NoReturn:
        self._admin.poll(0)  # passes pending errors to `_keep_error`
        if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise too_large(self._options, error)
        silent = error is None or error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)
        cause = self._last_error if silent and self._last_error is not None else error
        raise unreachable(self._options, cause, self._timeout_s)


def _may_read(topic: TopicDescription) -> bool:
    """Return whether the user may read a topic; brokers that do not say so check it when it is read."""
    allowed = topic.authorized_operations
    return not allowed or AclOperation.READ in allowed


_clients: dict[tuple[object, ...], KafkaClient] = {}
_opening = threading.Lock()


def shared_client(options: KafkaOptions, timeout_s: float) -> KafkaClient:
    """Return the process's client for these options; it is opened once and closed when the process ends."""
    # librdkafka's threads do not survive a fork, so a child opens clients of its own.
    key = (os.getpid(), options.brokers, frozenset(options.librdkafka.items()), timeout_s)
    with _opening:
        if key not in _clients:
            _clients[key] = KafkaClient(options, timeout_s)
        return _clients[key]


@atexit.register
def _close_all() -> None:
    for (process, *_), client in _clients.items():
        if process == os.getpid():
            client.close()
