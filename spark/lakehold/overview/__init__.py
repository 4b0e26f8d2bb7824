"""How the whole lake is, on one page: gather facts -> find what is wrong -> lay out -> write HTML. Starts no Spark.

`gather` reads the catalog, and no data; all that follows is pure. `render` asks whoever shows the page where a person can act.
"""

from __future__ import annotations

from lakehold.overview.facts import Overview
from lakehold.overview.gather import gather
from lakehold.overview.page import Links, render
from lakehold.overview.problems import Action

__all__ = ["Action", "Links", "Overview", "gather", "render"]
