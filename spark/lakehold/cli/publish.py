"""`lakehold publish`: a row for each commit to the output table, Ctrl-C between them."""

from __future__ import annotations

from lakehold.cli.interrupt import stop_on_signal
from lakehold.cli.output import Output
from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.progress import Progress
from lakehold.publish.publisher import PublishReport
from lakehold.sql.result import Result
from lakehold.times import iso

COLUMNS = ("table", "position", "at", "timestamps", "rows", "snapshot_id", "restarted")
_POLL_S = 1.0
_MAX_PAUSE_S = 30.0


def run_publish(lake: Lake, name: str, output: Output, progress: Progress, *, follow: bool) -> bool:
    """Publish what there is, or go on until Ctrl-C; what was not committed then comes the next time.

    Returns:
        Whether it came to its end: to follow has none, so Ctrl-C is one.
    """
    stop = stop_on_signal()
    pause_s = _POLL_S
    with progress.task(f"publishing {name}", unit="rows") as task:
        while True:
            try:
                publications = lake.publications(name, stop if follow else None)
                for report in publications:
                    task.advance(report.rows, f"below {iso(report.position_ms)}")
                    output.result(Result(COLUMNS, [_row(report)]))
                    pause_s = _POLL_S
                    if stop.is_set() and not follow:
                        publications.close()
                        return False
                return True
            except LakeholdError as error:
                # Following outlives a catalog that restarts and another publisher that runs for a while.
                if not (follow and error.retryable):
                    raise
                output.error(error)
            if stop.wait(pause_s):
                return True
            pause_s = min(pause_s * 2, _MAX_PAUSE_S)


def _row(report: PublishReport) -> tuple[object, ...]:
    return (
        report.table,
        report.position_ms,
        iso(report.position_ms),
        report.timestamps,
        report.rows,
        report.snapshot_id,
        report.restarted,
    )
