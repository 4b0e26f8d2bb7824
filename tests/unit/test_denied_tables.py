"""A table to which the catalog or the store denies access: an error of the table, not of the catalog."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ForbiddenError, ServiceUnavailableError

from lakehold.errors import DefinitionError, UpstreamUnavailable
from lakehold.iceberg import attempts


def catalog_that_raises(error: Exception) -> Catalog:
    def load_table(_: str) -> Any:
        raise error

    return cast(Catalog, SimpleNamespace(load_table=load_table))


@pytest.mark.parametrize("error", [ForbiddenError("no right to s.t"), PermissionError(13, "Permission denied")])
def test_a_denied_table_is_unreadable(error: Exception) -> None:
    with pytest.raises(DefinitionError, match="denies it") as refused:
        attempts.read(catalog_that_raises(error), "s.t", lambda table: table)
    assert refused.value.code == "table-unreadable"
    assert '"s.t"' in refused.value.message


def test_a_catalog_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(UpstreamUnavailable):
        attempts.read(catalog_that_raises(ServiceUnavailableError("down")), "s.t", lambda table: table)
