"""Effects in words, for EXPLAIN of statements on definitions."""

from __future__ import annotations

from collections.abc import Iterator

from lakehold.definitions import Definition, Source, Subscription, Table
from lakehold.sql.effects import (
    DropDefinitions,
    DropHolds,
    DropIcebergTable,
    Effect,
    EndSubscription,
    Notice,
    PutDefinition,
)


def told(effect: Effect) -> Iterator[str]:
    """The lines of one effect, nothing of those that only follow from others."""
    match effect:
        case PutDefinition(definition):
            yield f"declare {_name(definition)}"
        case DropDefinitions(definitions):
            yield from (f"forget {_name(definition)}" for definition in definitions)
        case DropIcebergTable(full_name):
            yield f"drop the data of table {full_name}"
        case DropHolds(holds):
            yield from (f"drop hold {hold.full_name}" for hold in holds)
        case EndSubscription(entry, with_output) if with_output:
            yield f"drop the data of table {entry.definition.into}"
        case Notice(text):
            yield text
        case _:
            pass


def _name(definition: Definition) -> str:
    match definition:
        case Table(full_name=name):
            return f"table {name}"
        case Source(name=name):
            return f"source {name}"
        case Subscription(name=name):
            return f"subscription {name}"
        case other:
            return f"connection {other.name}"
