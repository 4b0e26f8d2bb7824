"""The facts that the server states about itself: the answer to Flight SQL's GetSqlInfo."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

import pyarrow as pa

_MEMBERS: Mapping[str, pa.DataType] = {
    "string_value": pa.utf8(),
    "bool_value": pa.bool_(),
    "bigint_value": pa.int64(),
    "int32_bitmask": pa.int32(),
    "string_list": pa.list_(pa.field("string_data", pa.utf8())),
    "int32_to_int32_list_map": pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32()))),
}
_UNION = pa.dense_union([pa.field(name, kind) for name, kind in _MEMBERS.items()])
_STRING, _BOOL, _LONG, _BITS, _STRINGS, _CONVERSIONS = range(len(_MEMBERS))

SQL_INFO_SCHEMA = pa.schema([pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", _UNION)])

_NONE, _IN_ANY_CASE, _LOWERCASE, _NULLS_LOW, _FULL_OUTER_JOINS = 0, 1, 3, 1, 2

_INFO: Mapping[int, tuple[int, Any]] = {
    0: (_STRING, "lakehold"),  # the server's name, then its version and Arrow's
    1: (_STRING, metadata.version("lakehold")),
    2: (_STRING, pa.__version__),
    3: (_BOOL, True),  # read only: no statement of a client changes a table
    4: (_BOOL, True),  # takes SQL
    5: (_BOOL, False),  # takes Substrait
    8: (_BITS, _NONE),  # transactions
    9: (_BOOL, False),  # CancelQuery: a client ends a statement by leaving its stream
    503: (_BITS, _LOWERCASE),  # identifiers without quotes
    504: (_STRING, "`"),
    505: (_BITS, _IN_ANY_CASE),  # identifiers in quotes
    507: (_BITS, _NULLS_LOW),
    513: (_STRING, "\\"),  # escapes % and _ in patterns of names
    514: (_STRING, ""),  # further characters of identifiers without quotes
    517: (_CONVERSIONS, []),
    522: (_BITS, 0b11),  # GROUP BY: unrelated columns, and beyond those selected
    525: (_BITS, 0b1),  # grammar: the minimum, and the entry level of SQL-92
    526: (_BITS, 0b1),
    528: (_BITS, _FULL_OUTER_JOINS),
    529: (_STRING, "namespace"),
    530: (_STRING, "procedure"),
    531: (_STRING, "catalog"),
    538: (_BITS, 0b0111),  # subqueries: in comparisons, EXISTS and IN
    540: (_BITS, 0b11),  # UNION and UNION ALL
    567: (_BITS, 0b10),  # result sets: read forwards
    **dict.fromkeys((506, 515, 516, 518, 520, 521, 523, 524, 532, 539), (_BOOL, True)),
    **dict.fromkeys((500, 501, 502, 519, 527, 536, 537, 563, 565, 566, 572, 573, 574, 575, 576), (_BOOL, False)),
    **dict.fromkeys((533, 534, 535, 564, 568, 569, 570, 571), (_BITS, 0)),
    **dict.fromkeys((508, 509, 510, 511, 512), (_STRINGS, [])),  # further keywords; functions
    **dict.fromkeys((*range(541, 563),), (_LONG, 0)),  # limits; 0: none, or not known
}
"""Facts by the number that Flight SQL gives them: the JDBC driver fails where one is missing that it asks for."""


def sql_info(numbers: Iterable[int]) -> pa.Table:
    """Return the facts of these numbers, without those that lakehold does not state; all if no number is given."""
    stated = [number for number in (numbers or _INFO) if number in _INFO]
    values: list[list[Any]] = [[] for _ in _MEMBERS]
    kinds, offsets = [], []
    for number in stated:
        kind, value = _INFO[number]
        kinds.append(kind)
        offsets.append(len(values[kind]))
        values[kind].append(value)
    members = [pa.array(found, kind) for found, kind in zip(values, _MEMBERS.values(), strict=True)]
    union = pa.UnionArray.from_dense(pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), members, list(_MEMBERS))
    return pa.Table.from_arrays([pa.array(stated, pa.uint32()), union], schema=SQL_INFO_SCHEMA)
