"""A script of changes to tables of a live database: after each step, under load, the lake equals the database or says why not.

A script is a text of blocks, separated by blank lines. Its first line names a table and what the step does. Then follow
statements of the database, a line `----`, and the outcome:

    -- orders: a column gets another type
    ALTER TABLE orders ALTER n TYPE text;
    ----
    stopped: type-changed
    lake: ALTER TABLE shop.orders RENAME COLUMN n TO n_before;
    database: UPDATE orders SET id = id;
    equal

`stopped` has the code of the error, and is followed by what its hint says to do, in the lake or in the database. A line
`without: note` before `equal` names columns of the table that may differ, because the hint says that they do.

Steps of different tables run side by side: the first step of each table, then the second one of each. A table's first block
creates it, with a column `id`, a column `touched int`, and rows with ids from 1 to 99, which only the script changes.
"""

from __future__ import annotations

import itertools
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

from lakehold.errors import LakeholdError, TableGone
from lakehold.lake import Lake
from lakehold.status import status_of
from lakehold.verify.comparison import Comparison
from tests.golden_cases import cases
from tests.waiting import wait_for

_FIRST_KEY = 1_000
_KEYS = 200
_PAUSE_S = 0.2
"""The pause after a change of each table."""
_WITHIN_S = 180.0

Run = Callable[[Sequence[str]], int]
"""Runs statements one by one, on one connection without a transaction of its own; raises if one fails.

It returns how many rows they changed.
"""


@dataclass(frozen=True)
class Step:
    """One step of a script."""

    table: str
    title: str
    statements: tuple[str, ...]
    code: str | None = None
    way_out: tuple[tuple[str, str], ...] = ()
    may_differ: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.table}: {self.title}"


def steps_of(text: str) -> list[Step]:
    """Read a script."""
    return [_step(given, outcome) for given, outcome in cases(text)]


def _step(given: str, outcome: str) -> Step:
    head, _, statements = given.partition("\n")
    match = re.fullmatch(r"-- (\w+): (.+)", head)
    assert match is not None, f"a step begins with `-- table: title`, not {head!r}"
    *lines, last = outcome.splitlines()
    assert last == "equal", f"{match[2]}: a step ends with `equal`, not {last!r}"
    found = [line.partition(": ")[::2] for line in lines]
    assert {word for word, _ in found} <= {"stopped", "lake", "database", "without"}, outcome
    code = next((rest for word, rest in found if word == "stopped"), None)
    way_out = tuple((word, rest.removesuffix(";")) for word, rest in found if word in {"lake", "database"})
    without = frozenset(name for word, rest in found if word == "without" for name in rest.split(", "))
    return Step(
        match[1], match[2], tuple(re.split(r";\n", statements.strip().removesuffix(";"))), code, way_out, without
    )


def rounds(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield steps that run side by side: the next one of each table."""
    by_table: dict[str, list[Step]] = defaultdict(list)
    for step in steps:
        by_table[step.table].append(step)
    for row in itertools.zip_longest(*by_table.values()):
        yield [step for step in row if step is not None]


def first_rounds(steps: Sequence[Step], count: int) -> list[Step]:
    """Return the steps of the first rounds."""
    return [step for row in itertools.islice(rounds(steps), count) for step in row]


@dataclass
class Load:
    """A client that inserts, updates and deletes rows of tables, and changes their keys, while statements alter the tables.

    Args:
        run: Runs statements, on a connection of its own that stays open.
        error: The error of a statement that the database refuses, as while a table has no such column.
    """

    run: Run
    error: type[Exception]
    tables: list[str] = field(default_factory=list)
    changed: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Change rows until the context ends."""
        closed = Event()
        thread = Thread(target=self._change, args=(closed,))
        thread.start()
        try:
            yield
        finally:
            closed.set()
            thread.join()

    def wait_for_changes(self, tables: Sequence[str]) -> None:
        """Wait until rows of every table have changed since this call."""
        before = Counter(self.changed)
        wait_for(lambda: all(self.changed[table] >= before[table] + 2 for table in tables), "all tables change")

    def _change(self, closed: Event) -> None:
        chosen = random.Random(7)
        while not closed.wait(_PAUSE_S):
            for table in [*self.tables]:
                key, other = (chosen.randrange(_KEYS) + _FIRST_KEY for _ in range(2))
                change = chosen.choice(
                    (
                        f"INSERT INTO {table} (id, touched) VALUES ({key}, 0)",
                        f"INSERT INTO {table} (id, touched) VALUES ({key}, 0)",
                        f"UPDATE {table} SET touched = touched + 1 WHERE id BETWEEN {key} AND {key + 5}",
                        f"UPDATE {table} SET id = {other} WHERE id = {key}",
                        f"DELETE FROM {table} WHERE id = {key}",
                    )
                )
                try:
                    self.changed[table] += self.run([change])
                except self.error:
                    continue


@dataclass(frozen=True)
class DdlScript:
    """A script, the database that it changes, and the lake that follows.

    Args:
        lake: A lake with the source `shop`.
        run: Runs statements in the database.
        load: The client that changes rows meanwhile.
        creating: Returns the statement that creates a table of the lake.
    """

    lake: Lake
    run: Run
    load: Load
    creating: Callable[[str], str]

    def run_steps(self, steps: Sequence[Step]) -> list[str]:
        """Run all steps, and return a line for each one whose outcome is another one."""
        wrong: list[str] = []
        for number, row in enumerate(rounds(steps)):
            began = time.monotonic()
            if number == 0:
                self._capture(row)
            else:
                with self.load.running():
                    for step in row:
                        self.run(step.statements)
                    self.load.wait_for_changes([step.table for step in row if step.code != TableGone.default_code])
                    self.lake.ingest("shop")
            found = self._outcomes(row)
            wrong += found
            print(f"{time.monotonic() - began:.1f} s: {'; '.join(map(str, row))}", *found, sep="\n  ")
        return wrong

    def _capture(self, row: Sequence[Step]) -> None:
        """Create the tables and capture them."""
        for step in row:
            self.run(step.statements)
        tables = [step.table for step in row]
        self.lake.sql("; ".join(["BEGIN", *map(self.creating, tables), "COMMIT"]))
        self.load.tables.extend(tables)

    def _outcomes(self, row: Sequence[Step]) -> list[str]:
        found = self._follow(row)
        wrong = [
            f"{step}: stopped by {code or 'nothing'}, not by {step.code or 'nothing'}"
            for step in row
            if (code := found.get(step.table)) != step.code
        ]
        stopped = [step for step in row if step.code is not None and step.table in found]
        for step in stopped:
            for where, statement in step.way_out:
                if where == "lake":
                    self.lake.sql(statement)
                else:
                    self.run([statement])
        if stopped:
            with self.load.running():
                self.load.wait_for_changes([step.table for step in stopped])
            still = self._follow([], continuing={step.table for step in stopped})
            wrong += [f"{step}: stopped by {still[step.table]} again" for step in stopped if step.table in still]
        return [*wrong, *filter(None, map(self._difference, row))]

    def _follow(self, row: Sequence[Step], continuing: Set[str] = frozenset()) -> dict[str, str]:
        """Ingest until nothing is missing, every table stopped that should, and none of those that should continue.

        Returns:
            The codes of stopped tables.
        """
        wanted = {step.table for step in row if step.code is not None}
        stopped: dict[str, str] = {}

        def is_quiet() -> bool:
            stopped.clear()
            self.lake.ingest("shop")
            status = status_of(self.lake)
            rows = [dict(zip(status.columns, each, strict=True)) for each in status.rows]
            for each in rows:
                if each["stopped_by"]:
                    stopped[str(each["table"]).partition(".")[2]] = str(each["stopped_by"]).partition(":")[0]
            catching_up = [each["table"] for each in rows if each["state"] not in {"live", "stopped"}]
            # Columns that Debezium does not send are reported for ever, and a stopped table's snapshot until the table continues.
            known = (" is left out", *(f".{table} " for table in stopped))
            notices = [notice for notice in status.notices if not any(each in notice for each in known)]
            is_as_wanted = wanted <= stopped.keys() and stopped.keys().isdisjoint(continuing)
            return not notices and not catching_up and is_as_wanted

        try:
            wait_for(is_quiet, "nothing is missing", within_s=_WITHIN_S)
        except AssertionError as late:
            print(late, status_of(self.lake))
        return stopped

    def _difference(self, step: Step) -> str | None:
        """Compare a table, and describe its difference, if it has one that it may not have."""
        try:
            found = self.lake.verify(f"shop.{step.table}")
        except LakeholdError as error:
            return f"{step}: cannot be verified: {error.code}: {error.message} {error.detail}"
        different = [each for each in found.differences if not each.columns or not {*each.columns} <= step.may_differ]
        return f"{step}: {_shown(found)}" if different else None


def _shown(found: Comparison) -> str:
    kinds = Counter((each.side.value, each.columns) for each in found.differences)
    keys = {each.key for each in found.differences}
    return f"{found.different} of {found.rows_in_database} keys differ: {dict(kinds)}, such as {sorted(keys)[:4]}"
