"""Finds tables of PostgreSQL whose rows changed although no event says so, by comparing two *shapes* of a table. Pure.

A shape is what PostgreSQL's catalogue says of a table: its columns, files and partitions, and the labels of its enums. Each
inspection compares a table's shape with the one that the journal has. `ALTER TABLE … ALTER c TYPE … USING …`, for example,
writes new files and a new record of the column. VACUUM FULL of the table writes new files alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from lakehold.upstream.found.shapes import Shape


class SilentChange(StrEnum):
    """The effect of a change without an event: rows of the table have other values, or some of them are missing or added."""

    VALUES = "values"
    ROWS = "rows"


def silent_change(before: Shape, now: Shape) -> SilentChange | None:
    """Return what happened to the rows of a table between two inspections; None: nothing without events."""
    if before["table"] != now["table"] or _is_moved(before, now) or _has_other_partitions(before, now):
        return SilentChange.ROWS
    if _has_exchanged_columns(before, now) or _has_returned("columns", before, now):
        return SilentChange.VALUES
    if _is_rewritten(before, now) or _has_renamed_labels(before, now) or _has_returned("labels", before, now):
        return SilentChange.VALUES
    return None


def shape_to_record(before: Shape | None, now: Shape) -> Shape:
    """Return the shape to record after an inspection, with names and defaults that are gone.

    A later column may get such a name, and rows may still have the values that a default gave them.
    """
    if before is None or before["table"] != now["table"]:
        return now
    gone = {name: number for name, number in _numbers(before).items() if name not in _names(now).values()}
    filled = sorted(filled_columns(before) & now["columns"].keys() - _shown(now))
    return {**now, **({"gone": gone} if gone else {}), **({"filled": filled} if filled else {})}


def filled_columns(recorded: Shape | None) -> frozenset[str]:
    """Return the numbers of columns that had a default or the like at some inspection, so that older rows may have a value."""
    return _shown(recorded).union(recorded.get("filled", ())) if recorded is not None else frozenset()


def _shown(shape: Shape) -> frozenset[str]:
    """Return the numbers of columns of which the catalogue shows that older rows may have a value."""
    return frozenset(number for number, (_, _, is_shown, _) in shape["columns"].items() if is_shown)


def _is_moved(before: Shape, now: Shape) -> bool:
    """Return whether the table had another name or schema meanwhile, under which nothing was captured."""
    is_renamed = before["name"][0] == now["name"][0] and before["name"] != now["name"]
    return is_renamed or _has_returned("schemas", before, now)


def _has_other_partitions(before: Shape, now: Shape) -> bool:
    """Return whether partitions with rows came, went, were away or unlogged, or were truncated alone, which is not published.

    A partition that VACUUM FULL or CLUSTER wrote again looks like a truncated one. If ALTER TABLE wrote it again though no column
    changed, it may have been unlogged: SET LOGGED does that. The first file of a table has the table's object id for its name.
    """
    gone = before["partitions"].keys() - now["partitions"].keys()
    new = {oid: born for oid, born in now["partitions"].items() if oid not in before["partitions"]}
    attached = [oid for oid, born in new.items() if not born or now["files"].get(oid, (oid,))[0] != oid]
    has_same_columns = before["columns"] == now["columns"]
    written = [files for oid, files in _new_files(before, now) if oid != now["table"]]
    unexplained = [files for files in written if has_same_columns or not files.is_rewritten]
    return bool(gone or attached or unexplained) or _has_returned("partitions", before, now)


def _has_returned(kind: str, before: Shape, now: Shape) -> bool:
    """Return whether a record was written again as it was: it may have been another one meanwhile.

    A column or a label had another name, under which messages have its values. A partition was detached, and no message has its
    changes. A schema had another name, and so its tables had.
    """
    was, records = (shape.get("records", {}).get(kind, {}) for shape in (before, now))
    pairs = ((was[id_], record) for id_, record in records.items() if id_ in was)
    return any(earlier[0] != record[0] and earlier[1] == record[1] for earlier, record in pairs)


def _has_exchanged_columns(before: Shape, now: Shape) -> bool:
    """Return whether a name belongs to another column than before, or may have belonged to another one meanwhile.

    The latter is so if a name was given up, and another column was renamed, or was added and may have been renamed.
    """
    was, names, numbers = _names(before), _names(now), _numbers(before)
    given_up = {number for number, name in was.items() if name not in names.values()}
    renamed = {number for number, name in names.items() if was.get(number, name) != name}
    renamed |= {number for number, (*_, is_as_added) in now["columns"].items() if number not in was and not is_as_added}
    is_other = any(numbers.get(name, number) != number for number, name in names.items())
    return is_other or any(given_up - {number} for number in renamed)


def _is_rewritten(before: Shape, now: Shape) -> bool:
    """Return whether files were written again for a column, or a new one had a default that is gone.

    A new column of which the catalogue shows that older rows may have a value is none: its first message leads to a snapshot.
    VACUUM FULL hides the value of a default that is gone, and the table for long values stays.
    """
    was, columns = before["columns"], now["columns"]
    files = [files for _, files in _new_files(before, now)]
    is_hidden = bool(columns.keys() - was.keys() - _shown(now))
    is_changed = any(number in was and was[number][1] != written for number, (_, written, *_) in columns.items())
    return (is_hidden and bool(files)) or (is_changed and any(each.may_be_rewritten for each in files))


def _has_renamed_labels(before: Shape, now: Shape) -> bool:
    return any(now["labels"].get(oid, label) != label for oid, label in before["labels"].items())


@dataclass(frozen=True)
class _NewFiles:
    """The new files of a table or partition. ALTER TABLE makes a new table for long values, unlike TRUNCATE and VACUUM FULL."""

    has_long: bool
    has_new_long: bool

    @property
    def is_rewritten(self) -> bool:
        return self.has_new_long

    @property
    def may_be_rewritten(self) -> bool:
        return self.has_new_long or not self.has_long


def _new_files(before: Shape, now: Shape) -> Iterator[tuple[str, _NewFiles]]:
    for oid, (file, long) in now["files"].items():
        was_file, was_long = before["files"].get(oid, (file, long))
        if file != was_file:
            yield oid, _NewFiles(bool(long), long != was_long)


def _names(shape: Shape) -> dict[str, str]:
    return {number: name for number, (name, *_) in shape["columns"].items()}


def _numbers(shape: Shape) -> dict[str, str]:
    """Return the number of the column that has each name, or had it last."""
    return {**shape.get("gone", {}), **{name: number for number, name in _names(shape).items()}}
