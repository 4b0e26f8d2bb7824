"""A JSON value without a schema is stored exactly in the column declared for it, or becomes an error: never another value."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from random import Random

import pytest
from pyspark.sql import SparkSession

from lakehold.definitions import DeclaredColumn
from lakehold.ingest.decode.decimals import decimal_from_text
from lakehold.ingest.decode.decoded import Shape, Wanted, decode
from lakehold.ingest.decode.record_schemas import JsonDeclared, TopicSchemas
from tests.raw_records import raw_records
from tests.type_cases import DIRECTORY, SHOWN_OPTIONS

pytestmark = pytest.mark.spark


@dataclass
class Declared:
    """A declared type, and (value in the JSON, value as JSON text or `error`) pairs."""

    type: str
    values: list[tuple[str, str]] = field(default_factory=list)


def _cases() -> list[Declared]:
    cases: list[Declared] = []
    for line in (DIRECTORY / "declared.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if " => " in line:
            token, value = line.split(" => ")
            cases[-1].values.append((token, value))
        else:
            cases.append(Declared(line))
    return cases


def test_every_declared_value_is_exact_or_an_error(spark: SparkSession) -> None:
    cases = _cases()
    columns = tuple(DeclaredColumn(f"c{number}", case.type) for number, case in enumerate(cases))
    wanted = [(number, *pair) for number, case in enumerate(cases) for pair in case.values]
    records = [(None, f'{{"c{number}": {token}, "other": 1e5}}'.encode()) for number, token, _ in wanted]
    decoded = decode(
        raw_records(spark, records), Wanted(TopicSchemas(JsonDeclared(), JsonDeclared(columns)), Shape.FLAT)
    ).frame.selectExpr(
        "offset", "error", *(f"to_json(struct(value.{c.name} AS v), {SHOWN_OPTIONS}) AS {c.name}" for c in columns)
    )
    found = {row.offset: row for row in decoded.collect()}
    shown = [_shown(found[offset].error, found[offset][f"c{number}"]) for offset, (number, _, _) in enumerate(wanted)]
    wrong = [
        f"{cases[number].type}: {token} is {value}, not {right}"
        for (number, token, right), value in zip(wanted, shown, strict=True)
        if value != right
    ]
    assert not wrong, "\n".join(map(str, wrong))


def _shown(error: str | None, value: str | None) -> str:
    if error is not None:
        assert error == "undecodable-value"
        return "error"
    return "null" if value in (None, "{}") else str(value).removeprefix('{"v":').removesuffix("}")


def _number(random: Random) -> str:
    digits = "".join(random.choices("0001259", k=random.randrange(12)))
    fraction = "".join(random.choices("0001259", k=random.randrange(20)))
    exponent = random.choice(["", "", f"e{random.randint(-45, 45):+}", f"E{random.randint(-20, 20)}", "E400000000"])
    return f"{random.choice(['', '+', '-'])}{digits}{random.choice(['', '.', f'.{fraction}'])}{exponent}"


def test_decimals_equal_exact_arithmetic(spark: SparkSession) -> None:
    random = Random(26)
    frame = spark.createDataFrame([(_number(random),) for _ in range(2_000)], "x string")
    types = ((20, 15), (38, 10), (5, 0), (38, 38))
    found = frame.selectExpr("x", *(f"{decimal_from_text('x', p, s)} AS p{p}s{s}" for p, s in types)).collect()
    wrong = [
        (row.x, precision, scale, row[f"p{precision}s{scale}"])
        for row in found
        for precision, scale in types
        if row[f"p{precision}s{scale}"] != _exact(row.x, precision, scale)
    ]
    assert not wrong, "\n".join(map(str, wrong))


def _exact(text: str, precision: int, scale: int) -> Decimal | None:
    """Return the number in `text` if a decimal(precision, scale) holds it exactly."""
    if not any(digit in text.lower().partition("e")[0] for digit in "0123456789"):
        return None
    with localcontext(prec=1_000):
        number = Decimal(text)
        if number == 0:
            return number
        if abs(number.adjusted()) > 100:
            return None
        unscaled = number.scaleb(scale)
        return number if unscaled == unscaled.to_integral_value() and abs(unscaled) < 10**precision else None
