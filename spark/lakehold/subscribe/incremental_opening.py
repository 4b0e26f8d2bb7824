"""Chooses how the changes of a query are read: from its plan, its tables' columns, and what Spark says about its parts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from lakehold.subscribe.arrow_query import arrow_query
from lakehold.subscribe.delta_terms import RowTerms
from lakehold.subscribe.diffed_rows import DiffedRows
from lakehold.subscribe.group_state import GroupColumns, NotKept
from lakehold.subscribe.grouped_rows import GroupedRows
from lakehold.subscribe.incremental_plan import Aggregation, RowQuery, TouchedGroups, Whole
from lakehold.subscribe.joined_rows import JoinedRows
from lakehold.subscribe.on_spark import has_variant, view_name, without_collations
from lakehold.subscribe.project import arrow_schema, readable_columns, unsupported_type
from lakehold.subscribe.query_relation import QueryRelation
from lakehold.subscribe.relation import Relation
from lakehold.subscribe.row_by_row_changes import RowByRow
from lakehold.subscribe.spark_types import spark_schema
from lakehold.subscribe.statement import Query
from lakehold.subscribe.table_diffs import DiffReading
from lakehold.subscribe.touched_rows import TouchedColumn, TouchedRows


@dataclass(frozen=True)
class QueryOpening:
    """Opens queries.

    Args:
        reading: Reads diffs.
    """

    reading: DiffReading

    def open(self, query: Query, schemas: Mapping[str, Schema]) -> Relation:
        """Choose how the changes of `query` are read; the choice is kept unless the query may use functions of the session.

        Args:
            query: The query.
            schemas: The columns of its tables by full name.

        Raises:
            DefinitionError: It depends on the clock, or has columns that cannot be read.
        """
        query.uses.refuse_clock(schemas.values())
        if isinstance(query.plan, Whole):
            return self._open(query, schemas)
        key = (
            query.text,
            tuple((name, schema.schema_id, schema.model_dump_json()) for name, schema in schemas.items()),
        )
        found: Relation = self.reading.opened.of(key, lambda: self._open(query, schemas))
        return found

    def _open(self, query: Query, schemas: Mapping[str, Schema]) -> Relation:
        readable = {name: readable_columns(schema) for name, schema in schemas.items()}
        if readable != schemas:
            # A query that returns unreadable columns is refused; inside expressions Spark can read them.
            result = self._result(query, schemas)
            try:
                self._result(query, readable)
            except PySparkException:
                return QueryRelation(
                    query, schemas, self.reading, result, "it reads columns that have no values in SUBSCRIBE"
                )
        if query.columns_at is not None:
            return self._row_by_row(query, readable, is_readable=readable == schemas)
        whole = QueryRelation(query, readable, self.reading, self._result(query, readable))
        try:
            return self._incremental(query, whole)
        except NotKept as reason:
            return replace(whole, reason=str(reason))

    def _incremental(self, query: Query, whole: QueryRelation) -> Relation:
        match query.plan:
            case Whole(reason):
                raise NotKept(reason)
            case RowQuery():
                return self._joined(query.plan, whole)
            case TouchedGroups():
                return self._touched(query.plan, whole)
            case Aggregation():
                return self._grouped(query.plan, whole)

    def _row_by_row(self, query: Query, schemas: Mapping[str, Schema], *, is_readable: bool) -> RowByRow:
        ((name, schema),) = schemas.items()
        is_plain = query.plain is not None and is_readable
        here = arrow_query(query.plain, arrow_schema(schema)) if query.plain is not None and is_plain else None
        result = here.result if here is not None else self._result(query, schemas)
        return RowByRow(query, name, schema, self.reading, result, here)

    def _joined(self, plan: RowQuery, whole: QueryRelation) -> JoinedRows:
        terms = RowTerms(plan, whole.schemas, self.reading)
        joined = JoinedRows(plan, whole, terms, self.reading, whole.result)
        if joined.unknown:
            raise NotKept(joined.unknown)
        return joined

    def _touched(self, plan: TouchedGroups, whole: QueryRelation) -> TouchedRows:
        terms = RowTerms(plan.query, whole.schemas, self.reading)
        found: dict[int, list[TouchedColumn]] = {}
        for number, column in enumerate(plan.columns):
            resolved = terms.resolved(column)
            if resolved is None:
                continue
            place, name = resolved
            source = plan.query.sources[place]
            is_simple = whole.schemas[source.full_name].find_field(name).field_type.is_primitive
            if is_simple and not source.is_optional:
                found.setdefault(place, []).append(TouchedColumn(number, name))
        if not found:
            names = " and ".join(column.name for column in plan.columns)
            raise NotKept(
                f"it groups or partitions by {names}, which no table has with simple values and in every joined row"
            )
        place, columns = next(iter(found.items()))
        keys = self._rows_before(plan.keys, whole)
        return TouchedRows(plan.query, place, tuple(columns), keys, whole, self.reading, whole.result)

    def _grouped(self, plan: Aggregation, whole: QueryRelation) -> Relation:
        otherwise: Relation = whole
        if plan.touched is not None:
            with suppress(NotKept):
                otherwise = self._touched(plan.touched, whole)
        try:
            return self._kept_groups(plan, whole, otherwise)
        except NotKept:
            if otherwise is whole:
                raise
            return otherwise

    def _kept_groups(self, plan: Aggregation, whole: QueryRelation, otherwise: Relation) -> GroupedRows:
        columns = {field.name.lower() for schema in whole.schemas.values() for field in schema.fields}
        if taken := columns & set(plan.aliases):
            raise NotKept(f"{min(taken)} in GROUP BY is the name of a column and of an item of the select list")
        try:
            before = self._rows_before(plan.rows, whole)
            types = tuple(before.columns.types)
            count = len(plan.keys)
            keys, arguments = types[:count], types[count : count + plan.arguments]
            self._refuse_collations(plan, whole)
            groups = GroupColumns(keys, arguments, plan.calls, self._aggregate_types(plan, before))
            names = self._result(plan.around.subquery, whole.schemas).names if plan.around is not None else ()
            grouped = GroupedRows(
                plan, before, groups, otherwise, whole, self.reading, whole.result, names_in_subquery=tuple(names)
            )
            shown = grouped.select_list_types()
        except PySparkException as error:
            raise NotKept("Spark does not accept the parts into which lakehold splits it") from error
        if [_in_utc(of) for of in shown] != [_in_utc(of) for of in whole.result.types]:
            raise NotKept("Spark gives other types to the parts into which lakehold splits it")
        return grouped

    def _rows_before(self, query: Query, whole: QueryRelation) -> DiffedRows:
        """Open the query of the rows from which the result of another one follows."""
        if query.columns_at is not None:
            is_readable = all(readable_columns(schema) == schema for schema in whole.schemas.values())
            return self._row_by_row(query, whole.schemas, is_readable=is_readable)
        rows = QueryRelation(query, whole.schemas, self.reading, self._result(query, whole.schemas))
        found = self._incremental(query, rows)
        if not isinstance(found, DiffedRows):
            raise NotKept("its rows are grouped twice")
        return found

    def _refuse_collations(self, plan: Aggregation, whole: QueryRelation) -> None:
        """Refuse text that Spark compares by a collation: a state compares bytes, and Arrow's types do not tell."""
        for column in self._analysed(plan.rows, whole.schemas).schema.fields:
            if column.dataType != without_collations(column.dataType):
                raise NotKept("it groups or aggregates text with a collation")

    def _aggregate_types(self, plan: Aggregation, before: DiffedRows) -> tuple[pa.DataType, ...]:
        if not plan.calls:
            return ()
        calls = [f"{call.function}({'*' if call.argument is None else f'a{call.argument}'})" for call in plan.calls]
        view = view_name()
        session = self.reading.spark.session()
        rows = session.createDataFrame([], spark_schema(before.columns))
        found = self.reading.spark.select(f"SELECT {', '.join(calls)} FROM {view}", {view: rows})
        return tuple(found.limit(0).toArrow().schema.types)

    def _result(self, query: Query, schemas: Mapping[str, Schema]) -> pa.Schema:
        """Return the columns of a query's result, found by running the query over empty tables.

        Raises:
            DefinitionError: A column of the result cannot be read.
        """
        result = self._analysed(query, schemas)
        for column in result.schema.fields:
            if has_variant(column.dataType):
                raise unsupported_type(column.name, column.dataType.simpleString())
        return result.toArrow().schema

    def _analysed(self, query: Query, schemas: Mapping[str, Schema]) -> DataFrame:
        """Run a query over empty tables."""
        views = {name: view_name() for name in schemas}
        frames = {views[name]: self.reading.spark.empty(schema) for name, schema in schemas.items()}
        return self.reading.spark.select(query.over({}, views), frames).limit(0)


def _in_utc(of: pa.DataType) -> pa.DataType:
    """Return a type without its time zone, which is only how Spark shows an instant."""
    return pa.timestamp(of.unit, "UTC") if pa.types.is_timestamp(of) and of.tz is not None else of
