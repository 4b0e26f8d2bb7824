"""Report and refuse values of declared tables that Debezium does not send unchanged. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lakehold.definitions import ConnectionType
from lakehold.errors import UpstreamError
from lakehold.object_names import object_text
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.found import Found
from lakehold.upstream.found.values import LossyColumn, LostValues
from lakehold.upstream.types.captured_columns import Columns, sent_type
from lakehold.upstream.types.identifier_quoting import identifier_text, table_text
from lakehold.upstream.wanted.wanted import CapturedTable, Wanted

_READABLE_MONEY = re.compile(r"[^0-9](1234\.50*|1234|1235)")
"""1234.5 as Debezium can read it: one character for the currency, then a number, in which commas mean nothing."""


def lossy_columns(
    tables: Iterable[str], found: Columns, database: ConnectionType
) -> dict[str, tuple[LossyColumn, ...]]:
    """Return the columns whose rows to search in each of some tables; no entry for a table whose types lose nothing."""
    lossy = {
        table: tuple(
            LossyColumn(column, loss) for column in found.get(table, ()) for loss in sent_type(column, database).losses
        )
        for table in tables
    }
    return {table: columns for table, columns in lossy.items() if columns}


def lost_values_hints(tables: Iterable[str], found: Found) -> Iterator[str]:
    """Yield a sentence for each kind of values in the rows that Debezium does not send unchanged."""
    for table in tables:
        lost = found.lost.get(table, LostValues(()))
        if lost.query:
            yield _unknown_hint(table, lost)
            continue
        columns: dict[str, list[str]] = {}
        for lossy in lost.columns:
            columns.setdefault(lossy.loss.what, []).append(f"{table}.{lossy.column.name} ({lossy.column.text})")
        for what, names in columns.items():
            holding = "column {} holds" if len(names) == 1 else "columns {} hold"
            yield f"{holding.format(', '.join(names))} values that are not sent as they are: {what}"


def _unknown_hint(table: str, lost: LostValues) -> str:
    names = dict.fromkeys(f"{lossy.column.name} ({lossy.column.text})" for lossy in lost.columns)
    stopping = dict.fromkeys(lossy.column.name for lossy in lost.columns if lossy.stops)
    stops = f". At one in {', '.join(stopping)}, which takes no nulls, the connector fails" if stopping else ""
    return (
        f"table {table} could not be searched: {', '.join(names)} may hold values that are not sent as they are"
        f"{stops}. This query finds them: {lost.query}"
    )


def refuse_values(table: CapturedTable, found: Found, wanted: Wanted) -> None:
    """Refuse a table with values at which the connector would fail for all of its tables."""
    _refuse_money(table, found, wanted)
    _refuse_escaped(table, found, wanted)
    lost = found.lost.get(table.upstream, LostValues(()))
    lossy = next((each for each in lost.columns if each.stops and not lost.query), None)
    if lossy is None:
        return
    column, database = lossy.column, wanted.capture.database
    upstream, name = table_text(table.upstream, database), identifier_text(column.name, database)
    # There is no single statement that makes a domain, or a key, take nulls.
    nulls = f" Or let it take nulls: ALTER TABLE {upstream} ALTER COLUMN {name} DROP NOT NULL."
    raise UpstreamError(
        f'column "{column.name}" of table "{table.upstream}" holds values that the connector cannot send',
        code="value-unsendable",
        detail=f"It is of type {column.text} and takes no nulls, and {lossy.loss.what}: the connector would fail, with all of "
        "its tables.",
        hint=f"UPDATE {upstream} SET {name} = … WHERE {lossy.loss.where.format(name)}."
        f"{'' if column.is_key or column.domain else nulls}",
    )


def _refuse_money(table: CapturedTable, found: Found, wanted: Wanted) -> None:
    money = found.database.money if found.database is not None else ""
    database = wanted.capture.database
    columns = found.columns.get(table.upstream, ())
    column = next((c for c in columns if c.type.name == "money" and sent_type(c, database).schema is not None), None)
    if column is None or not money or _READABLE_MONEY.fullmatch(money.replace(",", "")):
        return
    raise UpstreamError(
        f'column "{column.name}" of table "{table.upstream}" holds values that the connector cannot send',
        code="value-unsendable",
        detail=f'It is of type money, of which the database writes 1234.5 as "{money}" for user '
        f'"{wanted.config["database.user"]}": the connector would fail, with all of its tables, or send other values.',
        hint=f"{_altered_role(wanted)} SET lc_monetary = 'C'.",
    )


def _refuse_escaped(table: CapturedTable, found: Found, wanted: Wanted) -> None:
    for column in _escaped(table.upstream, found):
        raise UpstreamError(
            f'column "{column.name}" of table "{table.upstream}" holds values that the connector cannot send',
            code="value-unsendable",
            detail=f"It is of type {column.text}, whose changes the database writes by its setting bytea_output = escape for "
            f'user "{wanted.config["database.user"]}". The connector reads them as hex, and sends other values.',
            hint=f"{_altered_role(wanted)} SET bytea_output = 'hex'.",
        )


def escaped_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each captured column of type `bytea` whose changes arrive as other values."""
    for table in wanted.upstream_tables:
        for column in _escaped(table, found):
            yield (
                f"changes of column {table}.{column.name} ({column.text}) arrive as other values while bytea_output is escape "
                f"for user {wanted.config['database.user']}: {_altered_role(wanted)} SET bytea_output = 'hex'; then ALTER SOURCE "
                f"{object_text(wanted.source)} RESNAPSHOT"
            )


def _escaped(upstream: str, found: Found) -> Iterator[FoundColumn]:
    if found.database is not None and found.database.bytea_output != "hex":
        yield from (column for column in found.columns.get(upstream, ()) if column.type.name == "bytea")


def _altered_role(wanted: Wanted) -> str:
    user, name = (
        identifier_text(wanted.config[f"database.{of}"], ConnectionType.POSTGRES) for of in ("user", "dbname")
    )
    return f"ALTER ROLE {user} IN DATABASE {name}"
