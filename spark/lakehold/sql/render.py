"""Rendering: definitions -> SQL, for SHOW CREATE and for comparisons of definitions. The inverse of `parse_create`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from lakehold.definitions import (
    Capture,
    Connection,
    Definition,
    Format,
    FormatType,
    Included,
    MaterializedView,
    OnKeyViolation,
    OnLapse,
    OptionValue,
    Refresh,
    Secret,
    Source,
    Subscription,
    Table,
)
from lakehold.holds.retention import RETAIN_HISTORY
from lakehold.object_names import full_name_text, object_text
from lakehold.spark_sql import quoted
from lakehold.sql.text.durations import duration_text
from lakehold.sql.text.options import spoken
from lakehold.table_layout import (
    FORMAT_VERSION,
    NEWEST_FORMAT,
    PARTITIONED_BY,
    SORTED_BY,
    PartitionField,
    SortField,
    fields_text,
    partition_fields,
    sort_fields,
)

_LISTS: Mapping[str, Callable[[str], tuple[PartitionField | SortField, ...]]] = {
    PARTITIONED_BY: partition_fields,
    SORTED_BY: sort_fields,
}
"""Reads the options that are lists in parentheses."""

_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def create_statement(definition: Definition) -> str:
    """Write the statement that creates `definition`, one clause on each line; secrets appear by name."""
    match definition:
        case Connection(name=name):
            head = f"CREATE CONNECTION {object_text(name)}"
        case Source(name=name):
            head = f"CREATE SOURCE {object_text(name)}"
        case Table(namespace=namespace, name=name):
            head = f"CREATE TABLE {object_text(namespace)}.{object_text(name)}"
        case Subscription(name=name):
            head = f"CREATE SUBSCRIPTION {object_text(name)}"
        case MaterializedView(full_name=full_name):
            head = f"CREATE MATERIALIZED VIEW {full_name_text(full_name)}"
    return "\n  ".join([head, *clauses(definition).values()])


def differences(existing: Definition, wanted: Definition) -> tuple[tuple[str, str], ...]:
    """Compare two definitions of one name, and return the clauses that differ, as pairs of the existing and the wanted one.

    A clause that one of the two lacks is "nothing".
    """
    old, new = clauses(existing), clauses(wanted)
    both = ((old.get(c, "nothing"), new.get(c, "nothing")) for c in dict.fromkeys((*old, *new)))
    return tuple((o, n) for o, n in both if o != n)


def clauses(definition: Definition) -> dict[str, str]:
    """Write the clauses after the name, in the order of the reference."""
    match definition:
        case Connection(type=connection_type, options=options):
            return {"to": f"TO {connection_type.value.replace('-', ' ').upper()} {options_text(options)}"}
        case Source():
            return _source_clauses(definition)
        case Table():
            return _table_clauses(definition)
        case Subscription():
            return _subscription_clauses(definition)
        case MaterializedView():
            return _view_clauses(definition)


def options_text(options: Mapping[str, OptionValue]) -> str:
    """Write options as `(NAME 'text', NAME 1, NAME SECRET 'NAME', NAME (list))`, sorted by name: their order has no meaning."""
    return f"({', '.join(f'{spoken(n)} {_value(n, options[n])}' for n in sorted(options))})"


def _source_clauses(source: Source) -> dict[str, str]:
    found = {"from": f"FROM FILES {_text(source.path or '')}"}
    if source.connection is not None and source.capture is None:
        topics = ", ".join(_text(t) for t in source.topics)
        found["from"] = f"FROM KAFKA CONNECTION {object_text(source.connection)} (TOPICS ({topics}))"
    if source.capture is not None:
        found |= _capture_clauses(source.connection or "", source.capture)
    found["format"] = _format(source.format)
    if source.transaction_topic is not None and source.capture is None:
        found["transaction"] = f"TRANSACTION METADATA TOPIC {_text(source.transaction_topic)}"
    if source.options:
        found["with"] = f"WITH {options_text(source.options)}"
    return found


def _capture_clauses(kafka: str, capture: Capture) -> dict[str, str]:
    """Write the clauses of a capture, with all names, including those that follow from the name of the source."""
    names: dict[str, OptionValue | None] = {
        "publication": capture.publication,
        "slot": capture.slot,
        "server_id": capture.server_id,
    }
    named = options_text({name: value for name, value in names.items() if value is not None})
    topics = options_text({"topic_prefix": capture.topic_prefix, "partitions": capture.partitions})
    return {
        "from": f"FROM {capture.database.value.upper()} CONNECTION {object_text(capture.connection)} {named}",
        "via": f"VIA CONNECT CONNECTION {object_text(capture.connect)}",
        "into": f"INTO KAFKA CONNECTION {object_text(kafka)} {topics}",
    }


def _table_clauses(table: Table) -> dict[str, str]:
    found: dict[str, str] = {}
    if table.columns:
        found["columns"] = f"({', '.join(f'{_column(c.name)} {c.type}' for c in table.columns)})"
    fed_by = f"TOPIC {_text(table.topic)}" if table.upstream is None else f"TABLE {_text(table.upstream)}"
    found["from"] = f"FROM SOURCE {object_text(table.source)} ({fed_by})"
    if table.key:
        found["key"] = f"KEY ({', '.join(_column(k) for k in table.key)})"
    if table.include:
        found["include"] = f"INCLUDE {', '.join(map(_included, table.include))}"
    found["envelope"] = f"ENVELOPE {table.envelope.sql}"
    if table.options:
        found["with"] = f"WITH {options_text(_with_durations(table.options))}"
    return found


def _subscription_clauses(subscription: Subscription) -> dict[str, str]:
    options: dict[str, OptionValue] = {}
    if subscription.on_lapse is not OnLapse.STOP:
        options["on_lapse"] = subscription.on_lapse.value
    if subscription.retain_output_ms is not None:
        options["retain_output"] = duration_text(subscription.retain_output_ms)
    if subscription.max_lag_ms is not None:
        options["max_lag"] = duration_text(subscription.max_lag_ms)
    return {
        "into": f"INTO {full_name_text(subscription.into)}",
        **({"with": f"WITH {options_text(options)}"} if options else {}),
        "as": f"AS {subscription.subscribe}",
    }


def _view_clauses(view: MaterializedView) -> dict[str, str]:
    durations = {RETAIN_HISTORY: view.retain_history_ms, "max_lag": view.max_lag_ms}
    chosen = (
        ("on_key_violation", view.on_key_violation, OnKeyViolation.STOP),
        ("on_lapse", view.on_lapse, OnLapse.STOP),
        ("refresh", view.refresh, Refresh.EACH_TIMESTAMP),
    )
    laid_out = (
        (FORMAT_VERSION, view.format_version, NEWEST_FORMAT),
        (PARTITIONED_BY, view.partitioned_by, ""),
        (SORTED_BY, view.sorted_by, ""),
    )
    options = {
        **{name: value.value for name, value, default in chosen if value is not default},
        **{name: value for name, value, default in laid_out if value != default},
        **{name: duration_text(value_ms) for name, value_ms in durations.items() if value_ms is not None},
    }
    return {
        **({"key": f"KEY ({', '.join(map(_column, view.key))})"} if view.key else {}),
        **({"with": f"WITH {options_text(options)}"} if options else {}),
        "as": f"AS {view.query}",
    }


def _with_durations(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Convert the durations among the options of a table to text."""
    retained_ms = options.get(RETAIN_HISTORY)
    return {**options, **({RETAIN_HISTORY: duration_text(retained_ms)} if isinstance(retained_ms, int) else {})}


def _format(message_format: Format) -> str:
    if message_format.type is FormatType.JSON or message_format.registry is None:
        return "FORMAT JSON"
    return f"FORMAT AVRO USING SCHEMA REGISTRY CONNECTION {object_text(message_format.registry)}"


def _value(name: str, value: OptionValue) -> str:
    if name in _LISTS:
        return f"({fields_text(_LISTS[name](str(value)), _column)})"
    match value:
        case Secret(name):
            return f"SECRET {_text(name)}"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case str():
            return _text(value)


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _included(each: Included) -> str:
    return each.what.value.upper() + (f" AS {_column(each.alias)}" if each.alias is not None else "")


def _column(name: str) -> str:
    return name if _COLUMN_NAME.fullmatch(name) else quoted(name)
