"""Expectations of lakehold's own, for suites to use by name; importing this registers them with Great Expectations.

Each is a query for the rows that violate it, except for the types of columns. Those named after `mz_` columns are for outputs of
SUBSCRIBE (`docs/subscribe.md`). `progress` says that the output has progress rows: `mz_progressed` is true in these, and
`mz_state` and `mz_diff` are null.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from great_expectations.compatibility import pydantic
from great_expectations.expectations.core.unexpected_rows_expectation import UnexpectedRowsExpectation
from great_expectations.expectations.expectation import BatchExpectation

from lakehold.spark_sql import literal, quoted

EXAMPLES_MOST = 5
"""Violating rows that are kept as examples."""

_STATES = {"upsert": ("upsert", "delete", "key_violation"), "debezium": ("insert", "upsert", "delete", "key_violation")}

_WRONG_STEPS = {
    "upsert": (("delete", "delete"),),
    "debezium": (("insert", "insert"), ("upsert", "insert"), ("delete", "upsert"), ("delete", "delete")),
}
"""Pairs of states that must not follow each other in a key's history. The state of a key after a violation is unknown."""

_BLANKS = re.compile(r"\s*([<>(),:])\s*")

Envelope = Literal["upsert", "debezium"]


class ExpectQueryToFindNoRows(UnexpectedRowsExpectation):
    """An expectation that a query finds no rows, as Great Expectations' own, with some of the rows as examples."""

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,  # noqa: ARG002 - the signature is Great Expectations'
        execution_engine: Any = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        count = metrics["unexpected_rows_query.row_count"]
        rows = metrics["unexpected_rows_query.table"][:EXAMPLES_MOST]
        found = {"observed_value": count, "partial_unexpected_list": rows, "details": {"found": _counted(count)}}
        return {"success": count == 0, "result": found}


class _RowsThatShouldNotBe(ExpectQueryToFindNoRows):
    """An expectation that no row violates; its query is made from the other arguments."""

    unexpected_rows_query: str = ""

    @pydantic.root_validator(skip_on_failure=True)
    def _make_query(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "unexpected_rows_query": cls.query(values)}

    @classmethod
    @abstractmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Return the query for violating rows, Spark SQL over `{batch}`; other braces are doubled."""


class ExpectKeyToBeUnique(_RowsThatShouldNotBe):
    """An expectation that no two rows have the same values in the columns of `key`; null is a value.

    Its examples are the keys that several rows have, not rows.
    """

    key: list[str]

    @classmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Select the keys that several rows have, and how many."""
        key = _names(arguments["key"])
        return f"SELECT {key}, count(*) AS `rows` FROM {{batch}} GROUP BY {key} HAVING count(*) > 1"


class ExpectKeyToHaveNoNull(_RowsThatShouldNotBe):
    """An expectation that no column of `key` is null.

    Column names may have any characters: Great Expectations' own cannot handle a name that contains a backquote.
    """

    key: list[str]

    @classmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Select rows with a null in the key."""
        nulls = " OR ".join(f"{_names([name])} IS NULL" for name in arguments["key"])
        return f"SELECT * FROM {{batch}} WHERE {nulls}"


class ExpectMzStatesToBeKnown(_RowsThatShouldNotBe):
    """An expectation that `mz_state` is a state of the envelope."""

    envelope: Envelope
    progress: bool = False

    @classmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Select rows with another state, or none."""
        states = ", ".join(literal(state) for state in _STATES[arguments["envelope"]])
        # A null is right in a progress row, and wrong in any other.
        where_null = "mz_progressed" if arguments["progress"] else "false"
        return f"SELECT * FROM {{batch}} WHERE NOT coalesce(mz_state IN ({states}), {where_null})"


class ExpectMzStatesToFollow(_RowsThatShouldNotBe):
    """An expectation that the states of each key are a possible history.

    No row inserts a key that exists, or updates or deletes one that does not. A key has one row a timestamp. A subscription
    that started over repeats all rows: the expectation does not fit its output.
    """

    envelope: Envelope
    key: list[str]

    @classmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Select rows whose state does not fit the one before, and rows that share key and timestamp."""
        key = _names(arguments["key"])
        pairs = ", ".join(
            f"({literal(before)}, {literal(after)})" for before, after in _WRONG_STEPS[arguments["envelope"]]
        )
        return (
            f"SELECT * FROM (SELECT {key}, mz_timestamp, mz_state, "
            f"lag(mz_state) OVER (PARTITION BY {key} ORDER BY mz_timestamp) AS state_before, "
            f"count(*) OVER (PARTITION BY {key}, mz_timestamp) AS rows_at_once "
            "FROM {batch} WHERE mz_state IS NOT NULL) "
            f"WHERE rows_at_once > 1 OR (state_before, mz_state) IN ({pairs})"
        )


class ExpectRangesToFollow(_RowsThatShouldNotBe):
    """An expectation that the ranges of each key follow each other: none is empty, none overlap, and only the last is current.

    It is for tables of subscriptions with ENVELOPE HISTORY. A gap between two ranges is a time at which no row had the key.
    """

    key: list[str]

    @classmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Select ranges that are wrong in themselves, or that the next one of their key begins in."""
        key = _names(arguments["key"])
        return (
            f"SELECT * FROM (SELECT *, lead(valid_from) OVER (PARTITION BY {key} ORDER BY valid_from) AS next_from "
            "FROM {batch}) WHERE is_current IS DISTINCT FROM (valid_to IS NULL) OR valid_from IS NULL "
            "OR valid_to <= valid_from OR next_from < coalesce(valid_to, timestamp '9999-12-31')"
        )


class ExpectMzTimestampsNotToGoBack(_RowsThatShouldNotBe):
    """An expectation that `mz_timestamp` never decreases along `order`.

    The columns of `order` say in which order the output was delivered. Rows with the same values there came together: their
    timestamps are not compared with each other.
    """

    order: list[str]

    @classmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Select the values of `order` whose least timestamp is below the greatest one of any earlier value.

        Rows are grouped by `order` first: the window sorts in one task, and so has to sort the groups only.
        """
        order = _names(arguments["order"])
        return (
            f"SELECT * FROM (SELECT *, max(last) OVER (ORDER BY {order} "
            "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS mz_timestamp_before FROM "
            f"(SELECT {order}, min(mz_timestamp) AS mz_timestamp, max(mz_timestamp) AS last "
            f"FROM {{batch}} GROUP BY {order})) WHERE mz_timestamp < mz_timestamp_before"
        )


class ExpectMzDiffsNotToBeZero(_RowsThatShouldNotBe):
    """An expectation that each row adds or removes rows: `mz_diff` is neither 0 nor null."""

    progress: bool = False

    @classmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Select rows that add and remove nothing."""
        where_null = "mz_progressed" if arguments["progress"] else "false"
        return f"SELECT * FROM {{batch}} WHERE NOT coalesce(mz_diff <> 0, {where_null})"


class ExpectColumnsToHaveTypes(BatchExpectation):
    """An expectation that columns exist and have these Spark types, as Spark writes them (`decimal(12,2)`).

    The table may have other columns as well.
    """

    types: dict[str, str]

    metric_dependencies: ClassVar[tuple[str, ...]] = ("table.column_types",)
    success_keys: ClassVar[tuple[str, ...]] = ("types",)
    args_keys: ClassVar[tuple[str, ...]] = ("types",)

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,  # noqa: ARG002
        execution_engine: Any = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        types = {_bare(column["name"]): column["type"].simpleString() for column in metrics["table.column_types"]}
        found = {name: types.get(_bare(name), "no such column") for name in self.types}
        wrong = [
            f"{name}: expected {expected}, found {found[name]}"
            for name, expected in self.types.items()
            if _spelt(expected) != _spelt(found[name])
        ]
        details = f"{len(wrong)} of {len(found)} columns are not" if wrong else f"{len(found)} columns of their types"
        return {"success": not wrong, "result": {"partial_unexpected_list": wrong, "details": {"found": details}}}


class ExpectTableToEqualItsDatabase(BatchExpectation):
    """An expectation that a table has the rows of its database now: those of the table that feeds it, or of `upstream`.

    lakehold evaluates it, as `lakehold verify` does: Great Expectations only reads its arguments.
    """

    connection: str | None = None
    upstream: str | None = None

    metric_dependencies: ClassVar[tuple[str, ...]] = ()
    success_keys: ClassVar[tuple[str, ...]] = ("connection", "upstream")
    args_keys: ClassVar[tuple[str, ...]] = ("connection", "upstream")

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: Any = None,
    ) -> dict[str, Any]:
        raise NotImplementedError("lakehold check compares tables with databases; Great Expectations alone cannot")


def _bare(name: str) -> str:
    """Normalize a name as Spark compares names; Great Expectations quotes those that contain a dot."""
    return name.replace("`", "").lower()


def _spelt(type_: str) -> str:
    """Normalize a type as Spark writes it: without quotes of names, and without blanks around punctuation."""
    return _BLANKS.sub(r"\1", type_.replace("`", "").lower())


def _names(columns: Sequence[str]) -> str:
    """Write columns as Spark SQL; Great Expectations puts the batch's name between braces, so other braces are doubled."""
    return ", ".join(quoted(name).replace("{", "{{").replace("}", "}}") for name in columns)


def _counted(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"
