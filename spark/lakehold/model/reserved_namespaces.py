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
