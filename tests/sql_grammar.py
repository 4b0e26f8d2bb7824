"""The grammar summary of docs/reference/sql.md, made from the parser's tables; `python -m tests.sql_grammar` writes it.

A form is text: words in capitals and signs are written as they are, `[a]` is optional, `{a | b}` is a choice, `a, …` repeats, and
a word in lowercase is a value, of which `SAMPLES` has examples. `variants` writes the statements that a form allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakehold.definitions import ConnectionType, Envelope, Metadata
from lakehold.secret_names import SECRET_NAME
from lakehold.sql.parse import capture, statement
from lakehold.sql.text import options
from lakehold.sql.text.options import OptionSet, OptionType
from lakehold.state.holds import Check
from tests.doc_pages import ROOT

PAGE = ROOT / "docs" / "reference" / "sql.md"

OPTION_SETS: Mapping[str, OptionSet] = {
    "kafka_option": options.KAFKA,
    "registry_option": options.SCHEMA_REGISTRY,
    "postgres_option": options.POSTGRES,
    "mysql_option": options.MYSQL,
    "connect_option": options.CONNECT,
    "source_option": options.SOURCE,
    "publication_option": options.POSTGRES_CAPTURE,
    "server_option": options.MYSQL_CAPTURE,
    "topic_option": options.INTO_KAFKA,
    "table_option": options.TABLE,
    "history_option": options.RETENTION,
    "subscription_option": options.SUBSCRIPTION,
    "view_option": options.VIEW,
    "altered_option": options.ALTERED_VIEW,
}
_VALUES = (
    ("name", "a word, lowercase unless quoted"),
    ("schema", "a namespace"),
    ("table", "namespace.name"),
    ("hold", "[namespace.]name"),
    ("text", "'in single quotes'"),
    ("time", "epoch milliseconds, or ISO 8601 in quotes, after TIMESTAMP or not"),
    ("as_of", "AS OF [AT LEAST] time, AS OF EARLIEST or AS OF LATEST"),
    ("duration", "'3h', '1 day 12 hours', INTERVAL '3' HOUR"),
    ("type", "the type of a column"),
    ("partition", "column, or year(column), month(…), day(…), hour(…), bucket(n, column), truncate(n, column)"),
    ("connection_option", "an option of the connection's kind"),
    *((f"{of}_name", f"the name of a {of}_option") for of in ("connection", "source", "subscription")),
    ("altered_name", "the name of an altered_option"),
    ("value", "a column outside the key"),
    ("query", "a SELECT"),
    ("item", "an expression over mz_diff and the columns, or an ordinal"),
)
_SAMPLES = {
    "name": ("a_name", "`Quoted`"),
    "schema": ("shop", "app"),
    "table": ("shop.orders", "shop.customers"),
    "hold": ("report", "shop.report"),
    "text": ("'some.text'", "'other.text'"),
    "time": ("1717156800000", "'2024-05-31 12:00:00'", "TIMESTAMP '2024-05-31T12:00:00+02:00'"),
    "as_of": ("AS OF 1717156800000", "AS OF AT LEAST '2024-05-31'", "AS OF EARLIEST", "AS OF LATEST"),
    "duration": ("'3h'", "'1 day 12 hours'", "INTERVAL '3' HOUR"),
    "type": ("BIGINT", "ARRAY<STRING>", "DECIMAL(10, 2)"),
    "value": ("total",),
    "connection_option": ("BROKER 'b:9092'",),
    "connection_name": ("PASSWORD", "SSL MODE"),
    "source_name": ("MAX RECORDS", "MAX BYTES"),
    "subscription_name": ("ON LAPSE", "RETAIN OUTPUT", "MAX LAG"),
    "altered_name": ("RETAIN HISTORY", "REFRESH", "ON LAPSE"),
    "column": ("id", "name"),
    "query": (
        "SELECT id FROM shop.orders",
        "SELECT status, count(*) AS orders FROM shop.orders GROUP BY status",
        "WITH paid AS (SELECT id FROM shop.orders WHERE status = 'paid') SELECT id FROM paid",
    ),
    "item": ("id", "2", "abs(mz_diff)"),
    "subscribe": ("SUBSCRIBE shop.orders", "SUBSCRIBE shop.orders ENVELOPE UPSERT (KEY (id)) AS OF 1"),
    "definition": ("CREATE CONNECTION k TO KAFKA (BROKER 'b:9092')",),
    "explained": (
        "CREATE CONNECTION k TO KAFKA (BROKER 'b:9092')",
        "CREATE SOURCE s FROM FILES '/data' FORMAT JSON",
        "CREATE TABLE shop.orders FROM SOURCE s (TOPIC 't') ENVELOPE DEBEZIUM",
        "CREATE MATERIALIZED VIEW bi.v AS SELECT id FROM shop.orders",
        "ALTER SOURCE s REPAIR",
        "ALTER CONNECTION k SET (BROKER 'b:9092')",
        *(f"DROP {named}" for named in ("CONNECTION k", "SOURCE s", "TABLE shop.orders", "MATERIALIZED VIEW bi.v")),
    ),
}


@dataclass(frozen=True)
class Form:
    """One way to write a statement.

    Attributes:
        text: The form; its lines are those of the page.
        productions: The first words of the parser's productions that read it.
    """

    text: str
    productions: tuple[str, ...]


def forms() -> tuple[Form, ...]:
    """Return every statement, in the order of the page."""
    of_all = " | ".join(envelope.sql for envelope in Envelope)
    of_rows = " | ".join(envelope.sql for envelope in Envelope if envelope.wraps_rows)
    included = " | ".join(each.value.upper() for each in Metadata)
    checks = " | ".join(f"'{check.value}'" for check in Check)
    with_table_options = "[WITH (table_option, …)]"
    include = f"[INCLUDE {{{included}}} [AS column], …]"
    return (
        *_connections(),
        Form(
            "CREATE SOURCE [IF NOT EXISTS] name\n"
            "  FROM {FILES text | KAFKA CONNECTION name ({TOPIC text | TOPICS (text, …)})}\n"
            "  FORMAT {JSON | AVRO USING SCHEMA REGISTRY CONNECTION name}\n"
            "  [TRANSACTION METADATA TOPIC text]\n"
            "  [WITH (source_option, …)]",
            ("CREATE SOURCE",),
        ),
        Form(
            "CREATE SOURCE [IF NOT EXISTS] name\n"
            "  FROM {POSTGRES CONNECTION name [(publication_option, …)]\n"
            "        | MYSQL CONNECTION name [(server_option, …)]\n"
            "        | MARIADB CONNECTION name [(server_option, …)]}\n"
            "  VIA CONNECT CONNECTION name\n"
            "  INTO KAFKA CONNECTION name [(topic_option, …)]\n"
            "  FORMAT {JSON | AVRO USING SCHEMA REGISTRY CONNECTION name}\n"
            "  [WITH (source_option, …)]",
            ("CREATE SOURCE",),
        ),
        Form(
            "CREATE TABLE [IF NOT EXISTS] table [(column type, …)]\n"
            "  FROM SOURCE name (TOPIC text)\n"
            f"  [KEY (column, …)]\n  {include}\n  ENVELOPE {{{_last_first(of_all)}}}\n  {with_table_options}",
            ("CREATE TABLE",),
        ),
        Form(
            "CREATE TABLE [IF NOT EXISTS] table [(column type, …)]\n"
            "  FROM SOURCE name (TABLE text)\n"
            f"  [KEY (column, …)]\n  {include}\n  ENVELOPE {{{of_rows}}}\n  {with_table_options}",
            ("CREATE TABLE",),
        ),
        _altering("CONNECTION", "name", "connection"),
        Form("ALTER SOURCE name {REPAIR | RESNAPSHOT}", ("ALTER SOURCE",)),
        _altering("SOURCE", "name", "source"),
        Form("ALTER TABLE table {SET (history_option) | RESET (RETAIN HISTORY)}", ("ALTER TABLE",)),
        *(
            Form(f"DROP {kind} [IF EXISTS] name [{{CASCADE | RESTRICT}}] [KEEP UPSTREAM]", (f"DROP {kind}",))
            for kind in ("CONNECTION", "SOURCE")
        ),
        Form("DROP TABLE [IF EXISTS] table [{CASCADE | RESTRICT}]", ("DROP TABLE",)),
        Form(
            "CREATE HOLD [[IF NOT EXISTS] hold] ON table, … [AT time]\n"
            f"  [WITH (MAX LAG [=] duration, CHECK [=] {{{checks}}})]",
            ("CREATE HOLD",),
        ),
        Form("ALTER HOLD hold {ADVANCE [TO time] | RENAME TO name}", ("ALTER HOLD",)),
        Form("DROP HOLD [IF EXISTS] hold", ("DROP HOLD",)),
        Form("CREATE ROLE [IF NOT EXISTS] name [{SUPERUSER | WITH SUPERUSER}]", ("CREATE ROLE",)),
        Form("DROP ROLE [IF EXISTS] name", ("DROP ROLE",)),
        *(Form(_granting(verb, to), (verb,)) for verb, to in (("GRANT", "TO"), ("REVOKE", "FROM"))),
        Form("query as_of", ("SELECT", "WITH")),
        Form(
            "SELECT column, … FROM CHANGES(table as_of [UP TO time]\n"
            "  [, ENVELOPE {UPSERT | DEBEZIUM} (KEY (column, …))] [, NET])",
            ("SELECT",),
        ),
        Form(
            "SUBSCRIBE [TO] {table | (query)}\n"
            "  [{WITHIN TIMESTAMP ORDER BY item [{ASC | DESC}] [{NULLS FIRST | NULLS LAST}], …\n"
            "    | ENVELOPE UPSERT (KEY (column, …))\n"
            "    | ENVELOPE DEBEZIUM (KEY (column, …))\n"
            "    | ENVELOPE HISTORY (KEY (column, …)) [TRACK {(value, …) | ALL EXCEPT (value, …)}]}]\n"
            "  [WITH (SNAPSHOT [[=] {TRUE | FALSE}], PROGRESS [[=] {TRUE | FALSE}], RESUME [=] {'token' | NULL})]\n"
            "  [as_of] [UP TO time]",
            ("SUBSCRIBE",),
        ),
        Form("EXPLAIN subscribe", ("EXPLAIN SUBSCRIBE",)),
        Form(
            "CREATE SUBSCRIPTION [IF NOT EXISTS] name [INTO table]\n  [WITH (subscription_option, …)] AS subscribe",
            ("CREATE SUBSCRIPTION",),
        ),
        _altering("SUBSCRIPTION", "name", "subscription"),
        Form("DROP SUBSCRIPTION [IF EXISTS] name [{CASCADE | RESTRICT}]", ("DROP SUBSCRIPTION",)),
        Form(
            "CREATE MATERIALIZED VIEW [IF NOT EXISTS] table [KEY (column, …)]\n  [WITH (view_option, …)] AS query",
            ("CREATE MATERIALIZED VIEW",),
        ),
        _altering("MATERIALIZED VIEW", "table", "altered"),
        Form("DROP MATERIALIZED VIEW [IF EXISTS] table [{CASCADE | RESTRICT}]", ("DROP MATERIALIZED VIEW",)),
        Form(
            "[EXPLAIN] BEGIN [TRANSACTION]; definition; …; COMMIT [TRANSACTION]", ("BEGIN", "EXPLAIN BEGIN", "COMMIT")
        ),
        Form("EXPLAIN explained", ("EXPLAIN",)),
        *_showing(),
    )


def _connections() -> Iterable[Form]:
    """Yield the forms of CREATE CONNECTION; systems that take the same options share one form."""
    for hole, known in OPTION_SETS.items():
        systems = [_system(each) for each in ConnectionType if options.CONNECTIONS[each] is known]
        if systems:
            to = systems[0] if len(systems) == 1 else f"{{{' | '.join(systems)}}}"
            yield Form(f"CREATE CONNECTION [IF NOT EXISTS] name TO {to} ({hole}, …)", ("CREATE CONNECTION",))


def _system(connection_type: ConnectionType) -> str:
    return connection_type.value.replace("-", " ").upper()


def _last_first(alternatives: str) -> str:
    """Move the last alternative to the front: examples use the first one, and only the last takes every other clause."""
    return " | ".join(reversed(alternatives.split(" | ")))


def _altering(kind: str, name: str, of: str) -> Form:
    return Form(f"ALTER {kind} {name} {{SET ({of}_option, …) | RESET ({of}_name, …)}}", (f"ALTER {kind}",))


def _granting(verb: str, to: str) -> str:
    return (
        f"{verb} {{SELECT ON [TABLE] table, … | SELECT ON ALL TABLES IN {{SCHEMA | NAMESPACE}} schema, …\n"
        f"  | CREATE ON {{SCHEMA | NAMESPACE}} schema, …}} {to} name, …"
    )


def _showing() -> Iterable[Form]:
    shown = [" ".join(words) for words in statement._PRODUCTIONS if words[0] == "SHOW"]
    plain = [words for words in shown if not words.startswith("SHOW CREATE") and words != "SHOW GRANTS"]
    yield Form(f"SHOW {{{' | '.join(words.removeprefix('SHOW ') for words in plain)}}}", tuple(plain))
    yield Form("SHOW GRANTS [FOR name]", ("SHOW GRANTS",))
    created = [words.removeprefix("SHOW CREATE ") for words in shown if words.startswith("SHOW CREATE")]
    named = [words for words in created if words not in ("TABLE", "MATERIALIZED VIEW", "HOLD")]
    one_of_names = f"{{{' | '.join(named)}}} name | {{TABLE | MATERIALIZED VIEW}} table | HOLD hold"
    yield Form(f"SHOW CREATE {{{one_of_names}}}", tuple(f"SHOW CREATE {words}" for words in created))


# --- the page ---------------------------------------------------------------------------------------------------------


def _block(text: str) -> str:
    """Return a block of the page, marked as `tests/runnable_pages.py` wants it."""
    return f"<!-- checked by: tests/unit/test_sql_grammar.py -->\n```text\n{text}\n```"


def summary() -> str:
    """Return the block of the page: statements, their options, and the forms of values."""
    statements = "\n\n".join("\n".join(texts) for texts in _by_topic().values())
    explained = ", ".join(" ".join(words) for words in statement._EXPLAINED)
    values = [
        *_VALUES,
        (
            "subscribe",
            "a SUBSCRIBE; for CREATE SUBSCRIPTION without UP TO, PROGRESS and RESUME, only there ENVELOPE HISTORY",
        ),
        ("definition", "CREATE of anything but a ROLE; or only ALTER HOLD … RENAME and DROP HOLD"),
        ("explained", f"one of {explained}"),
    ]
    width = max(len(name) for name, _ in values) + 2
    written = "\n".join(f"{name:<{width}}{meaning}" for name, meaning in values)
    return (
        f"{_block(statements)}\n\nOptions, each a name, an optional `=` and a value:\n\n"
        f"{_block(_options_text())}\n\nValues:\n\n{_block(written)}"
    )


def _by_topic() -> Mapping[str, Sequence[str]]:
    """Group the forms by the kind of object that they are about."""
    found: dict[str, list[str]] = {}
    for form in forms():
        first = form.productions[0].split()
        topic = first[0] if first[0] in ("SHOW", "GRANT", "REVOKE") else first[-1]
        found.setdefault("ROLE" if topic in ("GRANT", "REVOKE") else topic, []).append(form.text)
    return found


def _options_text() -> str:
    blocks = []
    for hole, known in OPTION_SETS.items():
        width = max(len(options.spoken(name)) for name in known.known) + 2
        rows = [
            f"  {options.spoken(name):<{width}}{_value(name, option)}{', required' if name in known.required else ''}"
            for name, option in known.known.items()
        ]
        blocks.append("\n".join([hole, *rows]))
    return "\n".join(blocks)


def _value(name: str, option: OptionType) -> str:
    match option:
        case options.NumberOption(minimum, maximum_inclusive):
            return f"a number from {minimum} to {maximum_inclusive}"
        case options.DurationOption():
            return "duration"
        case options.ListOption():
            return "(partition, …)" if name == "partitioned_by" else "(column [DESC] [NULLS {FIRST | LAST}], …)"
        case options.UrlOption(many):
            return "text: URLs with commas between" if many else "text: a URL"
        case options.TextOption(choices) if choices:
            return " | ".join(f"'{choice}'" for choice in choices)
        case options.TextOption():
            secret = "SECRET text" if SECRET_NAME.search(name) else "text | SECRET text"
            return "text" if name in capture._PATTERNS else secret


_PLACE = re.compile(r"(?<=<!-- grammar -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)


def written() -> str:
    """Return the summary on the page."""
    found = _PLACE.search(PAGE.read_text())
    assert found is not None, "the page has no summary of the grammar"
    return found[0]


# --- statements of a form ---------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"'[^']*'|[A-Z]+|[a-z_]+|…|[\[\]{}|(),;=]")


def variants(text: str) -> list[str]:
    """Return statements that a form allows: the shortest, each part of it once in every way, and one with all parts."""
    tokens = _TOKEN.findall(text)
    found, rest = _sequence(tokens)
    assert not rest, f"{rest} remains of {text}"
    full = _sequence(tokens, full=True)[0][0]
    return list(dict.fromkeys(" ".join(each.split()) for each in (*found, full)))


def _sequence(tokens: Sequence[str], *, full: bool = False) -> tuple[list[str], Sequence[str]]:
    """Return the variants of the tokens before the next `|`, `]` or `}`, and the remaining tokens."""
    items: list[list[str]] = []
    while tokens and tokens[0] not in ("|", "]", "}"):
        token, tokens = tokens[0], tokens[1:]
        if token in ("[", "{"):
            inner, tokens = _choice(tokens, full=full)
            assert tokens[0] == {"[": "]", "{": "}"}[token]
            tokens = tokens[1:]
            items.append(inner if token == "{" or full else ["", *inner])
        elif token in (",", ";") and tokens[:1] == ["…"]:
            tokens = tokens[1:]
        else:
            samples = SAMPLES.get(token, (token,))
            is_list = token in _LISTED and tokens[:2] == [",", "…"]
            items.append([*samples, ", ".join(samples)] if is_list else [*samples])
    base = [item[0] for item in items]
    found = [" ".join(base)]
    for index, item in enumerate(items):
        found += [" ".join([*base[:index], other, *base[index + 1 :]]) for other in item[1:]]
    return found, tokens


def _choice(tokens: Sequence[str], *, full: bool) -> tuple[list[str], Sequence[str]]:
    found, tokens = _sequence(tokens, full=full)
    while tokens and tokens[0] == "|":
        more, tokens = _sequence(tokens[1:], full=full)
        found += more
    return found, tokens


def _option_samples(known: OptionSet) -> tuple[str, ...]:
    """Return the required options alone, and with each other option."""
    required = [_sample(name, known.known[name]) for name in known.required]
    others = [_sample(name, option) for name, option in known.known.items() if name not in known.required]
    alone = [", ".join(required)] if required else []
    return (*alone, *(", ".join([*required, other]) for other in others))


def _sample(name: str, option: OptionType) -> str:
    match option:
        case options.NumberOption(_, maximum):
            value = str(maximum)
        case options.DurationOption() | options.ListOption():
            value = "'3h'" if isinstance(option, options.DurationOption) else "(id)"
        case options.UrlOption():
            value = "'http://host:8081'"
        case options.TextOption(choices) if choices:
            value = f"'{choices[0]}'"
        case options.TextOption():
            value = "SECRET 'a_secret'" if SECRET_NAME.search(name) else "'some_text'"
    return f"{options.spoken(name)} = {value}"


SAMPLES: Mapping[str, tuple[str, ...]] = {
    **_SAMPLES,
    **{hole: _option_samples(known) for hole, known in OPTION_SETS.items()},
}
_LISTED = frozenset({"name", "schema", "table", "text", "column"})
"""Values whose lists have several elements in the samples."""


if __name__ == "__main__":
    PAGE.write_text(_PLACE.sub(summary().replace("\\", r"\\"), PAGE.read_text()))
