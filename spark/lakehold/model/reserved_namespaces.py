"""Names of namespaces in which nobody else's objects may be."""

from __future__ import annotations

from lakehold.errors import DefinitionError

_OWN = "mz_catalog"
_RESERVED = frozenset({"information_schema", _OWN, "mz_internal", "sys"})


def is_reserved(namespace: str) -> bool:
    """Return whether a namespace is kept for the lake's own tables."""
    return namespace.lower() in _RESERVED


def refuse_reserved(namespace: str, of: str) -> None:
    """Refuse a reserved namespace for a new object of the kind `of`.

    Raises:
        DefinitionError: The namespace is reserved.
    """
    if is_reserved(namespace):
        raise DefinitionError(
            f'namespace "{namespace}" is reserved',
            code="namespace-reserved",
            detail="It holds the lake's own tables.",
            hint=f"Choose another namespace for the {of}.",
        )


def refuse_changed_by_hand(verb: str, full_name: str) -> None:
    """Refuse a statement that would change one of the lake's own tables; Spark may have others in reserved namespaces.

    Args:
        verb: The kind of change, for the error.
        full_name: Full name of the table.

    Raises:
        DefinitionError: The table is the lake's own.
    """
    namespace, *table = full_name.split(".")
    if namespace.lower() == _OWN and len(table) == 1:
        raise DefinitionError(
            f'table "{full_name}" is the lake\'s own',
            code="namespace-reserved",
            detail=f"{verb} by hand could lose definitions, holds or what was read.",
            hint="CREATE, ALTER and DROP of objects and holds change it. Good messages heal errors; `lakehold maintain` deletes "
            "old rows.",
        )
