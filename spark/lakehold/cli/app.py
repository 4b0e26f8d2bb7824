"""The `lakehold` command: opens a lake, calls its methods and writes what they return."""

from __future__ import annotations

import logging
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from lakehold import spark_log
from lakehold.cli.command_output import Commands, OutputFormat, error_lines, open_output, reported
from lakehold.cli.doctor import doctor
from lakehold.cli.init import init
from lakehold.cli.interrupt import INTERRUPTED, interrupt_on_signal
from lakehold.cli.metrics import metrics_of, refuse_without_follow
from lakehold.cli.option_types import Format, MaxRows, Metrics, Quiet, ResumeFile, Timeout, Warehouse
from lakehold.cli.progress import open_progress
from lakehold.cli.script_text import script_text
from lakehold.cli.serve import serve
from lakehold.cli.stack import app as stack_app
from lakehold.cli.status import status
from lakehold.errors import LakeholdError, SettingsError
from lakehold.spark_server.cli import app as spark_app

app = typer.Typer(
    name="lakehold",
    cls=Commands,
    help="Keeps Apache Iceberg tables equal to upstream databases, and lets people read exactly how they changed.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(spark_app, name="spark")
app.add_typer(stack_app, name="stack")


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"lakehold {metadata.version('lakehold')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that belong to no command."""


def _examples(*commands: str) -> str:
    """Join example commands into the text below the options; the backspace keeps each on a line of its own."""
    return "\n".join(["\b", *commands])


@app.command(
    epilog=_examples(
        'lakehold sql "SHOW TABLES"',
        "lakehold sql -f shop.sql",
        'lakehold sql "SELECT * FROM shop.orders LIMIT 10" --format csv',
    )
)
def sql(
    text: Annotated[str | None, typer.Argument(metavar="SQL", help="Statements, separated by semicolons.")] = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the statements from a file ('-': stdin).")
    ] = None,
    output_format: Format = None,
    warehouse: Warehouse = None,
) -> None:
    """Run SQL: define sources and tables, or query with Spark."""
    output = open_output(output_format, sys.stdout, sys.stderr)
    with reported(output):
        script = script_text(text, file)
        from lakehold.lake import connect

        with connect(warehouse) as lake:
            output.result(lake.sql(script))


@app.command(epilog=_examples("lakehold ingest shop", "lakehold ingest shop billing --follow", "lakehold ingest --all"))
def ingest(  # noqa: PLR0913 - a command's options
    sources: Annotated[list[str] | None, typer.Argument(metavar="SOURCE", help="Their names.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Ingest all sources that have tables.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new records until Ctrl-C.")] = False,
    metrics: Metrics = None,
    output_format: Format = None,
    quiet: Quiet = False,
    warehouse: Warehouse = None,
) -> None:
    """Merge the records of sources' topics into their tables.

    Several sources are ingested side by side. Sources that read the same topics read and decode them once. The output
    has one line for each table that a batch changed. Exit code 1 when a table or a source failed: the others continued,
    and the error says what to do.
    """
    if bool(sources) == every:
        raise typer.BadParameter("name sources, or say --all", param_hint="SOURCE")
    refuse_without_follow(metrics, follow=follow)
    output = open_output(output_format, sys.stdout, sys.stderr)
    with reported(output):
        from lakehold.cli.ingest import run_ingest
        from lakehold.lake import connect

        with connect(warehouse) as lake, metrics_of(lake, metrics, output):
            code = run_ingest(lake, sources, output, open_progress(sys.stderr, quiet=quiet), follow=follow)
        if code:
            raise typer.Exit(code)


@app.command(epilog=_examples("lakehold backfill shop.orders", "lakehold backfill shop.orders shop.items --quiet"))
def backfill(
    tables: Annotated[list[str], typer.Argument(metavar="TABLE", help="Full names, such as shop.orders.")],
    *,
    output_format: Format = None,
    quiet: Quiet = False,
    warehouse: Warehouse = None,
) -> None:
    """Fill new tables of a running source, and retry stopped ones.

    A separate reader catches up with what the tables lack, while the other tables of the source continue. The tables join
    the others once both have reached the same offsets, and are readable from then on. An interrupted run is continued
    by the next one. Each ingest does the same for all tables of its source; the status command shows their progress.

    One line a table. Exit code 1 when a table is not in sync with the others: the error says why and what to do.
    """
    output = open_output(output_format, sys.stdout, sys.stderr)
    with reported(output):
        from lakehold.cli.backfill import run_backfill
        from lakehold.lake import connect

        with connect(warehouse) as lake:
            code = run_backfill(lake, tables, output, open_progress(sys.stderr, quiet=quiet))
        if code:
            raise typer.Exit(code)


@app.command(
    epilog=_examples(
        "lakehold subscribe shop.orders --follow",
        'lakehold subscribe "SUBSCRIBE shop.orders ENVELOPE UPSERT (KEY (id))" --follow',
        "lakehold subscribe \"SUBSCRIBE shop.orders AS OF '2026-11-21 12:00'\"",
    )
)
def subscribe(  # noqa: PLR0913 - a command's options
    text: Annotated[str, typer.Argument(metavar="SUBSCRIBE", help="A table, or a whole SUBSCRIBE statement.")],
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new changes until Ctrl-C or UP TO.")] = False,
    max_rows: MaxRows = None,
    timeout: Timeout = None,
    resume_file: ResumeFile = None,
    output_format: Format = None,
    quiet: Quiet = False,
    warehouse: Warehouse = None,
) -> None:
    """Show the rows of a table or a query, and how they change.

    Rows appear as timestamps complete.
    """
    output = open_output(output_format, sys.stdout, sys.stderr)
    with reported(output):
        from lakehold.cli.subscribe import ReadLimits, run_subscribe
        from lakehold.lake import connect

        with connect(warehouse) as lake:
            shown = open_progress(sys.stderr, quiet=quiet or sys.stdout.isatty())
            limits = ReadLimits(max_rows=max_rows, timeout_s=timeout, resume_file=resume_file)
            if not run_subscribe(lake, text, output, shown, limits, follow=follow):
                raise typer.Exit(INTERRUPTED)


@app.command()
def maintain(  # noqa: PLR0913 - a command's options
    tables: Annotated[list[str] | None, typer.Argument(metavar="TABLE", help="By default all.")] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; report what would be done.")] = False,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Search for files that no table refers to, even if that was done today.")
    ] = False,
    output_format: Format = None,
    quiet: Quiet = False,
    warehouse: Warehouse = None,
) -> None:
    """Expire history that nothing needs, and compact small files.

    Files that no table refers to are deleted. Exit code 1 when a table failed: the others were maintained.
    """
    output = open_output(output_format, sys.stdout, sys.stderr)
    with reported(output):
        from lakehold.cli.maintain import run_maintain
        from lakehold.lake import connect

        with connect(warehouse) as lake:
            progress = open_progress(sys.stderr, quiet=quiet)
            healthy = run_maintain(lake, tables or [], output, progress, dry_run=dry_run, orphans=orphans)
        if not healthy:
            raise typer.Exit(1)


@app.command(
    epilog=_examples(
        "lakehold check shop.orders",
        "lakehold check shop.orders --at '2026-11-21 12:00' --html orders.html",
        "lakehold check shop.orders --write-suite",
    )
)
def check(  # noqa: PLR0913 - a command's options
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Full name of the table.")],
    *,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Check it as of a time: epoch milliseconds or ISO 8601.")
    ] = None,
    hold: Annotated[
        str | None, typer.Option("--hold", metavar="HOLD", help="Check it as of a hold; the hold keeps the verdict.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write the page to a file.")] = None,
    suite: Annotated[
        bool, typer.Option("--write-suite", help="Check nothing; write the generated suite to a file for editing.")
    ] = False,
    output_format: Format = None,
    warehouse: Warehouse = None,
) -> None:
    """Run a table's suite of Great Expectations.

    Without a file for the table, the suite is generated from its schema and key. Exit code 1 when the table does not
    meet the expectations: the rows say where.
    """
    output = open_output(output_format, sys.stdout, sys.stderr)
    with reported(output):
        from lakehold.cli.check import CheckRequest, run_check
        from lakehold.lake import connect

        with connect(warehouse) as lake:
            passed = run_check(lake, CheckRequest(table, at, hold, html, writes_suite=suite), output)
        if not passed:
            raise typer.Exit(1)


@app.command(
    epilog=_examples(
        "lakehold verify app.users",
        "lakehold verify app.users app.orders --format json",
        "lakehold verify bi.users --connection pg --upstream public.users",
    )
)
def verify(  # noqa: PLR0913 - a command's options
    tables: Annotated[list[str], typer.Argument(metavar="TABLE", help="Full names of captured tables, or of views.")],
    *,
    connection: Annotated[
        str | None, typer.Option("--connection", metavar="NAME", help="Of a copy that is not captured: its database.")
    ] = None,
    upstream: Annotated[
        str | None, typer.Option("--upstream", metavar="SCHEMA.TABLE", help="The table in that database.")
    ] = None,
    output_format: Format = None,
    quiet: Quiet = False,
    warehouse: Warehouse = None,
) -> None:
    """Compare tables with their database, views with their query.

    Nothing is stopped: rows that change meanwhile are read again. The sources are ingested as far as it needs, unless
    another process does that. Exit code 1 when a row differs: the output says which keys differ, and why that may be.
    Exit code 2 when a table could not be compared.
    """
    if (connection is None) != (upstream is None) or (connection is not None and len(tables) > 1):
        raise typer.BadParameter("name both for one TABLE, or neither", param_hint="--connection, --upstream")
    output = open_output(output_format, sys.stdout, sys.stderr)
    with reported(output, code=2):
        from lakehold.cli.verify import run_verify
        from lakehold.lake import connect

        interrupt_on_signal()
        with connect(warehouse) as lake:
            progress = open_progress(sys.stderr, quiet=quiet)
            code = run_verify(lake, tables, output, progress, connection=connection, upstream=upstream)
        if code:
            raise typer.Exit(code)


@app.command(epilog=_examples("lakehold publish order_changes --follow", "lakehold publish --all"))
def publish(  # noqa: PLR0913 - a command's options
    subscriptions: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Subscriptions, or full names of views.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Publish all subscriptions and views.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new changes until Ctrl-C.")] = False,
    metrics: Metrics = None,
    output_format: Format = None,
    quiet: Quiet = False,
    warehouse: Warehouse = None,
) -> None:
    """Publish subscriptions, and refresh materialized views.

    Each timestamp is published once; the output has one line for each commit. Subscriptions that read the same tables
    read each change once, and a view is refreshed before all that read it. Exit code 1 when one failed: the others were
    published.
    """
    if bool(subscriptions) == every:
        raise typer.BadParameter("name subscriptions or views, or say --all", param_hint="NAME")
    refuse_without_follow(metrics, follow=follow)
    output = open_output(output_format, sys.stdout, sys.stderr)
    with reported(output):
        from lakehold.cli.publish import run_publish
        from lakehold.lake import connect

        with connect(warehouse) as lake, metrics_of(lake, metrics, output):
            progress = open_progress(sys.stderr, quiet=quiet)
            code = run_publish(lake, subscriptions, output, progress, follow=follow)
        if code:
            raise typer.Exit(code)


app.command(epilog=_examples("lakehold serve", "lakehold serve --port 32011 --tokens tokens"))(serve)


app.command(
    epilog=_examples(
        *("lakehold status", "lakehold status --watch", "lakehold status --html lake.html"),
        "lakehold status --prometheus lake.prom",
    )
)(status)
app.command()(doctor)
app.command(epilog=_examples("lakehold init", "lakehold init my-lake"))(init)


@app.command()
def demo(
    *,
    live: Annotated[
        bool, typer.Option("--live", help="Start PostgreSQL, Debezium and Kafka on this machine and use them.")
    ] = False,
    airflow: Annotated[
        bool, typer.Option("--airflow", help="Run the live shop under Airflow, with its UI, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=1, max=65_535, help="Port of Airflow's UI.")] = 8080,
    directory: Annotated[
        Path | None,
        typer.Option("--directory", help="Directory of the demo's lake; by default a new temporary one."),
    ] = None,
    seconds: Annotated[int, typer.Option("--seconds", min=1, help="How long the live shop is open.")] = 60,
) -> None:
    """Show a small shop's changes arriving in Iceberg tables."""
    output = open_output(OutputFormat.TABLE, sys.stdout, sys.stderr)
    with reported(output):
        from lakehold.demo.show import run_demo

        run_demo(sys.stdout, live=live, directory=directory, seconds=seconds, airflow=airflow, port=port)


def _log_directory() -> Path:
    from lakehold.artifacts import cache_root

    return cache_root() / "logs"


def _log_level() -> str:
    level = os.environ.get("LAKEHOLD_LOG", "").upper() or "WARNING"
    if level not in logging.getLevelNamesMapping():
        raise SettingsError(
            f'LAKEHOLD_LOG is "{level}", which is no level',
            detail=f"The levels are {', '.join(name for name in logging.getLevelNamesMapping() if name != 'NOTSET')}.",
            hint="Set one of them, or unset it: the level is WARNING then.",
        )
    return level


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return whether a record is to be written: Py4J logs errors that it raises as well, with tracebacks."""
    return record.module != "java_gateway"


def main() -> None:
    """Run the `lakehold` command."""
    spark_log.keep_apart(_log_directory)
    try:
        logging.basicConfig(level=_log_level(), format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger().addFilter(_is_not_of_py4j)
        app()
    except LakeholdError as error:
        sys.stderr.write("".join(f"{line}\n" for line in error_lines(error)))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        if not end.code or spark_log.written() is None:
            spark_log.discard()
        raise
