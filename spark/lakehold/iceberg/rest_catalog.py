"""PyIceberg's client of REST catalogs, extended to tables with columns of types that it does not know."""

from __future__ import annotations

from functools import partial

import orjson
from pydantic import ValidationError
from pyiceberg.catalog.rest import Endpoints, RestCatalog, TableResponse
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from requests import Session

from lakehold.iceberg.metrics import count_response
from lakehold.iceberg.other_types import with_other_types
from lakehold.iceberg.properties import TIMEOUT_MS


class AnyTypeRestCatalog(RestCatalog):
    """A `RestCatalog` for tables with types that PyIceberg does not know, whose requests are counted and have a time limit."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._session.hooks["response"].append(count_response)

    def _config_headers(self, session: Session) -> None:
        """Prepare a session before its first request, which may be one for a token."""
        super()._config_headers(session)
        timeout_s = int(self.properties[TIMEOUT_MS]) / 1000
        session.request = partial(session.request, timeout=timeout_s)  # type: ignore[method-assign]

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load the table.

        Raises:
            NoSuchTableError: The table does not exist.
        """
        try:
            loaded: Table = super().load_table(identifier)
        except ValidationError:
            place = self._split_identifier_for_path(identifier)
            response = self._session.get(self.url(Endpoints.load_table, prefixed=True, **place))
            response.raise_for_status()
            found = orjson.loads(response.content)
            found["metadata"] = with_other_types(found["metadata"])
            loaded = self._response_to_table(self.identifier_to_tuple(identifier), TableResponse.model_validate(found))
        return loaded

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates; the catalog's answer may have types that only `load_table` reads."""
        try:
            committed: CommitTableResponse = super().commit_table(table, requirements, updates)
        except ValidationError:
            after = self.load_table(table.name())
            found = {"metadata": after.metadata, "metadata-location": after.metadata_location}
            committed = CommitTableResponse.model_validate(found)
        return committed
