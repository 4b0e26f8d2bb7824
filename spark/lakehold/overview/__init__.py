"""The overview: a whole lake on one page. Gather facts -> find problems -> lay out -> write HTML. Starts no Spark.

`lakehold status --html` and the page in Airflow's UI show it. `gather` reads the catalog, and no
data; all later steps are pure. `render` asks its caller where a person can act (`Links`): it gets the URL of each action.
"""

from __future__ import annotations

from lakehold.overview.facts import Overview
from lakehold.overview.gather import gather
from lakehold.overview.overview_page import Links, render
from lakehold.overview.table_problems import Action

__all__ = ["Action", "Links", "Overview", "gather", "render"]
