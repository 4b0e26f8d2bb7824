"""Parsing `CREATE SUBSCRIPTION`: a SUBSCRIBE whose output lakehold keeps in a table."""

from __future__ import annotations

from lakehold.definitions import OptionValue, Subscription
from lakehold.errors import StatementError
from lakehold.sql.derived_options import with_options
from lakehold.sql.parse.subscribe import parse_subscribe
from lakehold.sql.statements import CreateSubscription
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.names import check_stored_name, new_table_name
from lakehold.sql.text.options import SUBSCRIPTION, parse_options
from lakehold.subscribe.statement import Subscribe


def parse_create_subscription(cursor: Cursor) -> CreateSubscription:
    """Parse `[IF NOT EXISTS] name`, then INTO and WITH in any order, then `AS SUBSCRIBE …`."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    first = cursor.peek()
    name = cursor.object_name("a subscription name")
    if "." in name:
        hint = "a subscription has no namespace, only its output table does: write INTO namespace.table"
        raise cursor.error_at(first, f'"{name}" cannot be a name of a subscription', last=first, hint=hint)
    into: tuple[str, str] | None = None
    options: dict[str, OptionValue] = {}
    subscribe: Subscribe | None = None
    for clause in cursor.clauses("INTO", "WITH", "AS SUBSCRIBE"):
        match clause:
            case "INTO":
                into = new_table_name(cursor)
            case "WITH":
                options = parse_options(cursor, SUBSCRIPTION)
            case _:
                subscribe = _subscribe(cursor)
    if subscribe is None:
        raise cursor.error("AS SUBSCRIBE")
    namespace = subscribe.tables[0].rpartition(".")[0]
    if into is None:
        if "." in namespace:
            hint = f'a table of lakehold has one namespace, not "{namespace}"; write INTO shop.{name}, for example'
            raise cursor.error_at(first, "expected INTO and the name of the output table", last=first, hint=hint)
        check_stored_name(cursor, name, first, first)
    subscription = Subscription(
        name=name,
        into=".".join(into) if into is not None else f"{namespace}.{name}",
        subscribe=subscribe.text,
        tables=subscribe.tables,
    )
    return CreateSubscription(with_options(subscription, options), if_not_exists)


def check_endless(subscribe: Subscribe) -> str:
    """Find the clause that keeps a SUBSCRIBE from being followed over restarts; empty if there is none."""
    if subscribe.up_to_ms is not None:
        return "UP TO"
    if subscribe.tokens:
        return "RESUME"
    return "PROGRESS" if subscribe.progress else ""


def _subscribe(cursor: Cursor) -> Subscribe:
    """Parse the SUBSCRIBE after `AS`, up to the end of the statement."""
    subscribe = parse_subscribe(cursor)
    unfit = check_endless(subscribe)
    if unfit:
        raise _refused(cursor, unfit)
    return subscribe


def _refused(cursor: Cursor, clause: str) -> StatementError:
    """Build the error at the last occurrence of `clause`: a query before the clause may contain the same words."""
    words = clause.split()
    place = cursor.position
    while not cursor.at_words(*words):
        place -= 1
        cursor.rewind(place)
    first, last = cursor.peek(), cursor.peek(len(words) - 1)
    hint = {
        "UP TO": "a subscription goes on until it is dropped",
        "RESUME": "a subscription keeps its position itself",
        "PROGRESS": "the property lakehold.position of the output table shows up to which time it is complete",
    }[clause]
    return cursor.error_at(first, f"a subscription does not take {clause}", last=last, hint=hint)
