"""The steps that the recorded and the live demo share; Airflow's demo only defines the tables by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from lakehold.demo.screen import Screen
from lakehold.demo.shop_rows import SHOP_TABLES, Row, ShopTable, differences
from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.settings import DEFAULT_CATALOG, Settings, load_settings
from lakehold.status import status_of

_SHOWN_DIFFERENCES = 10
_BUSIEST = 2

_LOOK = """SELECT o.id, c.name AS customer, o.status, o.total, count(i.line) AS items, o.deliver_on, o.placed_at
FROM shop.orders o JOIN shop.customers c ON c.id = o.customer_id LEFT JOIN shop.order_items i ON i.order_id = o.id
GROUP BY ALL ORDER BY o.id DESC LIMIT 5"""

_WRONG_TOTALS = """SELECT count(*) FROM shop.orders o
LEFT JOIN (SELECT order_id, sum(quantity * price) AS total FROM shop.order_items GROUP BY order_id) i
ON i.order_id = o.id
WHERE o.total <> coalesce(i.total, 0)"""

_CHANGES = """SUBSCRIBE (SELECT id, status, total FROM shop.orders{busiest})
ENVELOPE DEBEZIUM (KEY (id)) AS OF {since_ms}"""

_HOLD = "CREATE HOLD IF NOT EXISTS opening_day ON shop.orders AT {since_ms};"

_THEN_AND_NOW = """SELECT 'opening day' AS at, count(*) AS orders, sum(total) AS total
FROM shop.orders VERSION AS OF 'hold_opening_day'
UNION ALL SELECT 'now', count(*), sum(total) FROM shop.orders"""

_ANALYSIS = "SELECT status, count(*) AS orders, sum(total) AS total FROM shop.orders GROUP BY status"


def define(screen: Screen, lake: Lake, file: Path, template: str, **values: str) -> None:
    """Write the statements that define the shop's source and tables to `file`, show them and run them.

    Args:
        screen: Shows the statements.
        lake: The lake in which they run.
        file: The script, for `lakehold sql -f`.
        template: The script in this package, with `$name` for each of `values`.
        **values: Values that depend on this machine.
    """
    script = Template(files("lakehold.demo").joinpath(template).read_text()).substitute(values)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(script)
    screen.heading(f"lakehold sql -f {file}")
    screen.sql(script)
    lake.sql(script)


def rows_of(lake: Lake, table: ShopTable) -> list[Row]:
    """Fetch all rows of a table as the lake has them now."""
    return lake.sql(table.in_lake()).rows


def query_tables(screen: Screen, lake: Lake) -> None:
    """Query the tables as an analyst would."""
    screen.heading("lakehold sql")
    screen.sql(_LOOK)
    screen.table(lake.sql(_LOOK))
    screen.line(f"orders whose total is not the sum of their items: {lake.sql(_WRONG_TOTALS).rows[0][0]}")


def compare(screen: Screen, lake: Lake, expected: Mapping[ShopTable, list[Row]]) -> None:
    """Compare every table row by row with PostgreSQL.

    Raises:
        LakeholdError: They differ; the error lists the first rows that do.
    """
    different = [line for table in SHOP_TABLES for line in differences(table, expected[table], rows_of(lake, table))]
    if different:
        more = len(different) - _SHOWN_DIFFERENCES
        raise LakeholdError(
            "the lake is not equal to PostgreSQL",
            code="demo-differs",
            detail="\n".join([*different[:_SHOWN_DIFFERENCES], *([f"... and {more} more"] if more > 0 else [])]),
        )
    counts = ", ".join(f"{table.name} {len(expected[table])} rows" for table in SHOP_TABLES)
    screen.heading(f"equal to PostgreSQL: {counts}")


def subscribe(screen: Screen, lake: Lake) -> None:
    """Show the changes of the orders that changed most, and hold the table as it was at the start."""
    since_ms = lake.timelines.readable(["shop.orders"])["shop.orders"].since_ms
    screen.heading("what changed: lakehold sql")
    everything = lake.sql(_CHANGES.format(busiest="", since_ms=since_ms))
    changes = Counter(row[everything.columns.index("id")] for row in everything.rows)
    ids = sorted(changes, key=lambda order: (-changes[order], order))[:_BUSIEST]
    statement = _CHANGES.format(busiest=f" WHERE id IN ({', '.join(map(str, sorted(ids)))})", since_ms=since_ms)
    screen.sql(statement)
    screen.table(lake.sql(statement))
    screen.heading("kept for later readers: lakehold sql")
    hold = _HOLD.format(since_ms=since_ms)
    screen.sql(f"{hold}\n{_THEN_AND_NOW}")
    lake.sql(hold)
    screen.table(lake.sql(_THEN_AND_NOW))


def lake_settings(directory: Path, **arguments: Any) -> Settings:
    """Load the settings of the demo's lake: it has a catalog of its own, also where settings name another lake's catalog."""
    settings = load_settings(
        warehouse=str(directory), catalog_uri="sqlite://", catalog_name=DEFAULT_CATALOG, **arguments
    )
    # Properties that the environment and lakehold.toml name would be added to those of an argument.
    own = {"catalog_uri": f"sqlite:///{settings.warehouse_path}/catalog.db", "catalog_properties": {}}
    return settings.model_copy(update=own)


def finish(screen: Screen, lake: Lake) -> None:
    """Show the status, and commands to try on the lake."""
    warehouse = lake.settings.warehouse_path
    screen.heading("lakehold status")
    screen.table(status_of(lake))
    screen.heading("continue with")
    if load_settings(warehouse=str(warehouse)).catalog_uri != lake.settings.catalog_uri:
        screen.line(f"export LAKEHOLD_CATALOG_URI={lake.settings.catalog_uri}")
    screen.line(f'lakehold sql --warehouse {warehouse} "{_ANALYSIS}"')
    screen.line(f"lakehold subscribe shop.orders --warehouse {warehouse}")
    screen.line(f"lakehold ingest shop --warehouse {warehouse}")
    screen.line(f"lakehold status --warehouse {warehouse}")
