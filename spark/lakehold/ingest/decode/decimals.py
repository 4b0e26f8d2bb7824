"""Decimals from the bytes that Connect sends, and from digits in JSON, as SQL expressions for the rules of `logical.py`.

The bytes are a big-endian two's complement integer: the decimal without its point. The scale says where the point is.

`from_avro` reads such bytes as a decimal of up to 38 digits once their length precedes them. Longer ones are rare;
they become text by long division of the bytes in higher-order functions, which is slow but needs nothing beyond SQL.
"""

from __future__ import annotations

import json

MAX_PRECISION = 38
"""Most digits a decimal of Iceberg and of Spark can have."""

WHOLE_PRECISION = 19
"""The precision to ask of `from_avro` at least: with a lower one it reads only the last `LONG_BYTES` of the bytes."""

LONG_BYTES = 8

_MOST_DIGITS = 131_072
"""Most digits that a decimal's scale may add to it: PostgreSQL's numeric has no more, before the point and after it."""

_LENGTHS = "".join(f"{2 * n:02X}" for n in range(64))
"""The byte that Avro writes for each length below 64."""

_LIMB = 10**15
_LIMB_DIGITS = 15


def decimal_from_bytes(value: str, precision: int, scale: int) -> str:
    """Write a decimal(precision, scale) from the bytes `value`; null where the digits do not fit, or without bytes."""
    read_as = max(precision, WHOLE_PRECISION)
    schema = json.dumps({"type": "bytes", "logicalType": "decimal", "precision": read_as, "scale": scale})
    avro = f"concat(substring(X'{_LENGTHS}', length({value}) + 1, 1), {value})"
    read = (
        f"CASE WHEN length({value}) BETWEEN 1 AND 63 THEN from_avro({avro}, '{schema}', map('mode', 'PERMISSIVE')) END"
    )
    return fitted(read, precision, scale)


def fitted(read: str, precision: int, scale: int) -> str:
    """Write a decimal(precision, scale) from one that `from_avro` read with `WHOLE_PRECISION` or more digits."""
    return read if precision >= WHOLE_PRECISION else f"try_cast({read} AS DECIMAL({precision}, {scale}))"


def text_from_bytes(value: str, scale: str) -> str:
    """Write the plain digits of a decimal of any size as text, with all digits of its scale; `scale` is an int expression.

    It is null for a scale beyond `_MOST_DIGITS`, and without bytes.
    """
    short = f"CAST({decimal_from_bytes(value, MAX_PRECISION, 0)} AS STRING)"
    # 15 bytes hold at most 36 digits, so they always fit a decimal(38, 0).
    unscaled = (
        f"CASE WHEN length({value}) <= 15 THEN {short} WHEN length({value}) > 15 THEN {_long_division(value)} END"
    )
    # A lambda names the digits, so that they are computed once.
    text = f"element_at(transform(array({unscaled}), unscaled -> {_with_point('unscaled', scale)}), 1)"
    return f"CASE WHEN {scale} BETWEEN -{_MOST_DIGITS} AND {_MOST_DIGITS} THEN {text} END"


def decimal_from_text(text: str, precision: int, scale: int) -> str:
    """Write a decimal from digits, with an exponent or without; null if it would have to be rounded or does not fit.

    An exponent of more than three digits is accepted only for zero: Spark would write out its digits to round them.
    """
    exact = f"try_cast(try_cast({text} AS DECIMAL({MAX_PRECISION}, {scale})) AS DECIMAL({precision}, {scale}))"
    digits = f"^[+-]?[0-9]*[.]?[0-9]{{0,{scale}}}0*$"
    with_exponent = "^[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)[eE][+-]?0*[0-9]{1,3}$"
    zero = "^[+-]?(?:0+[.]?0*|[.]0+)[eE][+-]?[0-9]+$"
    # A number has as many places after its point as its fraction has digits, less the zeros at its end and the exponent.
    fraction = f"length(regexp_extract({text}, '[.]([0-9]*?)0*[eE]', 1))"
    zeros = f"length(regexp_extract({text}, '^[+-]?[0-9]*[1-9](0*)(?:[.]0*)?[eE]', 1))"
    exponent = f"CAST(regexp_extract({text}, '[eE]([+-]?[0-9]+)$', 1) AS INT)"
    return (
        f"CASE WHEN {text} RLIKE '{digits}' THEN {exact} "
        f"WHEN {text} RLIKE '{zero}' THEN CAST(0 AS DECIMAL({precision}, {scale})) "
        f"WHEN {text} RLIKE '{with_exponent}' AND {fraction} - {zeros} - {exponent} <= {scale} THEN {exact} END"
    )


def _with_point(unscaled: str, scale: str) -> str:
    sign = f"CASE WHEN startswith({unscaled}, '-') THEN '-' ELSE '' END"
    digits = f"ltrim('-', {unscaled})"
    padded = f"lpad({digits}, greatest(length({digits}), {scale} + 1), '0')"
    split = f"left({padded}, length({padded}) - {scale}), '.', right({padded}, {scale})"
    whole = f"CASE WHEN {unscaled} = '0' THEN '0' ELSE concat({unscaled}, repeat('0', -({scale}))) END"
    return f"CASE WHEN {scale} > 0 THEN concat({sign}, {split}) ELSE {whole} END"


def _long_division(value: str) -> str:
    """Write the digits of two's complement bytes of any length: base 256 to base 10^15, least limb first.

    A negative number is `-(inverted + 1)`: its bytes are inverted on the way in and the 1 is carried in at the end.
    """
    byte = f"CAST(conv(hex(substring({value}, i, 1)), 16, 10) AS BIGINT)"
    negative = f"(hex(substring({value}, 1, 1)) >= '80')"
    digit = f"CASE WHEN {negative} THEN 255L - {byte} ELSE {byte} END"
    limbs = _carried("limbs", f"{digit}", 256)
    all_limbs = f"aggregate(sequence(1, length({value})), array(0L), (limbs, i) -> {limbs})"
    magnitude = (
        f"element_at(transform(array({all_limbs}), limbs -> {_carried('limbs', f'CAST({negative} AS BIGINT)', 1)}), 1)"
    )
    text = f"concat_ws('', transform(reverse({magnitude}), limb -> lpad(CAST(limb AS STRING), {_LIMB_DIGITS}, '0')))"
    digits = f"regexp_replace({text}, '^0+(?=.)', '')"
    return f"concat(CASE WHEN {negative} THEN '-' ELSE '' END, {digits})"


def _carried(limbs: str, carry: str, factor: int) -> str:
    """Write `limbs * factor + carry`, as limbs again."""
    total = f"(limb * {factor}L + s.carry)"
    step = f"named_struct('out', concat(s.out, array({total} % {_LIMB}L)), 'carry', {total} div {_LIMB}L)"
    start = f"named_struct('out', CAST(array() AS ARRAY<BIGINT>), 'carry', {carry})"
    end = "CASE WHEN s.carry > 0 THEN concat(s.out, array(s.carry)) ELSE s.out END"
    return f"aggregate({limbs}, {start}, (s, limb) -> {step}, s -> {end})"
