"""Output of commands: data on stdout, everything else on stderr, and values without loss."""

from __future__ import annotations

import io
import json
import logging
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.sql import Row

from lakehold.cli.command_output import OutputFormat, open_output
from lakehold.cli.progress import RichProgress, open_progress
from lakehold.errors import DefinitionError, PermissionDenied, Place, StatementError
from lakehold.progress import LogProgress, NoProgress
from lakehold.sql.result import Result


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


RESULT = Result(("id", "name"), [(1, "Ada"), (2, None), (3, "")], ("one notice",))


def written(wanted: OutputFormat | None, result: Result, stdout: io.StringIO | None = None) -> tuple[str, str]:
    out, err = stdout or io.StringIO(), io.StringIO()
    open_output(wanted, out, err).result(result)
    return out.getvalue(), err.getvalue()


def test_programs_get_json_lines_and_notices_apart() -> None:
    out, err = written(None, RESULT)
    assert [json.loads(line) for line in out.splitlines()] == [
        {"id": 1, "name": "Ada"},
        {"id": 2, "name": None},
        {"id": 3, "name": ""},
    ]
    assert err == "notice: one notice\n"


def test_people_get_a_table() -> None:
    out, _ = written(None, RESULT, Terminal())
    assert "Ada" in out
    assert "null" in out


def test_characters_that_mislead_a_terminal_are_shown_by_their_codes() -> None:
    odd = "a\x1b[31m\u202eb\u200bc\x85\tname\nof 👩\u200d💻"
    shown = ["a\\u001b[31m\\u202eb\\u200bc\\u0085", "name", "of 👩\u200d💻"]
    out, err = written(OutputFormat.TABLE, Result((odd,), [(odd,)], (odd,)))
    assert all(out.count(each) == 2 and each in err for each in shown)
    for wanted in (OutputFormat.JSON, OutputFormat.CSV):
        out, _ = written(wanted, Result(("a",), [("\u202e",)]))
        assert "\u202e" in out
    err_stream = io.StringIO()
    error = StatementError(
        f'"{odd}" is unknown', sql=f"SELECT '{odd}'", start=7, end_exclusive=14, detail=odd, hint=odd
    )
    open_output(None, io.StringIO(), err_stream).error(error)
    lines = err_stream.getvalue().splitlines()
    assert lines[:3] == [
        'error: line 1: "a\\u001b[31m\\u202eb\\u200bc\\u0085\tname',
        'of 👩\u200d💻" is unknown',
        "  SELECT 'a\\u001b[31m\\u202eb\\u200bc\\u0085\tname",
    ]
    assert lines[3] == "         " + "^" * len("'a\\u001b[31m")


STATUS = Result(
    ("table", "state", "since", "rows", "stopped_by"),
    [
        ("shop.orders", "live", "2026-11-23T09:01:02.123Z", 12, None),
        (
            "shop.items",
            "stopped",
            "2026-11-23T09:01:02.123Z",
            3,
            'key-changed: the key of the messages for table "shop.items" changed',
        ),
    ],
)
FOLDED = """\
 table       ┃ state   ┃ since                    ┃ rows ┃ stopped_by
━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━╇━━━━━━━━━━━━━━
 shop.orders │ live    │ 2026-11-23T09:01:02.123Z │   12 │ null
 shop.items  │ stopped │ 2026-11-23T09:01:02.123Z │    3 │ key-changed:
             │         │                          │      │ the key of
             │         │                          │      │ the messages
             │         │                          │      │ for table
             │         │                          │      │ "shop.items"
             │         │                          │      │ changed
"""
BLOCKS = """\
table       shop.orders
state       live
since       2026-11-23T09:01:02.123Z
rows        12
stopped_by  null

table       shop.items
state       stopped
since       2026-11-23T09:01:02.123Z
rows        3
stopped_by  key-changed: the key of the messages for table "shop.items"
            changed
"""


@pytest.mark.parametrize(("columns", "wanted"), [(72, FOLDED), (71, BLOCKS)])
def test_words_of_a_table_stay_whole(monkeypatch: pytest.MonkeyPatch, columns: int, wanted: str) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out, _ = written(OutputFormat.TABLE, STATUS)
    assert "".join(f"{line.rstrip()}\n" for line in out.splitlines()) == wanted


def test_one_column_and_no_rows_are_tables_at_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    for result in (Result(("step",), [("a-word-of-more-than-twelve",)]), Result(("one", "another", "a_third"), [])):
        assert "━" in written(OutputFormat.TABLE, result)[0]
    assert "".join(written(OutputFormat.TABLE, Result(("v",), [("a" * 30,)]))[0].split()).count("a") == 30


def test_csv_distinguishes_null_from_empty_and_quotes_where_needed() -> None:
    out, _ = written(OutputFormat.CSV, Result(("a", "b,c"), [(None, ""), ('say "x"', "two\nlines"), (True, 1.5)]))
    assert out == 'a,"b,c"\n,""\n"say ""x""","two\nlines"\ntrue,1.5\n'


def test_a_statement_without_rows_writes_nothing() -> None:
    for wanted in OutputFormat:
        assert written(wanted, Result()) == ("", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**63 - 1, "9223372036854775807"),
        (Decimal("1E+3"), '"1000"'),
        (Decimal("12345678901234567890.123456789012345678"), '"12345678901234567890.123456789012345678"'),
        (float("nan"), '"nan"'),
        (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), '"2026-01-02T03:04:05.000006+00:00"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (timedelta(days=-1, seconds=1), '"-P0DT86399S"'),
        (timedelta(seconds=1, microseconds=500), '"P0DT1.0005S"'),
        (bytearray(b"\x00\xff"), '"AP8="'),
        (Row(a=1, b=[Row(c=Decimal("0.10"))]), '{"a": 1, "b": [{"c": "0.10"}]}'),
        ({1: b"x"}, '{"1": "eA=="}'),
        ("zürich", '"zürich"'),
    ],
)
def test_json_keeps_values_exactly(value: object, text: str) -> None:
    assert written(OutputFormat.JSON, Result(("v",), [(value,)]))[0] == f'{{"v": {text}}}\n'


def test_a_repeated_column_name_is_written_twice() -> None:
    assert written(OutputFormat.JSON, Result(("a", "a"), [(1, 2)]))[0] == '{"a": 1, "a": 2}\n'


def test_errors_are_written_to_stderr_with_all_their_parts() -> None:
    out, err = io.StringIO(), io.StringIO()
    output = open_output(None, out, err)
    output.error(DefinitionError('source "a" is still used', code="source-in-use", detail="Used by b.", hint="Drop b."))
    output.error(StatementError("expected FROM, found FORM", sql="SELECT\nFORM x", start=7, end_exclusive=11))
    refused = PermissionDenied('role "bi" may not drop it', hint="Ask.")
    refused.place = Place("SHOW HOLDS;\n DROP HOLD\n h", 13, 25)
    output.error(refused)
    assert out.getvalue() == ""
    assert err.getvalue() == (
        'error: source "a" is still used\ndetail: Used by b.\nhint: Drop b.\ncode: source-in-use\n'
        "error: line 2: expected FROM, found FORM\n  FORM x\n  ^^^^\ncode: syntax\n"
        'error: line 2: role "bi" may not drop it\n   DROP HOLD\n   ^^^^^^^^^\nhint: Ask.\ncode: permission-denied\n'
    )


def test_progress_suits_where_it_is_shown() -> None:
    assert isinstance(open_progress(Terminal()), RichProgress)
    assert isinstance(open_progress(io.StringIO()), LogProgress)
    assert isinstance(open_progress(Terminal(), quiet=True), NoProgress)


def test_log_lines_report_progress(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lakehold.progress")
    with open_progress(io.StringIO()).task("reading shop", unit="records", total=10) as task:
        task.advance(4)
        task.advance(6, "partition 1")
    assert caplog.messages == ["reading shop: 10 of 10 records (partition 1)"]


def test_a_total_may_be_known_later(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lakehold.progress")
    with open_progress(io.StringIO()).task("reading shop", unit="records") as task:
        task.advance(4)
        task.expect(12)
    assert caplog.messages == ["reading shop: 4 of 12 records"]


def test_bars_appear_and_disappear() -> None:
    screen = Terminal()
    with open_progress(screen).task("reading [shop]", unit="records") as task:
        task.expect(1_500)
        task.advance(1_200, "done")
    assert "reading [shop]" in screen.getvalue()
    assert "1,200 of 1,500 records done" in " ".join(screen.getvalue().split())
