"""`lakehold publish`: a row for each commit to an output table; Ctrl-C ends it between commits."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Event, Lock

from lakehold.cli.command_output import Output
from lakehold.cli.interrupt import INTERRUPTED, stop_on_signal
from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.model.lake_definitions import Definitions
from lakehold.progress import Progress, Task
from lakehold.publish.publisher import PublishReport
from lakehold.sql.result import Result
from lakehold.times import iso

COLUMNS = ("table", "position", "at", "timestamps", "rows", "snapshot_id", "restarted")
"""The fields of `PublishReport` for the output `table`, with its `position_ms` twice: as `position`, and `at` as text in UTC."""
_FIRST_PAUSE_S = 1.0
_MAX_PAUSE_S = 30.0


def run_publish(lake: Lake, names: Sequence[str] | None, output: Output, progress: Progress, *, follow: bool) -> int:
    """Publish what is due, or continue until Ctrl-C; the next run publishes what was not committed.

    Args:
        lake: The lake.
        names: Subscriptions, and full names of materialized views; None: all. One that fails does not keep the others from
            being published.
        output: Where rows and errors go.
        progress: Shows how many rows were published.
        follow: Whether to continue with new changes.

    Returns:
        The exit code: 0, 1 when one failed, `INTERRUPTED` when Ctrl-C came before the end. Following has no
        end: Ctrl-C is no failure there.

    Raises:
        DefinitionError: There is no subscription or view of one of the names.
    """
    stop = stop_on_signal()
    # Subscriptions of the same tables follow each other, so that the diffs that one reads are still cached for the next.
    wanted = [name for group in lake.subscriptions.together(names) for name in group]
    defined = lake.definitions.definitions()
    output.begin(COLUMNS)
    what = wanted[0] if len(wanted) == 1 else f"{len(wanted)} subscriptions and views"
    with progress.task(f"publishing {what}", unit="rows") as task:
        publishing = _Publishing(lake, output, task, stop, follow, len(wanted) > 1, frozenset(defined.views))
        if len(wanted) == 1:
            went_well = publishing.run(wanted[0])
        elif follow and wanted:
            # A view can be followed once it was refreshed, and what it reads before it.
            for name in (name for name in wanted if name in defined.views):
                replace(publishing, follow=False).run(name)
            with ThreadPoolExecutor(len(wanted), thread_name_prefix="lakehold-publish") as pool:
                went_well = all(list(pool.map(publishing.run_or_stop_all, wanted)))
        else:
            went_well = _run_side_by_side(publishing, wanted, defined)
    if stop.is_set() and not follow:
        return INTERRUPTED
    return 0 if went_well else 1


def _run_side_by_side(publishing: _Publishing, wanted: Sequence[str], defined: Definitions) -> bool:
    """Publish several at once, each after the views that it reads; return whether all went well."""
    waiting, ended = deque(wanted), {name: Event() for name in wanted}

    def publish_next() -> bool:
        went_well = True
        while (name := _taken(waiting)) is not None:
            # A view comes before all that read it, so another lane has begun with it.
            for table in ended.keys() & set(defined.derived(name).definition.tables):
                ended[table].wait()
            try:
                went_well &= publishing.run(name)
            finally:
                ended[name].set()
        return went_well

    return all(publishing.lake.lanes.run_in_each(publish_next))


def _taken(waiting: deque[str]) -> str | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


@dataclass(frozen=True)
class _Publishing:
    """One run of the command. When it follows several subscriptions, their threads share it.

    `views` are the full names of the lake's materialized views.
    """

    lake: Lake
    output: Output
    task: Task
    stop: Event
    follow: bool
    is_one_of_many: bool
    views: frozenset[str]
    showing: Lock = field(default_factory=Lock)

    def run(self, name: str) -> bool:
        """Publish one subscription; return false after showing the error when it failed."""
        pause_s = _FIRST_PAUSE_S
        while not self.stop.is_set():
            try:
                publications = self.lake.publications(name, self.stop if self.follow else None)
                for report in publications:
                    self._show(report)
                    pause_s = _FIRST_PAUSE_S
                    if self.stop.is_set() and not self.follow:
                        publications.close()
                return True
            except LakeholdError as error:
                self._show_error(name, error)
                # Following survives a catalog that restarts, and another publisher that runs for a while.
                if not (self.follow and error.retryable) or error.ends_process:
                    return False
            self.stop.wait(pause_s)
            pause_s = min(pause_s * 2, _MAX_PAUSE_S)
        return True

    def run_or_stop_all(self, name: str) -> bool:
        """Publish one of several that are followed; an unforeseen error ends the others, or it would wait for them for ever."""
        try:
            return self.run(name)
        except BaseException:
            self.stop.set()
            raise

    def _show(self, report: PublishReport) -> None:
        with self.showing:
            self.task.advance(report.rows, f"{report.subscription} below {iso(report.position_ms)}")
            self.output.result(Result(COLUMNS, [_row(report)]))

    def _show_error(self, name: str, error: LakeholdError) -> None:
        with self.showing:
            if self.is_one_of_many:
                kind = "materialized view" if name in self.views else "subscription"
                self.output.notice(f"{kind} {name} was not published")
            self.output.error(error)


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
