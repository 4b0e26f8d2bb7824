"""Names of namespaces in which nobody else's objects may be."""

from __future__ import annotations

from lakehold.errors import DefinitionError

_RESERVED = frozenset({"information_schema", "mz_catalog", "mz_internal", "sys"})


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
    """Refuse a statement that would change a table in a reserved namespace.

    Args:
        verb: The kind of change, for the error.
        full_name: Full name of the table.

    Raises:
        DefinitionError: The namespace is reserved.
    """
    if is_reserved(full_name.partition(".")[0]) and "." in full_name:
        raise DefinitionError(
            f'table "{full_name}" is the lake\'s own',
            code="namespace-reserved",
            detail=f"{verb} by hand could lose definitions, holds or what was read.",
            hint="CREATE, ALTER and DROP of objects and holds change it. Good messages heal errors; `lakehold maintain` deletes "
            "old rows.",
        )
