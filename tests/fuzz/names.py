"""Hostile names in statements: each is refused at its place, or the definition survives the statement that shows it."""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Iterator
from random import Random

from lakehold.definitions import Connection, MaterializedView, Source, Subscription, Table
from lakehold.errors import StatementError
from lakehold.printable import printable
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.render import create_statement
from lakehold.sql.statements import ForSpark
from lakehold.sql.text.dialect import LakeholdDialect
from tests.fuzz.faults import Fault, Tried
from tests.fuzz.mutations import ODD_TEXTS

KEYWORDS = sorted(
    {word.lower() for key in LakeholdDialect.Tokenizer.KEYWORDS for word in re.findall(r"[A-Za-z]\w*", key)}
)
"""Words that the SQL of queries or definitions knows."""

_PIECES = [
    *(text for text in ODD_TEXTS if len(text) < 300),
    *"`\"';.,()<>:%?#~$@!*+-=&|[]{}/\\ \t\r\n\x1b\x7f\xa0\xad\u200b\u200d\u2028\u2066\ufeff\ufffe\U000e0041\u3000İßﬁé1_a",
    *["e\u0301", "\ud800", "%2e%2e", "%s", "{0}", "/*", "--", "lake", "mz_catalog", "shop", "$files/", "a" * 255, "é" * 128],
]  # fmt: skip
_STATEMENTS = [
    "CREATE CONNECTION {} TO KAFKA (BROKER 'h:1')",
    "CREATE SOURCE {} FROM FILES '/x' FORMAT JSON",
    "CREATE SOURCE s FROM KAFKA CONNECTION {} (TOPICS ('a')) FORMAT AVRO USING SCHEMA REGISTRY CONNECTION {}",
    "CREATE TABLE shop.{} FROM SOURCE s (TOPIC 't') ENVELOPE UPSERT",
    "CREATE TABLE {}.t FROM SOURCE {} (TOPIC 't') ENVELOPE UPSERT",
    "CREATE TABLE shop.t ({} INT, {}2 STRUCT<{}: INT>) FROM SOURCE s (TOPIC 't') ENVELOPE UPSERT",
    "CREATE TABLE shop.t FROM SOURCE s (TOPIC 't') KEY ({}) INCLUDE OFFSET AS at_{} ENVELOPE UPSERT",
    "CREATE SUBSCRIPTION {} INTO a.{} AS SUBSCRIBE shop.t",
    "CREATE SUBSCRIPTION a AS SUBSCRIBE shop.{} ENVELOPE UPSERT (KEY ({}))",
    "CREATE MATERIALIZED VIEW shop.{} KEY ({}) AS SELECT {} FROM shop.{}",
    "CREATE HOLD {} ON shop.{}, {}.t",
    "DROP HOLD {}",
    "ALTER HOLD {} RENAME TO {}",
    "DROP TABLE shop.{}",
    "SHOW CREATE SOURCE {}",
    "CREATE ROLE {}",
    "GRANT SELECT ON shop.{} TO {}",
    "SUBSCRIBE shop.{} ENVELOPE DEBEZIUM (KEY ({}, {}2))",
    "SELECT {} FROM shop.{} AS OF 5",
]
"""Statements with places for a name; a text before or after a place belongs to the name."""

_PLACE = re.compile(r"(\w*)\{\}(\w*)")


def tried(chance: Random) -> Iterator[Tried]:
    """Parse statements with hostile names for ever, 1,000 at a time."""
    while True:
        faults: list[Fault] = []
        counts: Counter[str] = Counter()
        for _ in range(1_000):
            is_word = chance.random() < 0.3
            name = (
                chance.choice(KEYWORDS) if is_word else "".join(chance.choices(_PIECES, k=chance.choice([1, 1, 2, 4])))
            )
            statement, quote = chance.choice(_STATEMENTS), chance.choice('`"')
            sql = _named(statement, name, quote)
            found: object = None
            try:
                found = _parsed(sql)
                fault = _fault(found)
                if is_word and fault is None and not re.search("SELECT|SUBSCRIBE", statement):
                    # Without quotes a keyword is the same name, or refused; queries are kept as written.
                    plain = _parsed(_PLACE.sub(rf"\g<1>{name}\2", statement))
                    fault = (
                        None
                        if plain == found or isinstance(plain, StatementError | ForSpark)
                        else f"without quotes {plain}"
                    )
            except BaseException:  # noqa: BLE001 - whatever is raised is what is looked for
                fault = traceback.format_exc()
            counts["refused" if isinstance(found, StatementError) else "accepted"] += 1
            faults += [] if fault is None else [Fault(sql, fault)]
        yield Tried(1_000, tuple(faults), counts)


def _named(statement: str, name: str, quote: str) -> str:
    """Put a name, in quotes, in all places of a statement."""
    return _PLACE.sub(
        lambda found: quote + (found.group(1) + name + found.group(2)).replace(quote, 2 * quote) + quote, statement
    )


def _parsed(sql: str) -> object:
    try:
        return parse_script(sql)[0].statement
    except StatementError as error:
        return error


def _fault(found: object) -> str | None:
    """Return what is wrong with a refusal, or with a statement that shows the definition."""
    if isinstance(found, StatementError):
        excerpt = found.place.excerpt()
        return None if found.message and "^" in excerpt and printable(excerpt) == excerpt else f"refused as {found}"
    for name in ("connection", "source", "table", "subscription", "view"):
        definition = getattr(found, name, None)
        if isinstance(definition, Connection | Source | Table | Subscription | MaterializedView):
            again = _parsed(create_statement(definition))
            return None if again == found else f"shown as {create_statement(definition)}: {again}"
    return None
