"""Finds the topic that holds the events of a data collection, as Debezium calls a table.

The END of a transaction counts its events by names of tables (`public.orders`), not of topics (`shop.public.orders`).
"""

from __future__ import annotations

import re
from functools import lru_cache

_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9._-]")


@lru_cache(maxsize=1_024)
def topic_of(collection: str, topics: frozenset[str], transaction_topic: str) -> str | None:
    """Find the topic that Debezium names after a data collection.

    The topic's name is a prefix and the collection's name, with `_` for characters that topic names cannot have. If several
    of `topics` match, the one with the prefix of the transaction topic is taken; None if none matches.
    """
    name = _NOT_IN_TOPICS.sub("_", collection)
    named = sorted(topic for topic in topics if f".{topic}".endswith(f".{name}"))
    return max(named, key=lambda topic: transaction_topic.startswith(topic.removesuffix(name)), default=None)
