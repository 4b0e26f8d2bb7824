"""Options in parentheses: their names, the values they take, and how they are parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from sqlglot import TokenType

from lakehold.definitions import (
    ConnectionType,
    OnKeyViolation,
    OnLapse,
    OptionValue,
    Refresh,
    Secret,
    plain_option_name,
)
from lakehold.errors import StatementError
from lakehold.holds.retention import RETAIN_HISTORY
from lakehold.secret_names import SECRET_NAME, URL_PASSWORD
from lakehold.sql.text.cursor import Cursor, did_you_mean, one_of
from lakehold.sql.text.durations import parse_duration
from lakehold.sql.text.layout import parse_partitioning, parse_sorting
from lakehold.table_layout import FORMAT_VERSION, NEWEST_FORMAT, PARTITIONED_BY, SORTED_BY


@dataclass(frozen=True)
class TextOption:
    """An option that takes text or a secret; with `choices` only one of them."""

    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class UrlOption:
    """An option that takes the address of an HTTP server or a secret; with `many` several addresses with commas between."""

    many: bool = False


@dataclass(frozen=True)
class NumberOption:
    """An option that takes a whole number between two bounds."""

    minimum: int
    maximum_inclusive: int


@dataclass(frozen=True)
class DurationOption:
    """An option that takes a duration, which is stored as a whole number of milliseconds."""


@dataclass(frozen=True)
class ListOption:
    """An option that takes a list in parentheses; `parse` returns the text that definitions keep of it."""

    parse: Callable[[Cursor], str]


OptionType = TextOption | UrlOption | NumberOption | DurationOption | ListOption


@dataclass(frozen=True)
class OptionSet:
    """The options that one clause takes.

    Attributes:
        known: The options by name: lowercase, with `_` for spaces and dots.
        required: Names of the options that must be given.
    """

    known: Mapping[str, OptionType]
    required: tuple[str, ...] = ()


_TEXT = TextOption()

KAFKA = OptionSet(
    known={
        "broker": _TEXT,
        "security_protocol": TextOption(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        "sasl_mechanism": TextOption(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
        "sasl_username": _TEXT,
        "sasl_password": _TEXT,
        "sasl_jaas_config": _TEXT,
        "ssl_truststore_location": _TEXT,
        "ssl_truststore_certificates": _TEXT,
        "ssl_truststore_type": TextOption(("PEM",)),
        "ssl_keystore_location": _TEXT,
        "ssl_keystore_certificate_chain": _TEXT,
        "ssl_keystore_key": _TEXT,
        "ssl_keystore_type": TextOption(("PEM",)),
        "ssl_key_password": _TEXT,
        "ssl_endpoint_identification_algorithm": TextOption(("https", "none")),
        "client_id": _TEXT,
        "client_rack": _TEXT,
    },
    required=("broker",),
)
"""The options that `lakehold.kafka.connection_options` can give to both Kafka clients."""

SCHEMA_REGISTRY = OptionSet(
    known={
        "url": UrlOption(many=True),
        "username": _TEXT,
        "password": _TEXT,
        "ssl_certificate_authority": _TEXT,
    },
    required=("url",),
)
_PORT = NumberOption(1, 65_535)
_DATABASE_SERVER: Mapping[str, OptionType] = {
    "host": _TEXT,
    "port": _PORT,
    "user": _TEXT,
    "password": _TEXT,
    "ssl_mode": TextOption(("disable", "require", "verify-ca", "verify-full")),
    "ssl_certificate_authority": _TEXT,
}
POSTGRES = OptionSet(known={**_DATABASE_SERVER, "database": _TEXT}, required=("host", "user", "database"))
MYSQL = OptionSet(
    known={**_DATABASE_SERVER, "ssl_truststore_location": _TEXT, "ssl_truststore_password": _TEXT},
    required=("host", "user"),
)
CONNECT = OptionSet(
    known={
        "url": UrlOption(),
        "username": _TEXT,
        "password": _TEXT,
        "ssl_certificate_authority": _TEXT,
        "avro_converter": TextOption(("apicurio", "confluent")),
        "registry_url": UrlOption(many=True),
    },
    required=("url",),
)
CONNECTIONS = {
    ConnectionType.KAFKA: KAFKA,
    ConnectionType.SCHEMA_REGISTRY: SCHEMA_REGISTRY,
    ConnectionType.POSTGRES: POSTGRES,
    ConnectionType.MYSQL: MYSQL,
    ConnectionType.MARIADB: MYSQL,
    ConnectionType.CONNECT: CONNECT,
}
POSTGRES_CAPTURE = OptionSet(known={"publication": _TEXT, "slot": _TEXT})
MYSQL_CAPTURE = OptionSet(known={"server_id": NumberOption(1, 2**32 - 1)})
INTO_KAFKA = OptionSet(known={"topic_prefix": _TEXT, "partitions": NumberOption(1, 1_000)})
SOURCE = OptionSet(
    known={"max_records": NumberOption(1, 2**31 - 1), "max_bytes": NumberOption(1, 2**63 - 1)},
)
LAYOUT: Mapping[str, OptionType] = {
    FORMAT_VERSION: NumberOption(2, NEWEST_FORMAT),
    PARTITIONED_BY: ListOption(parse_partitioning),
    SORTED_BY: ListOption(parse_sorting),
}
"""The options that lay out the files of a new table."""
TABLE = OptionSet(
    known={
        "on_error": TextOption(("fail", "record")),
        "truncate": TextOption(("apply", "ignore")),
        "buckets": NumberOption(1, 4096),
        **LAYOUT,
        RETAIN_HISTORY: DurationOption(),
    },
)
KINDS: Mapping[str, type[StrEnum]] = {"on_lapse": OnLapse, "on_key_violation": OnKeyViolation, "refresh": Refresh}
"""The types of options whose values are words, by name."""
SUBSCRIPTION = OptionSet(
    known={
        "on_lapse": TextOption(tuple(OnLapse)),
        "retain_output": DurationOption(),
        "max_lag": DurationOption(),
    },
)
VIEW = OptionSet(
    known={
        RETAIN_HISTORY: DurationOption(),
        "max_lag": DurationOption(),
        **{name: TextOption(tuple(kind)) for name, kind in KINDS.items()},
        **LAYOUT,
    },
)
ALTERED_VIEW = OptionSet(known={n: option for n, option in VIEW.known.items() if n not in LAYOUT})
"""The options that ALTER MATERIALIZED VIEW sets; the others decide how rows are laid out, from the first one on."""
RETENTION = OptionSet(known={RETAIN_HISTORY: DurationOption()}, required=(RETAIN_HISTORY,))
"""The options that ALTER TABLE sets."""


def parse_options(cursor: Cursor, options: OptionSet) -> dict[str, OptionValue]:
    """Parse `(NAME [=] value, …)`; the type of an option decides which value it takes.

    Raises:
        StatementError: An option is unknown, given twice, missing, has a value of another type, or is a secret in plain text.
    """
    opening = cursor.peek()
    cursor.expect_symbol("(")
    found: dict[str, OptionValue] = {}
    more = not cursor.accept_symbol(")")
    while more:
        first = cursor.peek()
        name = _name(cursor, options)
        if name in found:
            raise cursor.error_at(first, f"{spoken(name)} is given twice", last=cursor.last)
        cursor.accept_symbol("=")
        found[name] = _value(cursor, name, options.known[name])
        more = cursor.more(after_last=True)
    for name in options.required:
        if name not in found:
            raise cursor.error_at(opening, f"expected the option {spoken(name)}", hint=f"write {spoken(name)} '…'")
    return found


def parse_option_names(cursor: Cursor, options: OptionSet) -> tuple[str, ...]:
    """Parse `(NAME, …)`.

    Raises:
        StatementError: An option is unknown.
    """
    cursor.expect_symbol("(")
    found = [_name(cursor, options)]
    while cursor.more():
        found.append(_name(cursor, options))
    return tuple(found)


def spoken(name: str) -> str:
    """Write a stored name of an option as in a statement."""
    return name.replace("_", " ").upper()


def _name(cursor: Cursor, options: OptionSet) -> str:
    """Parse the name of an option: `WORD …`, `dotted.word` or `"quoted"`; words end where the value begins.

    Returns:
        The name in `options.known`, however it is written.
    """
    first, start = cursor.peek(), cursor.position
    quoted = cursor.quoted_name()
    name = plain_option_name(_words(cursor) if quoted is None else quoted.lower())
    if name in options.known:
        return name
    leading = _leading_option(cursor, start, options) if quoted is None else None
    if leading is not None:
        return leading
    known = [spoken(n) for n in options.known]
    meant, last = did_you_mean(spoken(name), known), cursor.last
    cursor.accept_symbol("=")
    # A password after a misspelled PASSWORD is one, too.
    sql = _without_value(cursor) if SECRET_NAME.search(meant.lower().replace(" ", "_")) else cursor.sql
    raise StatementError(
        f"{spoken(name)} is not an option here",
        sql=sql,
        start=first.start,
        end_exclusive=last.end + 1,
        hint=meant or f"the options here are {', '.join(known)}",
    )


def _leading_option(cursor: Cursor, start: int, options: OptionSet) -> str | None:
    """Find the longest option with which the words from `start` on begin, and move the cursor after it.

    The words after it are then taken as its value, so that the error is about the value. None if no option matches.
    """
    end, name, found = cursor.position, "", None
    cursor.rewind(start)
    while cursor.position < end:
        joined = "" if not name or name.endswith(".") or cursor.source_text(cursor.peek()) == "." else "_"
        name += joined + cursor.source_text(cursor.advance()).lower()
        if plain_option_name(name) in options.known:
            found = plain_option_name(name), cursor.position
    cursor.rewind(end if found is None else found[1])
    return None if found is None else found[0]


def _words(cursor: Cursor) -> str:
    if not cursor.word():
        raise cursor.error("an option name")
    name = cursor.word().lower()
    cursor.advance()
    while not cursor.at_end:
        if cursor.accept_symbol("."):
            name += f".{cursor.source_text(cursor.advance()).lower()}"
        elif cursor.word() and not _at_value(cursor):
            name += f"_{cursor.word().lower()}"
            cursor.advance()
        else:
            break
    return name


def _at_value(cursor: Cursor) -> bool:
    """Return whether the next word begins the value of the option without a `=` before it."""
    is_interval = cursor.at_words("INTERVAL") and (cursor.is_text(1) or cursor.peek(1).token_type is TokenType.NUMBER)
    return is_interval or _at_secret(cursor)


def _at_secret(cursor: Cursor) -> bool:
    after = cursor.source_text(cursor.peek(1))
    return cursor.at_words("SECRET") and not cursor.word(1) and after not in ("=", ".")


def _value(cursor: Cursor, name: str, option: OptionType) -> OptionValue:
    match option:
        case DurationOption():
            return parse_duration(cursor)
        case ListOption(parse):
            return parse(cursor)
        case NumberOption(minimum, maximum_inclusive):
            return _number(cursor, name, minimum, maximum_inclusive)
        case TextOption(choices) if choices:
            return _choice(cursor, name, choices)
        case UrlOption(many):
            return _url(cursor, name, many=many)
        case TextOption():
            return _text_or_secret(cursor, name)


def _text_or_secret(cursor: Cursor, name: str) -> str | Secret:
    if _at_secret(cursor):
        cursor.advance()
        return Secret(cursor.text("the name of a secret"))
    if SECRET_NAME.search(name):
        message = f"{spoken(name)} must not be plain text"
        raise _masked(cursor, message, hint=f"write {spoken(name)} SECRET 'NAME'")
    if cursor.is_text() and URL_PASSWORD.search(cursor.peek().text):
        raise _holds_password(cursor, name)
    return cursor.text(f"a value for {spoken(name)}", hint=f"write {spoken(name)} '…'")


def _url(cursor: Cursor, name: str, *, many: bool) -> str | Secret:
    token, position = cursor.peek(), cursor.position
    value = _text_or_secret(cursor, name)
    addresses = [value] if isinstance(value, Secret) or not many else value.split(",")
    if not all(isinstance(address, Secret) or _is_http(address.strip()) for address in addresses):
        if "@" in str(value):
            # Such as `user:password@host`.
            cursor.rewind(position)
            raise _holds_password(cursor, name)
        message = f"expected the address of an HTTP server for {spoken(name)}, found '{value}'"
        raise cursor.error_at(token, message, hint=f"write {spoken(name)} 'http://host:port', or with https")
    return value


def _is_http(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and "," not in address
    except ValueError:
        return False


def _choice(cursor: Cursor, name: str, choices: tuple[str, ...]) -> str:
    token = cursor.peek()
    value = cursor.text(f"a value for {spoken(name)}")
    for choice in choices:
        if value.lower() == choice.lower():
            return choice
    allowed = one_of([f"'{c}'" for c in choices])
    raise cursor.error_at(token, f"{spoken(name)} takes {allowed}, found '{value}'")


def _number(cursor: Cursor, name: str, minimum: int, maximum_inclusive: int) -> int:
    token = cursor.peek()
    value = _whole_number(cursor, name)
    if not minimum <= value <= maximum_inclusive:
        allowed = f"a number from {minimum} to {maximum_inclusive}"
        raise cursor.error_at(token, f"{spoken(name)} takes {allowed}, found {value}")
    return value


def _whole_number(cursor: Cursor, name: str) -> int:
    sign = -1 if cursor.accept_symbol("-") else 1
    token = cursor.peek()
    if not (token.text.isascii() and token.text.isdigit()) or token.token_type is not TokenType.NUMBER:
        raise cursor.error(f"a whole number for {spoken(name)}", hint=f"write {spoken(name)} and digits without quotes")
    cursor.advance()
    return sign * int(token.text)


def _holds_password(cursor: Cursor, name: str) -> StatementError:
    return _masked(cursor, f"{spoken(name)} must not hold a password", hint="give it as PASSWORD SECRET 'NAME'")


def _masked(cursor: Cursor, message: str, *, hint: str) -> StatementError:
    """Build an error about the next value, and mask the value in the excerpt: errors end up in logs."""
    start = cursor.peek().start
    masked = _without_value(cursor)
    return StatementError(message, sql=masked, start=start, end_exclusive=max(start, cursor.last.end + 1), hint=hint)


def _without_value(cursor: Cursor) -> str:
    """Step over the next value, and return the script with the value masked."""
    start = cursor.peek().start
    while not cursor.at_end and cursor.source_text(cursor.peek()) not in (",", ")"):
        cursor.advance()
    end_exclusive = max(start, cursor.last.end + 1)
    return cursor.sql[:start] + "*" * (end_exclusive - start) + cursor.sql[end_exclusive:]
