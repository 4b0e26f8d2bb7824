"""Random histories of tables: statements that Spark runs, and the state of each table version by version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import note
from hypothesis import strategies as st

from lakehold.lake import Lake

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
"""An index into several versions or columns, taken modulo their number."""

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
    """Draw the changes of the tables, in order; the last one changes rows."""
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
"""Iceberg forgets the log entries before an expired snapshot, so the remaining snapshots did not simply follow each other."""

DELETES_LEFT_BEHIND: list[tuple[str, Change]] = [
    ("s.t", ("insert", [(0, None)])),
    ("s.t", ("insert", [(0, None)])),
    ("s.t", ("update", (0, 1))),
    ("s.t", ("expire", 13)),
    ("s.t", ("rewrite", "rewrite_data_files")),
    ("s.t", ("merge", [(2, 2), (4, 2), (1, None)])),
    ("s.t", ("insert", [(3, 1)])),
    ("s.t", ("merge", [(0, 2), (3, 0)])),
    ("s.t", ("overwrite", [(1, 1), (3, None)])),
    ("s.t", ("update", (2, None))),
]
"""Compaction leaves position deletes whose data files no longer exist."""

_WIDER = {"INT": "BIGINT", "FLOAT": "DOUBLE"}


@dataclass
class Version:
    """A snapshot that a table showed from a timestamp onward."""

    mz_timestamp: int
    snapshot_id: int


@dataclass
class History:
    """A table that changes, with its versions.

    Args:
        lake: The lake of the table.
        name: Its full name.
        unique: Rows are inserted only where their key is new.
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
            case ("set back", index) if self._remaining():
                snapshot_id = one_of(self._remaining(), index)
                self._call(f"set_current_snapshot('{self.name}', {snapshot_id})")
            case ("expire", index) if len(self._remaining()) > 1:
                others = [id_ for id_ in self._remaining() if id_ != self.versions[-1].snapshot_id]
                self._call(f"expire_snapshots(table => '{self.name}', snapshot_ids => array({one_of(others, index)}L))")
            case _:
                self._change_schema(change)
        self._record_version()

    def _change_schema(self, change: Change) -> None:
        match change:
            case ("add column", type_):
                self.columns[self._new_name()] = type_
                self._alter(f"ADD COLUMN {list(self.columns)[-1]} {type_}")
            case ("rename column", index):
                old, new = one_of(list(self.columns), index), self._new_name()
                self.columns = {new if name == old else name: type_ for name, type_ in self.columns.items()}
                self._alter(f"RENAME COLUMN {old} TO {new}")
            case ("drop column", index) if len(self.columns) > 2:
                name = one_of(list(self.columns)[2:], index)
                del self.columns[name]
                self._alter(f"DROP COLUMN {name}")
            case ("widen column", index) if wide := [n for n in list(self.columns)[1:] if self.columns[n] in _WIDER]:
                name = one_of(wide, index)
                self.columns[name] = _WIDER[self.columns[name]]
                self._alter(f"ALTER COLUMN {name} TYPE {self.columns[name]}")
            case ("partition by", transform):
                for spec_field in self.lake.catalog.load_table(self.name).spec().fields:
                    self._alter(f"DROP PARTITION FIELD {spec_field.name}")
                self._alter(f"ADD PARTITION FIELD {transform.format(key=self.key)} AS {self._new_name()}")

    def states(self) -> dict[int, Bag]:
        """Return the rows of every remaining snapshot, by its id."""
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
        """Return the ids of the snapshots that are not expired, oldest first."""
        known = {snapshot.snapshot_id for snapshot in self.lake.catalog.load_table(self.name).metadata.snapshots}
        return [id_ for id_ in dict.fromkeys(version.snapshot_id for version in self.versions) if id_ in known]

    def _record_version(self) -> None:
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
        """Return VALUES for all columns; those after the first two repeat the second one's value."""
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


def one_of(choices: Sequence[Any], index: int) -> Any:
    return choices[index % len(choices)]


@dataclass(frozen=True)
class Past:
    """The states of the tables at every time.

    Args:
        histories: The tables by name.
        states: The rows of their remaining snapshots.
    """

    histories: Mapping[str, History]
    states: Mapping[str, Mapping[int, Bag]]

    def snapshot_at(self, name: str, ms: int) -> int:
        return [v.snapshot_id for v in self.histories[name].versions if v.mz_timestamp <= ms][-1]

    def is_known(self, name: str, ms: int) -> bool:
        """Return whether the table is readable at a time: the table existed, and its snapshot of that time remains."""
        versions = self.histories[name].versions
        return versions[0].mz_timestamp <= ms and self.snapshot_at(name, ms) in self.states[name]

    def state(self, name: str, ms: int) -> Bag:
        return self.states[name][self.snapshot_at(name, ms)]

    def times(self, names: Sequence[str]) -> list[int]:
        """Return the times at which one of the tables changed to a remaining snapshot while all tables existed."""
        first = max(self.histories[name].versions[0].mz_timestamp for name in names)
        found = {
            v.mz_timestamp
            for name in names
            for v in self.histories[name].versions
            if v.snapshot_id in self.states[name] and v.mz_timestamp >= first
        }
        return sorted({first, *found})

    def readable(self, names: Sequence[str]) -> list[int]:
        """Return those of `times` at which all tables are readable."""
        return [ms for ms in self.times(names) if all(self.is_known(name, ms) for name in names)]


def made(lake: Lake, changes: Sequence[tuple[str, Change]], unique: bool, layout: tuple[int, str]) -> Past:
    """Apply `changes` to the tables that they name, and return the resulting history."""
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
