"""The connector's configuration as it fits what there is upstream: a signal table, the columns of the tables, itself. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lakehold.definitions import ConnectionType, object_text
from lakehold.upstream import value_options
from lakehold.upstream.captured_columns import Columns, left_out, sent_type
from lakehold.upstream.field_names import field_name, meeting
from lakehold.upstream.found import Found, FoundConnector
from lakehold.upstream.found_columns import FoundColumn
from lakehold.upstream.naming import identifier_text, table_text
from lakehold.upstream.sent_types import BYTES
from lakehold.upstream.signal_table import settled
from lakehold.upstream.value_options import INTERVALS, KEPT, UNSIGNED
from lakehold.upstream.wanted import Wanted

_APICURIO = "io.apicurio."


def fitted(wanted: Wanted, found: Found) -> Wanted:
    """Return what is wanted with the options that depend on what there is."""
    if not wanted.tables:
        return wanted
    wanted = settled(wanted, found.signals)
    config = {**wanted.config, **_of_columns(found.columns, wanted)}
    return replace(wanted, config=_keeping_types(config, found.connector))


def _keeping_types(config: Mapping[str, str], connector: FoundConnector | None) -> dict[str, str]:
    """Return the configuration with the options that decide types of columns as an existing connector has them."""
    if connector is None:
        return {**config}
    fixed = config.keys() & KEPT
    rest = {name: value for name, value in config.items() if name not in fixed}
    return rest | {name: connector.config[name] for name in fixed if name in connector.config}


def imprecise_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each column that a connector does not send exactly, because an earlier lakehold made it."""
    if found.connector is None:
        return
    for table in wanted.upstream_tables:
        for column in found.columns.get(table, ()):
            loss = _loss(column, wanted.capture.database, found.connector)
            if loss:
                yield (
                    f"column {table}.{column.name} ({column.text}): {loss}, as connector {wanted.connector} was made by an "
                    "earlier lakehold. Drop the source, and create it and its tables again, if there are such values"
                )


def _loss(column: FoundColumn, database: ConnectionType, connector: FoundConnector) -> str:
    """Return what values lose by an option that a connector was made with; '' if nothing."""
    if database is not ConnectionType.POSTGRES and column.type.name == "bigint" and column.type.is_unsigned:
        return "" if UNSIGNED in connector.config else "numbers from 9223372036854775808 on come as negative ones"
    if database is ConnectionType.POSTGRES and column.type.name == "interval" and not column.is_array:
        return "" if connector.config.get(INTERVALS) == "string" else "a month comes as 30.4375 days"
    return ""


def defaults_hints(tables: Iterable[str], wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each table with columns for whose nulls Apicurio's converter writes the default."""
    if wanted.config.get("value.converter", "").startswith(_APICURIO):
        for table in tables:
            names = [f"{table}.{c.name}" for c in found.columns.get(table, ()) if c.has_default and c.is_nullable]
            if names:
                yield (
                    f"column{'' if len(names) == 1 else 's'} {', '.join(names)}: a null comes as the column's default, which "
                    "Apicurio's Avro converter writes for it. DROP DEFAULT, or create the source with FORMAT JSON"
                )


def meeting_hints(tables: Iterable[str], wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each column to which the connector would give the name of another one."""
    for table in tables:
        for kept, column in _meeting(found.columns.get(table, ()), wanted):
            upstream = table_text(table, wanted.capture.database)
            renamed = (
                f"ALTER TABLE {upstream} RENAME COLUMN {identifier_text(column.name, wanted.capture.database)} TO …"
            )
            yield (
                f"column {table}.{column.name} ({column.text}) is left out: in Avro Debezium calls it "
                f"{field_name(column.name, wanted.config)}, as it does {kept.name}, and would fail for all tables. {renamed} "
                f"brings what is written to it from then on, and ALTER SOURCE {object_text(wanted.source)} RESNAPSHOT all"
            )


def _meeting(columns: Sequence[FoundColumn], wanted: Wanted) -> list[tuple[FoundColumn, FoundColumn]]:
    out = [column for column, _ in left_out(columns, wanted.capture.database)]
    pairs = meeting([column for column in columns if column not in out], wanted.config)
    # A key that lacked a column would not tell rows apart.
    return [(kept, column) for kept, column in pairs if not column.is_key]


def _of_columns(found: Columns, wanted: Wanted) -> dict[str, str]:
    """Return the options for columns of which no value comes as it is, unless they are in a key, and for binary domains."""
    database = wanted.capture.database
    out = [
        f"{table}.{column.name}"
        for table, columns in found.items()
        for column, _ in left_out(columns, database)
        if not column.is_key
    ]
    out += [f"{table}.{column.name}" for table, columns in found.items() for _, column in _meeting(columns, wanted)]
    domains = {c.domain for columns in found.values() for c in columns if c.domain and sent_type(c, database) == BYTES}
    return value_options.without_columns(out) | (value_options.typed_unless(domains) if domains else {})
