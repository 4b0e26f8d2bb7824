"""All errors that a person can meet, as one tree.

    LakeholdError                    the root; catch this to report and exit
    ├── StatementError               the SQL text is wrong: position, line and caret
    ├── DefinitionError              a connection, source or table is missing, taken or contradicts another
    │   ├── NotReadable              ... or a table is not readable at a time; the error names the readable window
    │   └── SubscriberMissing        ... or a subscription or client was dropped while it ran
    ├── PermissionDenied             the role of this program lacks a privilege, or the program has no role
    ├── StatementBounds              UP TO lies before AS OF
    ├── SettingsError                the lake cannot be opened as configured
    ├── EnvironmentMissing           a program, library or file is missing on this machine
    ├── UpstreamError                broker, registry, database or files contradict what was read from them before
    │   ├── UpstreamUnavailable      ... or they do not answer: the same call may work later
    │   ├── UpstreamRefused          ... or a database refuses a change that a captured source needs
    │   ├── TransactionIncomplete    ... or a transaction has stayed incomplete for too long
    │   └── ConnectorError           ... or Kafka Connect refused a connector, or one of its tasks failed
    ├── IngestFailed                 Spark failed before a batch began: the same call may work later
    ├── TableStopped                 one table cannot continue; the others of its source do
    │   ├── TableLeftOut             ... because its connector would fail at it
    │   └── TableGone                ... because the captured database has it no more
    ├── SourceBusy                   another process runs the source now
    ├── SubscriberBusy               another process runs the subscription or client now
    ├── SubscriberLapsed             the changes since the subscriber's position cannot be found
    ├── DataRefused                  a hold's tables fail their suites, and the hold requires them to pass
    ├── LeaseLost                    this writer lost its lease; it must not commit
    ├── CommitConflict               another writer changed the table first: read again and retry
    └── ServerError                  a server on this machine (`lakehold.servers.errors`)
        └── StackError               ... of the stack (`lakehold.stack.errors`)

An error has three parts, after Materialize's style guide: a *message* (lowercase, no full stop, no internals), a
*detail* (sentences: what was expected and what was found) and a *hint* (an action). `code` is stable: programs match
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lakehold.printable import printable
from lakehold.secret_names import without_secrets


@dataclass(frozen=True)
class Place:
    """A part of a script.

    Attributes:
        sql: The whole script.
        start: Zero-based offset of the part's first character.
        end_exclusive: Offset after its last character; a part has at least one character.
    """

    sql: str
    start: int
    end_exclusive: int

    @property
    def line(self) -> int:
        """Return the one-based number of the line on which the part begins."""
        return self.sql.count("\n", 0, self.start) + 1

    def excerpt(self) -> str:
        """Return the line of the part, with carets under the part and without secrets."""
        line_start = self.sql.rfind("\n", 0, self.start) + 1
        line_end = self.sql.find("\n", self.start)
        text = without_secrets(self.sql, line_start, line_end if line_end >= 0 else len(self.sql))
        column = self.start - line_start
        end = column + min(self.end_exclusive - self.start, len(text) - column)
        before, part, after = (printable(each) for each in (text[:column], text[column:end], text[end:]))
        return f"{before}{part}{after}\n{' ' * len(before)}{'^' * max(1, len(part))}"


class LakeholdError(Exception):
    """The root of all errors of lakehold.

    Args:
        message: What happened, lowercase, without a full stop.
        code: Stable kebab-case identifier; by default the class's own.
        detail: What was expected and what was found, in sentences.
        hint: What to do about it.

    Attributes:
        place: The part of a script that caused the error, if known.
        notices: Notices of the effects that a script made before the error.
        default_code: The `code` of errors of this class that give none.
        retryable: The same call may work later, without a change by a person.
        ends_process: It may do so in another process only.
    """

    default_code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    ends_process: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str | None = None, detail: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.detail = detail
        self.hint = hint
        self.place: Place | None = None
        self.notices: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = (
            [self.message] if self.place is None else [f"line {self.place.line}: {self.message}", self.place.excerpt()]
        )
        if self.detail:
            lines.append(f"detail: {self.detail}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        lines += [f"notice: {text}" for text in self.notices]
        return "\n".join(lines)


def bad_byte(error: UnicodeDecodeError) -> str:
    """Describe, as a detail, the first byte that keeps a text from being UTF-8."""
    return f"Byte {error.start}, counted from 0, is 0x{error.object[error.start]:02X}: {error.reason}."


class StatementError(LakeholdError):
    """The text of a statement is wrong.

    Args:
        message: What was expected and found.
        sql: The whole script.
        start: Zero-based offset of the first offending character in `sql`.
        end_exclusive: Offset after the last offending character.
    """

    default_code = "syntax"

    def __init__(  # noqa: PLR0913 - the position belongs to the error, not to its text
        self,
        message: str,
        *,
        sql: str,
        start: int,
        end_exclusive: int,
        code: str | None = None,
        detail: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, code=code, detail=detail, hint=hint)
        start = max(0, min(start, len(sql)))
        self.place: Place = Place(sql, start, max(start + 1, end_exclusive))


class DefinitionError(LakeholdError):
    """A definition is missing, exists already, is still needed, or contradicts another."""

    default_code = "definition"


class NotReadable(DefinitionError):
    """A table cannot be read at a time: before `since`, at or above `upper`, or its snapshot has been expired."""

    default_code = "not-readable"


class SubscriberMissing(DefinitionError):
    """A subscription, view or durable client was dropped while it ran: its process must not write any more."""

    default_code = "subscriber-missing"


class PermissionDenied(LakeholdError):
    """The role of this program lacks a privilege, or roles exist and it has none."""

    default_code = "permission-denied"


class StatementBounds(LakeholdError):
    """UP TO lies before AS OF."""

    default_code = "bounds"


class SettingsError(LakeholdError):
    """The lake cannot be opened as configured."""

    default_code = "settings"


class EnvironmentMissing(LakeholdError):
    """A program, library or file is not on this machine."""

    default_code = "environment"


class UpstreamError(LakeholdError):
    """Broker, registry, database or files contradict what was read from them before, or what the lake has of them."""

    default_code = "upstream"


class UpstreamUnavailable(UpstreamError):
    """Broker, registry, database, Kafka Connect, Spark Connect or files do not answer; the same call may work later."""

    default_code = "upstream-unavailable"
    retryable = True


class SparkEnded(UpstreamUnavailable):
    """The Spark of this process has ended: the same call may work in another process, but never again in this one."""

    default_code = "spark-ended"
    ends_process = True


class UpstreamRefused(UpstreamError):
    """A database refuses a change that a captured source needs; what it sent before can still be read."""

    default_code = "database-refused"


class ConnectorError(UpstreamError):
    """Kafka Connect refused a connector, or one of its tasks failed."""

    default_code = "connector"


class TransactionIncomplete(UpstreamError):
    """A transaction has stayed incomplete for longer than `transaction_timeout_ms`.

    The same call works once the rest has arrived.
    """

    default_code = "transaction-incomplete"
    retryable = True


class IngestFailed(LakeholdError):
    """Spark failed while the input of a batch was determined; the same call may work later."""

    default_code = "ingest-failed"
    retryable = True


class TableStopped(LakeholdError):
    """One table cannot take its changes; the other tables of its source continue.

    Args:
        table: Full name of the table.
    """

    default_code = "table-stopped"

    def __init__(self, message: str, *, table: str, code: str | None = None, detail: str = "", hint: str = "") -> None:
        super().__init__(message, code=code, detail=detail, hint=hint)
        self.table = table


class TableLeftOut(TableStopped):
    """The connector leaves a captured table out, because it would fail at it: the table's topic lacks changes."""

    default_code = "table-left-out"


class TableGone(TableStopped):
    """The captured database does not have the table any more, or not yet the snapshot of a new one of its name."""

    default_code = "table-gone"


class TableUnpublished(TableGone):
    """The publication does not list a captured table, and the source's user may not put the table into it."""

    default_code = "table-unpublished"


class SourceBusy(LakeholdError):
    """Another process holds the lease of the source, or of its upstream objects."""

    default_code = "source-busy"
    retryable = True


class SubscriberBusy(LakeholdError):
    """Another process runs the subscription or the durable client."""

    default_code = "subscriber-busy"
    retryable = True


class SubscriberLapsed(LakeholdError):
    """The changes since a subscriber's position cannot be found: its hold was moved or dropped, or columns are gone."""

    default_code = "subscriber-lapsed"


class DataRefused(LakeholdError):
    """A hold's tables fail their suites, and the hold requires them to pass."""

    default_code = "data-refused"


class LeaseLost(LakeholdError):
    """This writer's lease ran out, and another process took the source over."""

    default_code = "lease-lost"
    retryable = True


class CommitConflict(LakeholdError):
    """Another writer committed between this writer's read and commit; nothing was written."""

    default_code = "commit-conflict"
    retryable = True
