"""Descriptions of effects, for EXPLAIN of one statement on definitions or of a whole transaction (EXPLAIN BEGIN). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakehold.definitions import Definition, MaterializedView, Source, Subscription, Table
from lakehold.model.lake_definitions import Definitions
from lakehold.model.shared_sources import sharing
from lakehold.sql.plan.statement_effects import (
    ChangeDefinition,
    DropDefinitions,
    DropHolds,
    DropIcebergTable,
    Effect,
    EndSubscription,
    Notice,
    Plan,
    PutDefinition,
    PutHold,
    Reconcile,
    RunOnSpark,
)


def describe(effect: Effect) -> Iterator[str]:
    """Describe one effect in lines of text; none for an effect that only follows from others."""
    match effect:
        case PutDefinition(definition):
            yield f"declare {_name(definition)}"
        case ChangeDefinition(definition):
            yield f"change {_name(definition)}"
        case DropDefinitions(definitions):
            yield from (f"forget {_name(definition)}" for definition in definitions)
        case DropIcebergTable(full_name, _):
            yield f"drop the data of table {full_name}"
        case PutHold(hold):
            yield f"create hold {hold.effective_namespace}.{hold.wanted_name} on {', '.join(hold.tables)}"
        case DropHolds(holds):
            yield from (f"drop hold {hold.full_name}" for hold in holds)
        case EndSubscription(entry, with_output) if with_output:
            yield f"drop the data of table {entry.definition.into}"
        case RunOnSpark(sql, start, end_exclusive):
            yield f"run on Spark: {sql[start:end_exclusive]}"
        case Notice(text):
            yield text
        case _:
            pass


def combine(plans: Sequence[Plan]) -> Plan:
    """Combine the plans of a transaction's statements: each source is reconciled once, after all definitions."""
    effects = [effect for plan in plans for effect in plan.effects]
    reconciling = dict.fromkeys(effect for effect in effects if isinstance(effect, Reconcile))
    return Plan((*(effect for effect in effects if not isinstance(effect, Reconcile)), *reconciling))


def shared_by(plan: Plan, after: Definitions) -> Iterator[str]:
    """Describe which topics of the tables that `plan` adds are also read by other tables or sources.

    Args:
        plan: The plan.
        after: The definitions after the plan.
    """
    put = [e.definition for e in plan.effects if isinstance(e, PutDefinition) and isinstance(e.definition, Table)]
    topics = list(dict.fromkeys((table.source, table.topic) for table in put))
    for number, (source, topic) in enumerate(topics):
        own = _tables_over(topic, source, after)
        if len(own) > 1:
            names = ", ".join(table.full_name for table in own)
            yield f"batches of source {source} read and decode topic {topic} once for {names}"
        for other in sharing(after.source(source), [topic], after):
            theirs = ", ".join(table.full_name for table in _tables_over(topic, other, after))
            if theirs and (other, topic) not in topics[:number]:
                yield (
                    f"lakehold ingest {other} {source}, and the DAG, read and decode topic {topic} once for both: "
                    f"source {other} has {theirs}"
                )


def _tables_over(topic: str, source: str, definitions: Definitions) -> list[Table]:
    tables = (entry.definition for entry in definitions.tables_of(source))
    return sorted((table for table in tables if table.topic == topic), key=lambda table: table.full_name)


def _name(definition: Definition) -> str:
    match definition:
        case Table(full_name=name):
            return f"table {name}"
        case Source(name=name):
            return f"source {name}"
        case Subscription(name=name):
            return f"subscription {name}"
        case MaterializedView(full_name=name):
            return f"materialized view {name}"
        case other:
            return f"connection {other.name}"
