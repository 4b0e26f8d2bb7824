"""The plugin that Airflow loads in all of its processes.

It registers the page, and imports the code behind the page with the first request.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from lakehold.orchestration import preload

PREFIX = "/lakehold"


def base_url() -> str:
    """Return the URL of Airflow, without a slash at its end; a proxy may serve it below a path."""
    return conf.get("api", "base_url", fallback="").rstrip("/")


# Airflow's UI opens this address as it stands.
_PAGE = f"{urlsplit(base_url()).path}{PREFIX}/"


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await import_module("lakehold.orchestration.web").app(scope, receive, send)


class LakeholdPlugin(AirflowPlugin):
    """The page "lakehold" in the UI's navigation, and the preload that saves tasks their imports."""

    name = "lakehold"
    fastapi_apps: list[Any] = [{"name": "lakehold", "app": _app, "url_prefix": PREFIX}]  # noqa: RUF012 - as Airflow declares it
    listeners: list[Any] = [preload]  # noqa: RUF012
    external_views: list[Any] = [  # noqa: RUF012
        {"name": "lakehold", "href": _PAGE, "url_route": "lakehold", "destination": "nav", "nav_top_level": True}
    ]
