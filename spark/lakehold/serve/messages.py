"""The messages of Flight SQL that clients send and expect, declared as a table instead of generated code.

Generated code of protobuf fits few versions of its library. A message here has the fields that lakehold reads or writes;
protobuf skips all others.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import DecodeError, Message

from lakehold.errors import LakeholdError

_PACKAGE = "arrow.flight.protocol.sql"
_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "uint32": _Field.TYPE_UINT32,
    "int64": _Field.TYPE_INT64,
}

_OF_A_TABLE = "1 catalog string?, 2 db_schema string?, 3 table string"
_MESSAGES = {
    "CommandGetSqlInfo": "1 info uint32*",
    "CommandGetXdbcTypeInfo": "1 data_type int32?",
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "1 catalog string?, 2 db_schema_filter_pattern string?",
    "CommandGetTables": "1 catalog string?, 2 db_schema_filter_pattern string?, 3 table_name_filter_pattern string?, "
    "4 table_types string*, 5 include_schema bool",
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": _OF_A_TABLE,
    "CommandGetExportedKeys": _OF_A_TABLE,
    "CommandGetImportedKeys": _OF_A_TABLE,
    "CommandGetCrossReference": "",
    "CommandStatementQuery": "1 query string",
    "CommandStatementUpdate": "1 query string",
    "CommandPreparedStatementQuery": "1 prepared_statement_handle bytes",
    "CommandPreparedStatementUpdate": "1 prepared_statement_handle bytes",
    "TicketStatementQuery": "1 statement_handle bytes",
    "ActionCreatePreparedStatementRequest": "1 query string",
    "ActionCreatePreparedStatementResult": "1 prepared_statement_handle bytes, 2 dataset_schema bytes, "
    "3 parameter_schema bytes, 4 is_update bool?",
    "ActionClosePreparedStatementRequest": "1 prepared_statement_handle bytes",
    "DoPutUpdateResult": "1 record_count int64",
    "DoPutPreparedStatementResult": "1 prepared_statement_handle bytes?",
    "PreparedStatement": "1 text string, 2 bound string?",
}
"""The fields of each message as number, name and type; `?` marks one that may be missing, `*` one that repeats.

`PreparedStatement` is lakehold's own: the content of a handle, which clients only send back.
"""


def message(name: str, **fields: Any) -> Message:
    """Make a message of Flight SQL."""
    return _CLASSES[name](**fields)


def packed(content: Message) -> bytes:
    """Write a message with its name, as commands, tickets and actions carry it."""
    wrapped = Packed()
    wrapped.Pack(content)
    return bytes(wrapped.SerializeToString())


def unpacked(data: bytes) -> tuple[str, Any]:
    """Read the name and the message that `packed` has written.

    Raises:
        LakeholdError: The bytes are no message of Flight SQL that lakehold knows.
    """
    wrapped = Packed()
    try:
        wrapped.ParseFromString(data)
        package, _, name = wrapped.TypeName().rpartition(".")
        if package != _PACKAGE or name not in _CLASSES:
            raise _unknown(name or "no name")
        content = _CLASSES[name]()
        wrapped.Unpack(content)
    except DecodeError:
        raise _unknown("bytes that are no message") from None
    return name, content


def _unknown(found: str) -> LakeholdError:
    return LakeholdError(
        "the request is not one of Flight SQL that lakehold answers",
        code="flight-request",
        detail=f"Found {found[:200]}.",
        hint="Use a client of Arrow Flight SQL, such as its ADBC or JDBC driver.",
    )


def _classes() -> dict[str, type[Message]]:
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="flight_sql.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        declared = file.message_type.add(name=name)
        for field in filter(None, fields.split(", ")):
            number, field_name, kind = field.split()
            added = declared.field.add(name=field_name, number=int(number), type=_TYPES[kind.rstrip("?*")])
            added.label = _Field.LABEL_REPEATED if kind.endswith("*") else _Field.LABEL_OPTIONAL
            if kind.endswith("?"):
                added.proto3_optional, added.oneof_index = True, len(declared.oneof_decl)
                declared.oneof_decl.add(name=f"_{field_name}")
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_CLASSES = _classes()
