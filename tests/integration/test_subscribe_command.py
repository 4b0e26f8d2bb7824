"""`lakehold subscribe` as people and scripts run it: it writes rows to a pipe until it is stopped or its reader leaves."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from lakehold.lake import Lake
from lakehold.session import SHORT_RUN_OPTIONS
from lakehold.times import now_ms
from tests import recorded_files
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

COMMAND = str(Path(sys.executable).with_name("lakehold"))
ENDS_WITHIN_S = 60
MANY = 20_000
"""More rows than a pipe holds."""


def environment(lake: Lake) -> dict[str, str]:
    settings = {
        "WAREHOUSE": lake.settings.warehouse,
        "CATALOG_NAME": lake.settings.catalog_name,
        "FOREIGN_LAG_MS": "50",
        "SPARK_DRIVER_MEMORY": "1g",
        "SPARK_CONF": json.dumps({"spark.driver.extraJavaOptions": SHORT_RUN_OPTIONS}),
    }
    return {**os.environ, "COLUMNS": "80", **{f"LAKEHOLD_{name}": value for name, value in settings.items()}}


def run(lake: Lake, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `lakehold subscribe` to its end."""
    return subprocess.run(
        [COMMAND, "subscribe", *arguments],
        env=environment(lake),
        cwd=lake.settings.warehouse.removeprefix("file://"),
        capture_output=True,
        text=True,
        check=False,
        timeout=ENDS_WITHIN_S,
    )


class Following:
    """A `lakehold subscribe --follow` process and the output read so far."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.text = b""

    def lines(self, count: int) -> list[str]:
        """Wait for `count` lines; return all lines so far."""
        wait_for(lambda: self._read() >= count, within_s=ENDS_WITHIN_S)
        return self.text.decode().splitlines()

    def _read(self) -> int:
        assert self.process.stdout is not None
        while select.select([self.process.stdout], [], [], 0)[0]:
            arrived = os.read(self.process.stdout.fileno(), 65_536)
            if not arrived:
                break
            self.text += arrived
        return self.text.count(b"\n")

    def stopped(self, sent: signal.Signals) -> tuple[int, list[str], str]:
        """Send a signal and wait for the end; return the exit code, all lines, and stderr."""
        self.process.send_signal(sent)
        rest, errors = self.process.communicate(timeout=ENDS_WITHIN_S)
        return self.process.returncode, (self.text + rest).decode().splitlines(), errors.decode()


@contextmanager
def following(lake: Lake, *arguments: str) -> Iterator[Following]:
    process = subprocess.Popen(
        [COMMAND, "subscribe", *arguments, "--follow"],
        env=environment(lake),
        cwd=lake.settings.warehouse.removeprefix("file://"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield Following(process)
    finally:
        process.kill()
        process.communicate()


class Feed:
    """A source of one recorded topic, which feeds the table `s.t`."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake, self.file, self.offset = lake, directory / "t.jsonl", 0
        lake.sql(f"""
            CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON;
            CREATE TABLE s.t (id BIGINT, v STRING) FROM SOURCE feed (TOPIC 't') ENVELOPE UPSERT
        """)

    def ingest(self, *rows: tuple[int, str | None]) -> int:
        """Ingest rows as one batch; return its timestamp."""
        for id_, v in rows:
            key, value = ({"id": id_}, None if v is None else {"id": id_, "v": v})
            written = None if value is None else json.dumps(value).encode()
            recorded_files.append(
                self.file, [recorded_files.line("t", 0, self.offset, written, json.dumps(key).encode())]
            )
            self.offset += 1
        (report,) = self.lake.ingest("feed")
        return report.timestamp_ms


@pytest.fixture
def feed(lake: Lake, tmp_path: Path) -> Feed:
    return Feed(lake, tmp_path / "topics")


def row(mz_timestamp: int, diff: int, id_: int, v: str) -> dict[str, Any]:
    return {"mz_timestamp": mz_timestamp, "mz_diff": diff, "id": id_, "v": v}


def test_rows_are_written_in_each_format(feed: Feed) -> None:
    """Subscribe by a table's name: rows go to stdout in each format, and nothing else does."""
    first = feed.ingest((1, "a"), (2, "b, c"))
    second = feed.ingest((1, None))
    as_json = run(feed.lake, f"s.t AS OF {first}", "--format", "json")
    assert (as_json.returncode, as_json.stderr) == (0, "")
    assert [json.loads(line) for line in as_json.stdout.splitlines()] == [
        row(first, 1, 1, "a"),
        row(first, 1, 2, "b, c"),
        row(second, -1, 1, "a"),
    ]
    assert run(feed.lake, f"SUBSCRIBE s.t AS OF {first}").stdout == as_json.stdout
    as_csv = run(feed.lake, f"SUBSCRIBE TO s.t AS OF {first}", "--format", "csv")
    assert as_csv.stdout.splitlines() == [
        "mz_timestamp,mz_diff,id,v",
        f"{first},1,1,a",
        f'{first},1,2,"b, c"',
        f"{second},-1,1,a",
    ]
    as_table = run(feed.lake, f"s.t ENVELOPE UPSERT (KEY (id)) AS OF {first}", "--format", "table")
    cells = [[cell.strip() for cell in re.split("[│┃]", line)] for line in as_table.stdout.splitlines()]
    assert cells[0] == ["mz_timestamp", "mz_state", "id", "v"]
    assert [line for line in cells if line[0].isdecimal()] == [
        [str(first), "upsert", "1", "a"],
        [str(first), "upsert", "2", "b, c"],
        [str(second), "delete", "1", "null"],
    ]


def test_notices_are_not_written_to_stdout(feed: Feed) -> None:
    first = feed.ingest((1, "a"))
    ended = run(feed.lake, f"s.t AS OF {first} UP TO {first}")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "there is nothing between them" in ended.stderr


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_rows_appear_while_another_process_ingests_until_a_signal_ends_the_command(
    feed: Feed, sent: signal.Signals
) -> None:
    first = feed.ingest((1, "a"))
    with following(feed.lake, "s.t", "--format", "json") as follower:
        assert [json.loads(line) for line in follower.lines(1)] == [row(first, 1, 1, "a")]
        second = feed.ingest((1, "b"))
        expected = [row(first, 1, 1, "a"), row(second, -1, 1, "a"), row(second, 1, 1, "b")]
        assert [json.loads(line) for line in follower.lines(3)] == expected
        third = feed.ingest(*((n, "many") for n in range(2, 500)))
        follower.lines(3 + 498)
        code, lines, errors = follower.stopped(sent)
    assert (code, errors) == (0, "")
    assert [json.loads(line) for line in lines] == [*expected, *(row(third, 1, n, "many") for n in range(2, 500))]


def test_a_followed_csv_has_one_header(feed: Feed) -> None:
    first = feed.ingest((1, "a"))
    with following(feed.lake, "s.t", "--format", "csv") as follower:
        follower.lines(2)
        second = feed.ingest((2, "b"))
        assert follower.lines(3) == ["mz_timestamp,mz_diff,id,v", f"{first},1,1,a", f"{second},1,2,b"]


def test_up_to_ends_following(lake: Lake) -> None:
    lake.sql("CREATE NAMESPACE s; CREATE TABLE s.t (id INT) USING iceberg; INSERT INTO s.t VALUES (1)")
    (version,) = lake.catalog.load_table("s.t").metadata.snapshot_log
    ended = run(lake, f"s.t AS OF {version.timestamp_ms} UP TO {now_ms() + 3_000}", "--follow", "--format", "csv")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [line.split(",")[1:] for line in ended.stdout.splitlines()] == [["mz_diff", "id"], ["1", "1"]]


def test_a_reader_that_leaves_ends_the_command_quietly(feed: Feed) -> None:
    first = feed.ingest(*((n, "x" * 50) for n in range(MANY)))
    for follow in ("", "--follow"):
        piped = subprocess.run(
            ["bash", "-c", f'set -o pipefail; "{COMMAND}" subscribe s.t {follow} --format json | head -1'],
            env=environment(feed.lake),
            capture_output=True,
            text=True,
            check=False,
            timeout=ENDS_WITHIN_S,
        )
        assert json.loads(piped.stdout) == row(first, 1, 0, "x" * 50)
        assert (piped.returncode, piped.stderr) == (0, "")


WRONG = [
    ("SUBSCRIBE s.t WITH (SNAPSHOTS)", "syntax", "^^^^^^^^^"),
    ("s.nothing", "table-missing", 'table "s.nothing" does not exist'),
    ("s.t AS OF 5", "not-readable", "hint: Choose a time from"),
    ("s.t ENVELOPE UPSERT (KEY (nothing))", "column-missing", "detail: Columns: id, v."),
    ("s.t AS OF {first} UP TO 7", "bounds", "is before AS OF"),
]
"""A statement, the code of its error, and a part of the error's text."""


def test_an_error_says_what_to_do_and_is_not_written_to_stdout(feed: Feed) -> None:
    first = feed.ingest((1, "a"))
    for (text, code, part), arguments in zip(WRONG, cycle([[], ["--follow"]]), strict=False):
        failed = run(feed.lake, text.format(first=first), *arguments)
        assert (failed.returncode, failed.stdout) == (1, "")
        assert failed.stderr.startswith("error: ")
        assert part in failed.stderr
        assert f"code: {code}\n" in failed.stderr
        assert "Traceback" not in failed.stderr
