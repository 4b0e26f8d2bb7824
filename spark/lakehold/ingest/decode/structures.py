"""A structure of the decoded result (`key`, `value`, `before`, `after`): its columns, and how each version fills them.

A *version* is one schema with which keys or values were written (`message_parts.py`). All versions fill the same columns, whose
types hold the values of each. `decoded.py` puts the SQL written here into its projections.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lakehold.ingest.decode.connect_schema import ConnectSchema, LeftOut, SchemaType
from lakehold.ingest.decode.convert import Encoding, converted, distinguishable, missing, undecodable
from lakehold.ingest.decode.logical import advice
from lakehold.ingest.decode.message_parts import Part
from lakehold.ingest.decode.types import column_types, iceberg_type
from lakehold.spark_sql import literal, quoted, struct_type
from lakehold.tables.column_types import ColumnType, spark_text
from lakehold.tables.unify import TypeConflict, cast, same, unify, unify_versions


@dataclass(frozen=True)
class Origin:
    """The origin of a structure in one version of a part.

    Args:
        raw: SQL of the structure as the parser returns it.
        schema: Its schema in that version.
        encoding: The parser.
    """

    raw: str
    schema: ConnectSchema
    encoding: Encoding


@dataclass(frozen=True)
class Structure:
    """The structure `name` of the result.

    Args:
        name: Its name.
        origins: Its origin in each version.
        columns: Its columns.
        reader: Distinguishes columns of readers that decode the same records, see `Part`.
    """

    name: str
    origins: tuple[Origin, ...]
    columns: tuple[ColumnType, ...]
    reader: int = 0

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Return the parts of messages that no table can hold."""
        return tuple(dict.fromkeys(part for origin in self.origins for part in origin.schema.left_out))

    @property
    def spark_type(self) -> str:
        """Write the type; `void` without columns."""
        if not self.columns:
            return "void"
        return struct_type((c.name, c.spark_type) for c in self.columns)

    def conversions(self) -> list[str]:
        """Write for each version a column with the converted structure; null for records of other versions."""
        return [f"{self._converted(origin)} AS {self._column(i)}" for i, origin in enumerate(self.origins)]

    def value(self) -> str:
        """Write the structure of a record, from the column of its version."""
        columns = ", ".join(self._column(i) for i in range(len(self.origins)))
        return f"coalesce({columns})" if columns and self.columns else f"CAST(NULL AS {self.spark_type})"

    def undecodable(self) -> Iterator[tuple[str, str]]:
        """Yield (condition, sentence): the condition that a value got lost, because its column cannot hold it."""
        names = {column.name for column in self.columns}
        for i, origin in enumerate(self.origins):
            for f in (each for each in distinguishable(origin.schema.fields) if each.name in names):
                value = f"{self._column(i)}.{quoted(f.name)}"
                lost = undecodable(f.of(origin.raw), value, f.schema, origin.encoding)
                if lost:
                    sentences = f'Column "{f.name}" holds a value that its type cannot hold.', advice(f.schema)
                    yield lost, " ".join(filter(None, sentences))

    def missing(self) -> Iterator[tuple[str, str]]:
        """Yield (condition, column): the condition that a required column is null. Avro cannot leave one out."""
        for origin in self.origins:
            if origin.encoding is Encoding.JSON:
                for f in origin.schema.fields:
                    lacks = missing(f.of(origin.raw), f.schema)
                    if lacks:
                        yield f"({origin.raw} IS NOT NULL AND {lacks})", f.name

    @property
    def versions(self) -> tuple[frozenset[str], ...]:
        """Return the names of the columns that each version has, oldest first."""
        return tuple(frozenset(f.name for f in origin.schema.fields) for origin in self.origins)

    def absent(self) -> str:
        """List the names of the columns that the version of a record lacks; null if it lacks none."""
        cases = [
            f"WHEN {self._column(i)} IS NOT NULL THEN array({', '.join(map(literal, names))})"
            for i, origin in enumerate(self.origins)
            if (names := self._absent_from(origin))
        ]
        return f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS array<string>)"

    def _absent_from(self, origin: Origin) -> list[str]:
        own = {f.name for f in origin.schema.fields}
        return [c.name for c in self.columns if c.name not in own]

    def _column(self, version: int) -> str:
        return f"_{self.name}{version}_{self.reader}"

    def _converted(self, origin: Origin) -> str:
        own = {f.name: f for f in origin.schema.fields}
        fields = []
        changed = bool(origin.schema.left_out) or [*own] != [c.name for c in self.columns]
        for c in self.columns:
            if (f := own.get(c.name)) is None:
                fields += [literal(c.name), f"CAST(NULL AS {spark_text(c.type)})"]
                continue
            value = cast(converted(f.of(origin.raw), f.schema, origin.encoding), iceberg_type(f.schema), c.type)
            changed = changed or value != f"{origin.raw}.{quoted(c.name)}"
            fields += [literal(c.name), value]
        return (
            f"CASE WHEN {origin.raw} IS NOT NULL THEN named_struct({', '.join(fields)}) END" if changed else origin.raw
        )


_NO_STRUCTURE = ConnectSchema(SchemaType.STRUCT, optional=True)


def structure(
    name: str,
    part: Part,
    field: str | None = None,
    columns: tuple[ColumnType, ...] | None = None,
    stored: tuple[ColumnType, ...] = (),
) -> Structure:
    """Return the structure that is the row of `part`, or a field of it.

    Args:
        name: Its name in the result.
        part: The key or the value.
        field: The field, null if a version has none; None: the row itself.
        columns: The columns of another structure, to be used for this one.
        stored: See `Wanted`.

    Raises:
        TypeConflict: Two versions give a column types that do not fit together.
    """
    origins = []
    for version in part.versions:
        raw, schema = version.row, version.schema
        if field is not None:
            own = schema.field_named(field)
            raw, schema = ("NULL", _NO_STRUCTURE) if own is None else (f"{raw}.{quoted(field)}", own)
        origins.append(Origin(raw, schema, version.encoding))
    of_versions = [column_types(o.schema) for o in origins]
    found = unify_versions(of_versions, stored) if columns is None else columns
    if columns is not None:
        _check_fit(of_versions, columns)
    return Structure(name, tuple(origins), found, part.reader)


def _check_fit(versions: Iterable[Sequence[ColumnType]], columns: Sequence[ColumnType]) -> None:
    """Check that the columns hold the values of each version; `before` and `after` may differ in a schema.

    Raises:
        TypeConflict: A column cannot hold the values of a version.
    """
    held = {c.name: c.type for c in columns}
    for c in itertools.chain.from_iterable(versions):
        if c.name in held and not same(unify(held[c.name], c.type, c.name), held[c.name]):
            raise TypeConflict(c.name, held[c.name], c.type)
