"""The lake's page in Airflow's UI: the status of every table, with links to the DAGs that act on it."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_view
from fastapi import Depends, FastAPI, HTTPException, Path
from fastapi.responses import HTMLResponse

import lakehold
from lakehold.errors import DefinitionError, LakeholdError
from lakehold.orchestration.lakes import text_of
from lakehold.orchestration.plugin import PREFIX, base_url
from lakehold.overview import Action, gather, render
from lakehold.templates import shown_path

_DAGS = {
    Action.INGEST: "lakehold_ingest",
    Action.PUBLISH: "lakehold_subscriptions",
    Action.MAINTAIN: "lakehold_maintenance",
    Action.CHECK: "lakehold_quality",
}
_READERS = [Depends(requires_access_view(AccessView.WEBSITE))]
"""Users who may open Airflow may see the pages: names and times of tables, and on a check's page some of their rows."""

Part = Annotated[str, Path(pattern=r"^[^/\\]*[^/\\.][^/\\]*$")]
"""One component of a path, but not `..`."""

app = FastAPI(title="lakehold", docs_url=None, redoc_url=None, openapi_url=None, dependencies=_READERS)


@app.get("/", response_class=HTMLResponse)
def overview() -> str:
    """Render the status of every table as of now."""
    try:
        with lakehold.connect() as lake:
            pages = shown_path(lake.settings.check_pages_uri)
            return render(gather(lake), lambda action, target: _link(pages, action, target))
    except LakeholdError as error:
        raise HTTPException(503, text_of(error)) from error


@app.get("/checks/{table}/{page}", response_class=HTMLResponse)
def check(table: Part, page: Part) -> str:
    """Return the page that a check wrote."""
    try:
        with lakehold.connect() as lake:
            return lake.checks.page(table, page)
    except (FileNotFoundError, DefinitionError) as error:
        raise HTTPException(404, f'there is no page "{page}" of checks of table "{table}"') from error
    except LakeholdError as error:
        raise HTTPException(503, text_of(error)) from error


def _link(pages: str, action: Action, target: str) -> str | None:
    """Return the URL where a person can act.

    Args:
        pages: Directory of the pages of checks, as verdicts name it.
        action: What to do.
        target: The object of the action.
    """
    root = base_url()
    if action is Action.CHECK_PAGE:
        below = target.removeprefix(f"{pages}/")
        return f"{root}{PREFIX}/checks/{quote(below)}" if below != target else None
    # The form in which the target would be filled in has no address: github.com/apache/airflow/issues/54800.
    return f"{root}/dags/{_DAGS[action]}"
