"""What the diffs add up to is what the tables were: random histories of two tables, read back from random times on.

A history is a list of statements by Spark; the model is `SELECT … VERSION AS OF` of every version it made, put into the current
columns by field id. `REPLAY_EXAMPLES` in the environment sets how many histories are tried.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st

from lakehold.errors import NotReadable
from lakehold.lake import Lake
from tests.conftest import LakeFactory

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

EXAMPLES = int(os.environ.get("REPLAY_EXAMPLES", "3"))
READ_HERE = 200_000
LAG_MS = 20

Row = tuple[Any, ...]
Bag = Counter[Row]

FORMATS = st.sampled_from(
    [
        (1, "copy-on-write"),
        (2, "copy-on-write"),
        (2, "merge-on-read"),
        (3, "copy-on-write"),
        (3, "merge-on-read"),
    ]
)
KEYS = st.integers(0, 4)
NUMBERS = st.none() | st.integers(0, 3)
ROWS = st.lists(st.tuples(KEYS, NUMBERS), min_size=1, max_size=5)
PLACES = st.integers(0, 50)
"""One of several: of versions, of columns; counted modulo how many there are."""

ROW_CHANGES = st.one_of(
    st.tuples(st.just("insert"), ROWS),
    st.tuples(st.just("merge"), ROWS),
    st.tuples(st.just("update"), st.tuples(KEYS, NUMBERS)),
    st.tuples(st.just("delete"), KEYS),
)
OTHER_CHANGES = st.one_of(
    st.tuples(st.just("overwrite"), ROWS),
    st.tuples(
        st.just("rewrite"),
        st.sampled_from(["rewrite_data_files", "rewrite_manifests", "rewrite_position_delete_files"]),
    ),
    st.tuples(st.just("set back"), PLACES),
    st.tuples(st.just("expire"), PLACES),
    st.tuples(st.just("add column"), st.sampled_from(["INT", "STRING", "FLOAT"])),
    st.tuples(st.just("rename column"), PLACES),
    st.tuples(st.just("drop column"), PLACES),
    st.tuples(st.just("widen column"), PLACES),
    st.tuples(st.just("partition by"), st.sampled_from(["bucket(2, {key})", "{key}", "truncate(2, {key})"])),
)
Change = tuple[str, Any]


def histories(*tables: str) -> st.SearchStrategy[list[tuple[str, Change]]]:
    """What happens to the tables, in order; it ends with a change of rows."""
    names = st.sampled_from(tables)
    middle = st.lists(st.tuples(names, st.one_of(ROW_CHANGES, ROW_CHANGES, OTHER_CHANGES)), min_size=9, max_size=14)
    return st.tuples(middle, st.tuples(names, ROW_CHANGES)).map(lambda parts: [*parts[0], parts[1]])


LEFT_AND_EXPIRED: list[tuple[str, Change]] = [
    ("s.t", ("insert", [(3, 3)])),
    ("s.t", ("insert", [(4, 0)])),
    ("s.t", ("set back", 0)),
    ("s.t", ("set back", 2)),
    ("s.t", ("expire", 0)),
    ("s.t", ("insert", [(1, 2)])),
]
"""Iceberg forgets what was current before the snapshot that is expired; what remains was not simply one after the other."""

_WIDER = {"INT": "BIGINT", "FLOAT": "DOUBLE"}


@dataclass
class Version:
    """What a table showed from a time on."""

    mz_timestamp: int
    snapshot_id: int


@dataclass
class History:
    """A table that changes.

    Args:
        lake: Where it is.
        name: Its full name.
        unique: Whether rows are inserted only where their key is new.
    """

    lake: Lake
    name: str
    unique: bool
    columns: dict[str, str] = field(default_factory=lambda: {"k": "INT", "v": "INT"})
    versions: list[Version] = field(default_factory=list)
    names_made: int = 0

    def create(self, format_version: int, mode: str) -> None:
        properties = {"format-version": str(format_version)}
        properties |= {f"write.{what}.mode": mode for what in ("delete", "update", "merge")}
        written = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self._run(f"CREATE TABLE {{t}} (k INT, v INT) USING iceberg TBLPROPERTIES ({written})")

    @property
    def key(self) -> str:
        return next(iter(self.columns))

    @property
    def value(self) -> str:
        return list(self.columns)[1]

    def apply(self, change: Change) -> None:
        match change:
            case ("insert", rows) if not self.unique:
                self._run(f"INSERT INTO {{t}} {self._values(rows)}")
            case ("insert" | "merge", rows):
                self._merge(dict(rows))
            case ("update", (key, value)):
                self._run(f"UPDATE {{t}} SET {self.value} = {_literal(value, 'INT')} WHERE {self.key} = {key}")
            case ("delete", key):
                self._run(f"DELETE FROM {{t}} WHERE {self.key} = {key}")
            case ("overwrite", rows):
                self._run(f"INSERT OVERWRITE {{t}} {self._values(dict(rows).items() if self.unique else rows)}")
            case ("rewrite", procedure):
                options = "" if procedure == "rewrite_manifests" else ", options => map('rewrite-all', 'true')"
                self._call(f"{procedure}(table => '{self.name}'{options})")
            case ("set back", place) if self._remaining():
                snapshot_id = _one_of(self._remaining(), place)
                self._call(f"set_current_snapshot('{self.name}', {snapshot_id})")
            case ("expire", place) if len(self._remaining()) > 1:
                others = [id_ for id_ in self._remaining() if id_ != self.versions[-1].snapshot_id]
                self._call(
                    f"expire_snapshots(table => '{self.name}', snapshot_ids => array({_one_of(others, place)}L))"
                )
            case _:
                self._change_schema(change)
        self._note_version()

    def _change_schema(self, change: Change) -> None:
        match change:
            case ("add column", type_):
                self.columns[self._new_name()] = type_
                self._alter(f"ADD COLUMN {list(self.columns)[-1]} {type_}")
            case ("rename column", place):
                old, new = _one_of(list(self.columns), place), self._new_name()
                self.columns = {new if name == old else name: type_ for name, type_ in self.columns.items()}
                self._alter(f"RENAME COLUMN {old} TO {new}")
            case ("drop column", place) if len(self.columns) > 2:
                name = _one_of(list(self.columns)[2:], place)
                del self.columns[name]
                self._alter(f"DROP COLUMN {name}")
            case ("widen column", place) if wide := [n for n in list(self.columns)[1:] if self.columns[n] in _WIDER]:
                name = _one_of(wide, place)
                self.columns[name] = _WIDER[self.columns[name]]
                self._alter(f"ALTER COLUMN {name} TYPE {self.columns[name]}")
            case ("partition by", transform):
                for spec_field in self.lake.catalog.load_table(self.name).spec().fields:
                    self._alter(f"DROP PARTITION FIELD {spec_field.name}")
                self._alter(f"ADD PARTITION FIELD {transform.format(key=self.key)} AS {self._new_name()}")

    def states(self) -> dict[int, Bag]:
        """The rows of every snapshot that remains, by its id."""
        table = self.lake.catalog.load_table(self.name)
        wanted = [f.field_id for f in table.schema().fields]
        found = {}
        for snapshot_id in self._remaining():
            snapshot = table.snapshot_by_id(snapshot_id)
            assert snapshot is not None
            assert snapshot.schema_id is not None
            written = [f.field_id for f in table.schemas()[snapshot.schema_id].fields]
            rows = self._run(f"SELECT * FROM {{t}} VERSION AS OF {snapshot_id}")
            found[snapshot_id] = Counter(
                tuple(row[written.index(id_)] if id_ in written else None for id_ in wanted) for row in rows
            )
        return found

    def _remaining(self) -> list[int]:
        """The snapshots that are not expired, oldest first."""
        known = {snapshot.snapshot_id for snapshot in self.lake.catalog.load_table(self.name).metadata.snapshots}
        return [id_ for id_ in dict.fromkeys(version.snapshot_id for version in self.versions) if id_ in known]

    def _note_version(self) -> None:
        log = self.lake.catalog.load_table(self.name).metadata.snapshot_log
        if not log:
            return
        last = self.versions[-1] if self.versions else Version(0, 0)
        if log[-1].snapshot_id != last.snapshot_id:
            self.versions.append(Version(max(log[-1].timestamp_ms, last.mz_timestamp + 1), log[-1].snapshot_id))

    def _merge(self, rows: Mapping[int, int | None]) -> None:
        source = f"SELECT col1 AS k, col2 AS v FROM {_value_list(rows.items())}"
        self._run(f"""
            MERGE INTO {{t}} AS t USING ({source}) AS s ON t.{self.key} = s.k
            WHEN MATCHED THEN UPDATE SET t.{self.value} = s.v
            WHEN NOT MATCHED THEN INSERT ({self.key}, {self.value}) VALUES (s.k, s.v)
        """)

    def _values(self, rows: Iterable[tuple[int, int | None]]) -> str:
        """Rows for all columns, those behind the first two like the second."""
        types = list(self.columns.values())
        written = (
            ", ".join(_literal(v, t) for v, t in zip((k, *[v] * (len(types) - 1)), types, strict=True)) for k, v in rows
        )
        return f"VALUES {', '.join(f'({row})' for row in written)}"

    def _new_name(self) -> str:
        self.names_made += 1
        return f"c{self.names_made}"

    def _alter(self, what: str) -> None:
        self._run(f"ALTER TABLE {{t}} {what}")

    def _call(self, call: str) -> None:
        self._run(f"CALL {self.lake.settings.catalog_name}.system.{call}")

    def _run(self, text: str) -> list[Row]:
        name = f"{self.lake.settings.catalog_name}.{self.name}"
        return [tuple(row) for row in self.lake.spark.sql(text.replace("{t}", name)).collect()]


def _literal(value: int | None, type_: str) -> str:
    return f"CAST({'NULL' if value is None else value} AS {type_})"


def _value_list(rows: Iterable[tuple[int, int | None]]) -> str:
    return "VALUES " + ", ".join(f"({k}, {_literal(v, 'INT')})" for k, v in rows)


def _one_of(choices: Sequence[Any], place: int) -> Any:
    return choices[place % len(choices)]


@dataclass(frozen=True)
class Past:
    """What the tables were at every time.

    Args:
        histories: The tables by name.
        states: Their snapshots that remain.
    """

    histories: Mapping[str, History]
    states: Mapping[str, Mapping[int, Bag]]

    def snapshot_at(self, name: str, ms: int) -> int:
        return [v.snapshot_id for v in self.histories[name].versions if v.mz_timestamp <= ms][-1]

    def is_known(self, name: str, ms: int) -> bool:
        """Whether the table is readable at a time: it was there, and its snapshot of then remains."""
        versions = self.histories[name].versions
        return versions[0].mz_timestamp <= ms and self.snapshot_at(name, ms) in self.states[name]

    def state(self, name: str, ms: int) -> Bag:
        return self.states[name][self.snapshot_at(name, ms)]

    def times(self, names: Sequence[str]) -> list[int]:
        """The times at which one of the tables came to a snapshot that remains, all of them being there."""
        first = max(self.histories[name].versions[0].mz_timestamp for name in names)
        found = {
            v.mz_timestamp
            for name in names
            for v in self.histories[name].versions
            if v.snapshot_id in self.states[name] and v.mz_timestamp >= first
        }
        return sorted({first, *found})

    def readable(self, names: Sequence[str]) -> list[int]:
        """Those of `times` at which all of the tables are readable."""
        return [ms for ms in self.times(names) if all(self.is_known(name, ms) for name in names)]


def made(lake: Lake, changes: Sequence[tuple[str, Change]], unique: bool, layout: tuple[int, str]) -> Past:
    """The history that `changes` make of the tables they are about."""
    lake.spark.sql(f"CREATE NAMESPACE {lake.settings.catalog_name}.s")
    histories = {name: History(lake, name, unique) for name in sorted({name for name, _ in changes})}
    for name, history in histories.items():
        history.create(*layout)
        history.apply(("insert", [(0, 0), (1, 1), (2, None)]))
        note(f"{name}: {layout}, unique: {unique}")
    for name, change in changes:
        note(f"{name}: {change}")
        histories[name].apply(change)
    return Past(histories, {name: history.states() for name, history in histories.items()})


def bag_of(rows: Iterable[Row]) -> Bag:
    """Raw diffs added up."""
    found: Bag = Counter()
    for row in rows:
        found[row[2:]] += row[1]
    return found


def is_bag(diffs: Bag) -> Bag:
    """Diffs as rows, which no one has less than none of."""
    assert all(count >= 0 for count in diffs.values()), diffs
    return +diffs


def assert_replays(rows: Sequence[Row], times: Sequence[int], expected: Callable[[int], Bag | None]) -> None:
    """The diffs of raw `rows` up to each time make what was expected then; None: it cannot be known."""
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert {row[0] for row in rows} <= {*times}
    for ms in times:
        wanted = expected(ms)
        if wanted is not None:
            assert is_bag(bag_of(row for row in rows if row[0] <= ms)) == wanted, ms


def assert_consolidated(rows: Sequence[Row]) -> None:
    """Within a timestamp there are no two diffs of a row, and none of zero."""
    assert all(row[1] for row in rows)
    assert not [row for row, count in Counter((row[0], *row[2:]) for row in rows).items() if count > 1]


def from_upserts(rows: Iterable[Row], at_ms: int) -> dict[int, Row]:
    """The keyed state that `ENVELOPE UPSERT` tells of."""
    state: dict[int, Row] = {}
    for ms, kind, key, *values in rows:
        if ms > at_ms:
            break
        if kind == "upsert":
            state[key] = tuple(values)
        else:
            assert kind == "delete", (ms, kind, key)
            assert set(values) <= {None}
            del state[key]
    return state


def from_debezium(rows: Iterable[Row], at_ms: int) -> dict[int, Row]:
    """The keyed state that `ENVELOPE DEBEZIUM` tells of; what was before must have been there."""
    state: dict[int, Row] = {}
    for ms, kind, key, *sides in rows:
        if ms > at_ms:
            break
        before, after = tuple(sides[: len(sides) // 2]), tuple(sides[len(sides) // 2 :])
        if kind == "insert":
            assert key not in state
        else:
            assert kind in ("upsert", "delete"), (ms, kind, key)
            assert state.pop(key) == before
        if kind != "delete":
            state[key] = after
    return state


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(changes=histories("s.t"), layout=FORMATS, few=st.sampled_from([0, 3]), begins=PLACES, resumes=PLACES)
@example(changes=LEFT_AND_EXPIRED, layout=(2, "merge-on-read"), few=3, begins=0, resumes=1)
def test_tables(
    make_lake: LakeFactory,
    changes: list[tuple[str, Change]],
    layout: tuple[int, str],
    few: int,
    begins: int,
    resumes: int,
) -> None:
    lake = make_lake(foreign_lag_ms=LAG_MS)
    past = made(lake, changes, unique=False, layout=layout)
    by_spark = reader_of(lake, make_lake, few)
    name = "s.t"
    times = past.times([name])
    as_of_ms = _one_of(past.readable([name]), begins)
    resumed_ms = _one_of([ms for ms in past.readable([name]) if ms >= as_of_ms], resumes)
    later = [ms for ms in times if ms >= as_of_ms]

    rows = lake.sql(f"SUBSCRIBE {name} AS OF {as_of_ms}").rows
    assert_consolidated(rows)
    assert_replays(rows, later, lambda ms: past.state(name, ms) if past.is_known(name, ms) else None)
    assert by_spark.sql(f"SUBSCRIBE {name} AS OF {as_of_ms}").rows == rows

    first = lake.sql(f"SUBSCRIBE {name} AS OF {as_of_ms} UP TO {resumed_ms + 1}").rows
    rest = lake.sql(f"SUBSCRIBE {name} WITH (SNAPSHOT = false) AS OF {resumed_ms}").rows
    assert [*first, *rest] == rows

    assert_resumes_from_any_progress(lake, name, as_of_ms, rows, past)
    assert_gaps_are_errors(lake, name, past)


def assert_resumes_from_any_progress(lake: Lake, name: str, as_of_ms: int, rows: Sequence[Row], past: Past) -> None:
    """What was read up to a progress row, and what a reader gets who goes on from it, are the whole."""
    told = lake.sql(f"SUBSCRIBE {name} WITH (PROGRESS) AS OF {as_of_ms}").rows
    assert [(row[0], *row[2:]) for row in told if not row[1]] == rows
    marks = [row[0] for row in told if row[1]]
    assert marks == sorted({as_of_ms, *(row[0] + 1 for row in rows)}) or not rows
    for mark in marks[1:]:
        if past.is_known(name, mark - 1):
            rest = lake.sql(f"SUBSCRIBE {name} WITH (SNAPSHOT = false) AS OF {mark - 1}").rows
            assert rest == [row for row in rows if row[0] >= mark], mark


def assert_gaps_are_errors(lake: Lake, name: str, past: Past) -> None:
    """At a time whose snapshot was expired nothing is made up."""
    for version in past.histories[name].versions:
        if not past.is_known(name, version.mz_timestamp):
            with pytest.raises(NotReadable):
                lake.sql(f"SUBSCRIBE {name} AS OF {version.mz_timestamp}")


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(changes=histories("s.t", "s.u"), layout=FORMATS, few=st.sampled_from([0, 3, READ_HERE]), begins=PLACES)
def test_queries(
    make_lake: LakeFactory, changes: list[tuple[str, Change]], layout: tuple[int, str], few: int, begins: int
) -> None:
    lake = make_lake(foreign_lag_ms=LAG_MS)
    past = made(lake, changes, unique=False, layout=layout)
    reader = reader_of(lake, make_lake, few)
    t, u = past.histories.get("s.t"), past.histories.get("s.u")

    def check(query: str, names: Sequence[str], result: Callable[..., Bag]) -> None:
        """The diffs of `query` are those of `result`, which is made of the first two columns of each table."""
        as_of_ms = _one_of(past.readable(names), begins)

        def expected(ms: int) -> Bag | None:
            if not all(past.is_known(name, ms) for name in names):
                return None
            return result(*(_first_two(past.state(name, ms)) for name in names))

        rows = reader.sql(f"SUBSCRIBE ({query}) AS OF {as_of_ms}").rows
        assert_consolidated(rows)
        assert_replays(rows, [ms for ms in past.times(names) if ms >= as_of_ms], expected)

    if t is not None:
        check(f"SELECT {t.key} + 10, {t.value} FROM s.t WHERE {t.key} % 2 = 0", ["s.t"], _even)
        check(f"SELECT {t.key} % 2, count(*), sum({t.value}) FROM s.t GROUP BY {t.key} % 2", ["s.t"], _sums)
    if t is not None and u is not None:
        join = f"SELECT a.{t.key}, a.{t.value}, b.{u.value} FROM s.t AS a JOIN s.u AS b ON a.{t.key} = b.{u.key}"
        check(join, ["s.t", "s.u"], _joined)


def _first_two(rows: Bag) -> Bag:
    found: Bag = Counter()
    for row, count in rows.items():
        found[row[:2]] += count
    return found


def _even(rows: Bag) -> Bag:
    found: Bag = Counter()
    for (k, v), count in rows.items():
        if k % 2 == 0:
            found[k + 10, v] += count
    return found


def _sums(rows: Bag) -> Bag:
    counts: Counter[int] = Counter()
    sums: dict[int, int | None] = {}
    for (k, v), count in rows.items():
        counts[k % 2] += count
        before = sums.get(k % 2)
        sums[k % 2] = before if v is None else (before or 0) + v * count
    return Counter((group, counts[group], total) for group, total in sums.items())


def _joined(left: Bag, right: Bag) -> Bag:
    found: Bag = Counter()
    for (a, v), count in left.items():
        for (b, w), times in right.items():
            if a == b:
                found[a, v, w] += count * times
    return found


@settings(
    max_examples=max(1, EXAMPLES // 2),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(changes=histories("s.t"), layout=FORMATS, few=st.sampled_from([0, 3, READ_HERE]), begins=PLACES)
def test_envelopes(
    make_lake: LakeFactory, changes: list[tuple[str, Change]], layout: tuple[int, str], few: int, begins: int
) -> None:
    """Where keys are unique both envelopes tell the keyed state at every time."""
    lake = make_lake(foreign_lag_ms=LAG_MS)
    past = made(lake, changes, unique=True, layout=layout)
    reader = reader_of(lake, make_lake, few)
    name, history = "s.t", past.histories["s.t"]
    as_of_ms = _one_of(past.readable([name]), begins)
    key = f"(KEY ({history.key.upper()})) AS OF {as_of_ms}"
    upserts = reader.sql(f"SUBSCRIBE {name} ENVELOPE UPSERT {key}").rows
    debezium = reader.sql(f"SUBSCRIBE {name} ENVELOPE DEBEZIUM {key}").rows
    for ms in past.readable([name]):
        if ms >= as_of_ms:
            expected = {row[0]: row[1:] for row in past.state(name, ms)}
            assert from_upserts(upserts, ms) == expected
            assert from_debezium(debezium, ms) == expected
    for rows in (upserts, debezium):
        places = [(row[0], row[2]) for row in rows]
        assert places == sorted(set(places))
    assert [row[:3] for row in upserts] == [
        (ms, "upsert" if kind == "insert" else kind, key) for ms, kind, key, *_ in debezium
    ]


def reader_of(lake: Lake, make_lake: LakeFactory, driver_diff_max_rows: int) -> Lake:
    """Another reader of the same lake, which leaves what is more than so many rows to Spark."""
    return make_lake(
        lake.settings.warehouse,
        catalog_name=lake.settings.catalog_name,
        foreign_lag_ms=LAG_MS,
        driver_diff_max_rows=driver_diff_max_rows,
    )
