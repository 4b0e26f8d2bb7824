"""Adapt the connector's configuration to what exists upstream: server, signal table, columns, the connector itself. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pyiceberg.types import LongType

from lakehold.definitions import ConnectionType
from lakehold.object_names import object_text
from lakehold.upstream.differences.unfit import without_unfit
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.found import Found, FoundConnector
from lakehold.upstream.types import value_options
from lakehold.upstream.types.captured_columns import Columns, sent_type, unsent_columns
from lakehold.upstream.types.field_names import colliding_columns, field_name
from lakehold.upstream.types.identifier_quoting import identifier_text, table_text
from lakehold.upstream.types.sent_types import BYTES
from lakehold.upstream.types.value_options import INTERVALS, KEPT, UNSIGNED
from lakehold.upstream.wanted.connector_config import FAILOVER_SLOT
from lakehold.upstream.wanted.signal_table import with_signal_table
from lakehold.upstream.wanted.wanted import Wanted

_APICURIO = "io.apicurio."


def fitted(wanted: Wanted, found: Found) -> Wanted:
    """Return what is wanted with the options that depend on what exists upstream."""
    if not wanted.tables:
        return wanted
    wanted = without_unfit(with_signal_table(wanted, found.signals), found)
    has_failover_slots = found.database is not None and found.database.failover.has_failover_slots
    of_server = FAILOVER_SLOT if has_failover_slots else {}
    config = {**wanted.config, **of_server, **_of_columns(found.columns, wanted)}
    return replace(wanted, config=_keeping_types(replace(wanted, config=config), found))


def _keeping_types(wanted: Wanted, found: Found) -> dict[str, str]:
    """Return the configuration, with the type-deciding options as the existing connector or the lake's tables have them."""
    fixed = wanted.config.keys() & KEPT
    rest = {name: value for name, value in wanted.config.items() if name not in fixed}
    if found.connector is not None:
        return rest | {name: found.connector.config[name] for name in fixed if name in found.connector.config}
    without = {*_options_of_old_tables(wanted, found)}
    return rest | {name: wanted.config[name] for name in fixed if name not in without}


def _options_of_old_tables(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield the options that an earlier lakehold did not set, where the lake has whole numbers that they would replace."""
    for table in wanted.tables:
        types = found.lake_types.get(table.object_id, {})
        for column in found.columns.get(table.upstream, ()):
            option = _option(column, wanted.capture.database)
            is_whole = types.get(field_name(column.name, wanted.config)) == LongType()
            # A column list may read exact values as BIGINT, but an interval sent as text becomes no number.
            if option is not None and is_whole and (option == INTERVALS or not table.columns):
                yield option


def imprecise_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each column that a connector of an earlier lakehold does not send exactly."""
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
    """Return what values of a column lose by the options of an existing connector; '' if nothing."""
    match _option(column, database):
        case value_options.UNSIGNED if UNSIGNED not in connector.config:
            return "numbers from 9223372036854775808 on come as negative ones"
        case value_options.INTERVALS if connector.config.get(INTERVALS) != "string":
            return "a month comes as 30.4375 days"
        case _:
            return ""


def _option(column: FoundColumn, database: ConnectionType) -> str | None:
    """Return the connector option that decides the type of a column; None: none does."""
    if database is ConnectionType.POSTGRES:
        return INTERVALS if column.type.name == "interval" and not column.is_array else None
    return UNSIGNED if column.type.name == "bigint" and column.type.is_unsigned else None


def defaults_hints(tables: Iterable[str], wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each table with columns whose nulls Apicurio's converter replaces by the default."""
    if wanted.config.get("value.converter", "").startswith(_APICURIO):
        for table in tables:
            names = [f"{table}.{c.name}" for c in found.columns.get(table, ()) if c.has_default and c.is_nullable]
            if names:
                yield (
                    f"column{'' if len(names) == 1 else 's'} {', '.join(names)}: a null comes as the column's default, which "
                    "Apicurio's Avro converter writes for it. DROP DEFAULT, or create the source with FORMAT JSON"
                )


def collision_hints(tables: Iterable[str], wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each column that is left out because the connector would give it another column's name."""
    for table in tables:
        for kept, column in _collisions(found.columns.get(table, ()), wanted):
            upstream = table_text(table, wanted.capture.database)
            renamed = (
                f"ALTER TABLE {upstream} RENAME COLUMN {identifier_text(column.name, wanted.capture.database)} TO …"
            )
            yield (
                f"column {table}.{column.name} ({column.text}) is left out: in Avro Debezium calls it "
                f"{field_name(column.name, wanted.config)}, as it does {kept.name}, and would fail for all tables. {renamed} "
                f"brings what is written to it from then on, and ALTER SOURCE {object_text(wanted.source)} RESNAPSHOT all"
            )


def _collisions(columns: Sequence[FoundColumn], wanted: Wanted) -> list[tuple[FoundColumn, FoundColumn]]:
    out = [column for column, _ in unsent_columns(columns, wanted.capture.database)]
    pairs = colliding_columns([column for column in columns if column not in out], wanted.config)
    # A key without one of its columns does not identify rows.
    return [(kept, column) for kept, column in pairs if not column.is_key]


def _of_columns(found: Columns, wanted: Wanted) -> dict[str, str]:
    """Return options that leave out columns which cannot be sent, unless they are in a key.

    They also mark binary domains, and make Debezium read invisible columns.
    """
    database = wanted.capture.database
    out = [
        f"{table}.{column.name}"
        for table, columns in found.items()
        for column, _ in unsent_columns(columns, database)
        if not column.is_key
    ]
    out += [f"{table}.{column.name}" for table, columns in found.items() for _, column in _collisions(columns, wanted)]
    if any(column.is_invisible for columns in found.values() for column in columns):
        out.append(value_options.NO_COLUMN)
    domains = {c.domain for columns in found.values() for c in columns if c.domain and sent_type(c, database) == BYTES}
    return value_options.without_columns(out) | (value_options.typed_unless(domains) if domains else {})
