"""Expectations of our own, for suites to use by name; importing this makes them known to Great Expectations.

Each is a query that finds the rows that should not be, except for the types of columns. Those named after `mz_` columns
are for outputs of SUBSCRIBE (`docs/subscribe.md`); `progress` says that the output has progress rows,
in which these columns are null.
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
"""Rows kept as examples of what is not as expected."""

_STATES = {"upsert": ("upsert", "delete", "key_violation"), "debezium": ("insert", "upsert", "delete", "key_violation")}

_WRONG_STEPS = {
    "upsert": (("delete", "delete"),),
    "debezium": (("insert", "insert"), ("upsert", "insert"), ("delete", "upsert"), ("delete", "delete")),
}
"""Pairs of states that do not follow each other in a key's history. What a key is after a violation is not known."""

_BLANKS = re.compile(r"\s*([<>(),:])\s*")

Envelope = Literal["upsert", "debezium"]


class _RowsThatShouldNotBe(UnexpectedRowsExpectation):
    """Its query is made from the other arguments."""

    unexpected_rows_query: str = ""

    @pydantic.root_validator(skip_on_failure=True)
    def _make_query(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "unexpected_rows_query": cls.query(values)}

    @classmethod
    @abstractmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Spark SQL over `{batch}`; other braces are doubled."""

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


class ExpectKeyToBeUnique(_RowsThatShouldNotBe):
    """No two rows have the same values in the columns of `key`; null is a value. The rows found are keys."""

    key: list[str]

    @classmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Keys that several rows have, and how many."""
        key = _names(arguments["key"])
        return f"SELECT {key}, count(*) AS `rows` FROM {{batch}} GROUP BY {key} HAVING count(*) > 1"


class ExpectKeyToHaveNoNull(_RowsThatShouldNotBe):
    """No column of `key` is null, whatever its name: Great Expectations cannot ask for one with a backquote in it."""

    key: list[str]

    @classmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Rows with a null in the key."""
        nulls = " OR ".join(f"{_names([name])} IS NULL" for name in arguments["key"])
        return f"SELECT * FROM {{batch}} WHERE {nulls}"


class ExpectMzStatesToBeKnown(_RowsThatShouldNotBe):
    """`mz_state` is one that the envelope has."""

    envelope: Envelope
    progress: bool = False

    @classmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Rows with another state, or none."""
        states = ", ".join(literal(state) for state in _STATES[arguments["envelope"]])
        without = "mz_progressed" if arguments["progress"] else "false"
        return f"SELECT * FROM {{batch}} WHERE NOT coalesce(mz_state IN ({states}), {without})"


class ExpectMzStatesToFollow(_RowsThatShouldNotBe):
    """The states of each key follow each other: no insert of what is there, no update or delete of what is not.

    A key has one row a timestamp. A subscription that started over says everything again: this is not for its output.
    """

    envelope: Envelope
    key: list[str]

    @classmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Rows whose state does not fit the one before, and rows that share key and timestamp."""
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


class ExpectMzTimestampsNotToGoBack(_RowsThatShouldNotBe):
    """Along `order`, columns that say where in the output a row stands, `mz_timestamp` never becomes less."""

    order: list[str]

    @classmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Places in the output that begin below what came before.

        Rows of one place count as one, so that only places are sorted in one task.
        """
        order = _names(arguments["order"])
        return (
            f"SELECT * FROM (SELECT *, max(last) OVER (ORDER BY {order} "
            "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS mz_timestamp_before FROM "
            f"(SELECT {order}, min(mz_timestamp) AS mz_timestamp, max(mz_timestamp) AS last "
            f"FROM {{batch}} GROUP BY {order})) WHERE mz_timestamp < mz_timestamp_before"
        )


class ExpectMzDiffsNotToBeZero(_RowsThatShouldNotBe):
    """Each row says of how many rows there are more or less: `mz_diff` is neither 0 nor null."""

    progress: bool = False

    @classmethod
    def query(cls, arguments: Mapping[str, Any]) -> str:
        """Rows that say nothing."""
        without = "mz_progressed" if arguments["progress"] else "false"
        return f"SELECT * FROM {{batch}} WHERE NOT coalesce(mz_diff <> 0, {without})"


class ExpectColumnsToHaveTypes(BatchExpectation):
    """The columns are there and have these Spark types, as Spark writes them (`decimal(12,2)`); there may be others."""

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
        said = f"{len(wrong)} of {len(found)} columns are not" if wrong else f"{len(found)} columns of their types"
        return {"success": not wrong, "result": {"partial_unexpected_list": wrong, "details": {"found": said}}}


def _bare(name: str) -> str:
    """As Spark compares names; Great Expectations quotes those that have a dot."""
    return name.replace("`", "").lower()


def _spelt(type_: str) -> str:
    """As Spark writes it: without quotes of names and without blanks that a person may put behind punctuation."""
    return _BLANKS.sub(r"\1", type_.replace("`", "").lower())


def _names(columns: Sequence[str]) -> str:
    """Columns as Spark SQL; Great Expectations puts the batch's name between braces, so others are doubled."""
    return ", ".join(quoted(name).replace("{", "{{").replace("}", "}}") for name in columns)


def _counted(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"
