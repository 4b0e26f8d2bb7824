"""Settings of MySQL and MariaDB with which their log has changes that Debezium does not send. Pure.

Nothing shows later what was lost: a declaration is refused, and a hint names the setting of a source that is captured already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakehold.errors import UpstreamError
from lakehold.object_names import object_text
from lakehold.upstream.found.found import Found
from lakehold.upstream.wanted.wanted import Wanted

ROW_IMAGE = "binlog_row_image"
WHOLE_ROWS = "FULL"
"""The value of `binlog_row_image` with which events have all columns of the row, before and after a change."""


@dataclass(frozen=True)
class _Setting:
    """A setting that loses changes.

    Attributes:
        name: Its name.
        values: The values that lose changes; the server may list one among others.
        good: The value that loses none, in SQL.
        effect: What happens to changes, a sentence.
    """

    name: str
    values: frozenset[str]
    good: str
    effect: str


_LOSE_CHANGES = (
    _Setting(
        "binlog_format",
        frozenset({"MIXED", "STATEMENT"}),
        "ROW",
        "Changes that the server logs as statements do not arrive.",
    ),
    _Setting("log_bin_compress", frozenset({"ON"}), "OFF", "Debezium skips MariaDB's compressed changes."),
    _Setting(
        "binlog_row_value_options",
        frozenset({"PARTIAL_JSON"}),
        "''",
        "Debezium has no handler for an UPDATE that MySQL logs as parts of a JSON value, so it skips the UPDATE (not tested: "
        "lakehold's tests have no MySQL).",
    ),
    _Setting(
        "binlog_transaction_compression",
        frozenset({"ON"}),
        "OFF",
        "All changes of a transaction that MySQL compresses have one position, so lakehold may take the second change of a row "
        "for a repetition (not tested: lakehold's tests have no MySQL).",
    ),
)
LOSE_CHANGES = tuple(setting.name for setting in _LOSE_CHANGES)
"""The names of the settings; a server need not have each."""


def row_image(found: Found) -> str:
    """Return how much of a changed row the database logs."""
    return found.log_settings.get(ROW_IMAGE, WHOLE_ROWS)


def refuse_lossy_log(wanted: Wanted, found: Found) -> None:
    """Refuse tables of this statement while a setting of the database loses changes."""
    for setting in _lossy(found) if wanted.declared else ():
        raise UpstreamError(
            f'the database of source "{wanted.source}" logs changes that would be lost',
            code="log-lossy",
            detail=f"Its setting {setting.name} is {found.log_settings[setting.name]}. {setting.effect}",
            hint=f"{_way_out(setting)}.",
        )


def lossy_log_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each setting with which changes of captured tables are lost."""
    for setting in _lossy(found):
        yield (
            f"changes are lost while the database's setting {setting.name} is {found.log_settings[setting.name]}. "
            f"{setting.effect} {_way_out(setting)}; then ALTER SOURCE {object_text(wanted.source)} RESNAPSHOT"
        )


def _lossy(found: Found) -> Iterator[_Setting]:
    for setting in _LOSE_CHANGES:
        if setting.values & {*found.log_settings.get(setting.name, "").upper().split(",")}:
            yield setting


def _way_out(setting: _Setting) -> str:
    return (
        f"SET GLOBAL {setting.name} = {setting.good}, and in the server's configuration; sessions that are open may keep "
        "their own value, so let applications connect again"
    )
