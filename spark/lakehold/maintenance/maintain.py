"""Maintains tables: tags, then expiry, then files. Every step can be repeated, and interrupted anywhere.

Tags are put before anything is expired, and removed before their snapshots are, so that the history a hold needs always has a
tag.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TypeVar

from pyiceberg.table import Table

from lakehold.errors import CommitConflict, DefinitionError, LakeholdError, NotReadable
from lakehold.failpoints import failpoint
from lakehold.iceberg.attempts import missing, unreadable
from lakehold.iceberg.deletion import Refusal, delete, deletion_refused
from lakehold.maintenance.maintenance_plan import TablePlan
from lakehold.maintenance.procedures import Expired, Procedures, is_file_gone
from lakehold.maintenance.record_expiry import KEPT_MS, Records
from lakehold.maintenance.survey import MaintenanceScope, Survey
from lakehold.progress import Progress
from lakehold.spark_errors import is_conflict
from lakehold.state.holds import Hold

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_ATTEMPTS = 3
"""How often a rewrite is tried while other writers commit first."""


@dataclass(frozen=True)
class MaintenanceReport:
    """A report of what was done to one table; with `dry_run`, of what would be done.

    Attributes:
        table: Its full name.
        kept_from_ms: From when on it stays readable at least, inclusive; None: nothing of its history was expired.
        tags: Tags of lakehold that no hold needed.
        snapshots: Snapshots that were expired.
        files: Files that were deleted with them; with `dry_run` an estimate.
        bytes: Estimated size of those.
        rewritten: Data and delete files that were rewritten; the old ones are deleted when no history needs them.
        orphans: Files that the table did not refer to.
        rows: Rows of a system table that were too old to be kept.
        refusal: Files that nothing needs and that the store refused to delete; then `error` reports them, too.
        error: The error that stopped its maintenance; None: all was done.
        skipped: Why it cannot be maintained yet: its first snapshot is not complete.
    """

    table: str
    kept_from_ms: int | None = None
    tags: int = 0
    snapshots: int = 0
    files: int = 0
    bytes: int = 0
    rewritten: int = 0
    orphans: int = 0
    rows: int = 0
    refusal: Refusal = field(default_factory=Refusal)
    error: LakeholdError | None = None
    skipped: LakeholdError | None = None


@dataclass(frozen=True)
class Maintaining:
    """The maintenance of one lake.

    Args:
        survey: Plans.
        procedures: Acts on tables.
        records: Deletes old rows of system tables.
        let_go: Drops the holds of subscribers that no longer exist.
        enforce_lag: Moves the holds that exceed their MAX LAG.
    """

    survey: Survey
    procedures: Procedures
    records: Records
    let_go: Callable[[], None]
    enforce_lag: Callable[[], Sequence[Hold]]

    def run(
        self,
        names: Sequence[str] | None,
        progress: Progress,
        on_table: Callable[[MaintenanceReport], None] | None,
        *,
        dry_run: bool,
        orphans: bool = False,
    ) -> list[MaintenanceReport]:
        """Maintain the tables called `names`, or all; one that fails does not keep the others from being maintained.

        Only an error that ends Spark ends the list of reports, too.

        Args:
            names: Full names; None: all.
            progress: Shows which are done.
            on_table: Called with each report as its table is done.
            dry_run: Change nothing; report what would be done.
            orphans: Search for orphans in all of them, even where that was done recently.
        """
        if not dry_run:
            self.let_go()
            self.enforce_lag()
        reports = []
        scopes = self.survey.scopes(names, orphans=orphans)
        with progress.task("maintaining", unit="tables", total=len(scopes)) as task:
            for scope in scopes:
                report = self._reported(scope, is_named=names is not None, dry_run=dry_run)
                reports.append(report)
                if on_table is not None:
                    on_table(report)
                task.advance(1, scope.full_name)
                if report.error is not None and report.error.ends_process:
                    break
        return reports

    def _reported(self, scope: MaintenanceScope, *, is_named: bool, dry_run: bool) -> MaintenanceReport:
        report = MaintenanceReport(scope.full_name)
        try:
            for so_far in self._foreseen(scope) if dry_run else self._maintained(scope):
                report = so_far
            if report.refusal:
                report = replace(report, error=self._deletion_refused(report))
        except LakeholdError as error:
            why = self._explained(scope.full_name, error)
            # Without names, a table may be dropped meanwhile, or wait for its first snapshot to be complete.
            may_wait = isinstance(why, NotReadable) or why.code == "table-missing"
            report = replace(report, skipped=why) if may_wait and not is_named else replace(report, error=why)
        except (OSError, ValueError) as error:
            report = replace(report, error=unreadable(scope.full_name, error))
        return report

    def _explained(self, full_name: str, error: LakeholdError) -> LakeholdError:
        """Return the error that stopped the maintenance of a table.

        Spark's own does not say that the table was dropped meanwhile, or that files are damaged or gone.
        """
        if isinstance(error, DefinitionError):
            return error
        try:
            if self.survey.timelines.tables.table_state(full_name) is None:
                return missing(full_name)
            if error.code == "spark":
                self.survey.read_manifests(full_name)
        except DefinitionError as damage:
            return damage
        except LakeholdError as other:
            log.info("%s cannot be examined: %s", full_name, other.message)
        except OSError as gone:
            return unreadable(full_name, gone)
        return _of_table(full_name, error)

    def _foreseen(self, scope: MaintenanceScope) -> Iterator[MaintenanceReport]:
        plan = self.survey.plan(scope)
        report = replace(_report_of_plan(plan), rewritten=plan.rewrite.data_files + plan.rewrite.delete_files)
        yield (report := self._without_old(report, dry_run=True))
        yield self._without_orphans(report, scope, plan, dry_run=True)

    def _maintained(self, scope: MaintenanceScope) -> Iterator[MaintenanceReport]:
        """Maintain a table and yield the report so far, after each step."""
        if self.survey.tags.is_held(scope.full_name):
            self.survey.tags.put([scope.full_name])
        failpoint("after-tags")
        plan, steps = self.survey.plan(scope), _Steps()
        report = MaintenanceReport(scope.full_name, plan.kept_from_ms)
        yield (report := steps.run(partial(self._without_old, report, dry_run=False), report))
        if plan.unneeded_tags:
            self.survey.tags.remove(scope.full_name, plan.unneeded_tags)
            failpoint("after-untag")
            yield (report := replace(report, tags=len(plan.unneeded_tags)))
        plans = chain((plan,), iter(lambda: self.survey.plan(scope), None))
        expiry = partial(_while_others_write, scope.full_name, lambda: self._expired(next(plans)))
        plan, expired = steps.run(expiry, (replace(plan, expired=()), Expired(files=0, manifest_lists=0)))
        if plan.expired:
            failpoint("after-expiry")
            yield (
                report := replace(
                    report,
                    snapshots=len(plan.expired),
                    files=report.files + expired.files,
                    bytes=plan.freed.bytes,
                    refusal=self._refused_of(plan, expired) or report.refusal,
                )
            )
        rewritten = sum(steps.run(rewrite, 0) for rewrite in self._rewrites(plan))
        yield (report := replace(report, rewritten=rewritten, error=steps.conflict))
        failpoint("after-compaction")
        yield self._without_orphans(report, scope, plan, dry_run=False)

    def _expired(self, plan: TablePlan) -> tuple[TablePlan, Expired]:
        """Expire snapshots; return the plan that was followed, and what was deleted."""
        if not plan.expired:
            return plan, Expired(files=0, manifest_lists=0)
        return plan, self.procedures.expire_snapshots(plan.full_name, plan.expired)

    def _refused_of(self, plan: TablePlan, expired: Expired) -> Refusal:
        """Return files of expired snapshots that the store refused to delete, if it refused any manifest list.

        Spark reports only how many files it deleted. A manifest list belongs to one snapshot, so it is known how many of
        them there were, and it is safe to delete one again, which brings the store's message.
        """
        if expired.manifest_lists >= len(plan.manifest_lists):
            return Refusal()
        table = self._table(plan.full_name)
        kept = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
        return delete(table.io.delete, [path for path in plan.manifest_lists if path not in kept])

    def _rewrites(self, plan: TablePlan) -> Iterator[Callable[[], int]]:
        """Yield the rewrites that a plan needs; each returns how many data and delete files it rewrote."""
        name, rewrite = plan.full_name, plan.rewrite
        if not (rewrite.data_files or rewrite.delete_files or rewrite.manifests):
            return
        table, procedures = self._table(name), self.procedures
        if rewrite.data_files:
            in_order = not table.sort_order().is_unsorted
            data = partial(procedures.rewrite_data_files, name, rewrite, in_order=in_order)
            yield partial(_while_others_write, name, data)
        if rewrite.delete_files:
            yield partial(_while_others_write, name, partial(procedures.rewrite_position_delete_files, name))
        if rewrite.manifests and procedures.rewrites_manifests_safely(table.format_version):
            yield partial(_while_others_write, name, partial(procedures.rewrite_manifests, name))

    def _without_old(self, report: MaintenanceReport, *, dry_run: bool) -> MaintenanceReport:
        before_ms = self.survey.clock() - KEPT_MS
        forgotten = _while_others_write(
            report.table, lambda: self.records.forget(report.table, before_ms, dry_run=dry_run)
        )
        return replace(
            report,
            rows=forgotten.rows,
            files=report.files + forgotten.files,
            refusal=forgotten.refusal,
        )

    def _without_orphans(
        self, report: MaintenanceReport, scope: MaintenanceScope, plan: TablePlan, *, dry_run: bool
    ) -> MaintenanceReport:
        """Delete orphans and count them in the report.

        Most searches find none. Only after others are all tables loaded, to see whether the files may be of another one.
        """
        if plan.orphans_before_ms is None:
            return report
        name, before_ms = plan.full_name, plan.orphans_before_ms

        def removed(*, dry_run: bool) -> Sequence[str]:
            return _while_others_write(
                name, lambda: self.procedures.remove_orphan_files(name, before_ms, dry_run=dry_run)
            )

        found = removed(dry_run=True)
        if found and name not in scope.alone():
            log.warning("%d orphans of %s stay: another table may own them, or one cannot be read", len(found), name)
            found = ()
        refusal = Refusal()
        if found and not dry_run:
            # Deleted here, as Spark would list the store again, and does not report which files it refused to delete.
            refusal = delete(self._table(name).io.delete, [*filter(_is_plain, found)])
            if not all(map(_is_plain, found)):
                removed(dry_run=False)
        if not dry_run and not refusal:  # else the next maintenance searches again
            _while_others_write(name, lambda: self.procedures.record_orphan_search(name, self.survey.clock()))
        # Old files of the snapshots that were just expired are among the orphans: the sum might count them twice.
        at_least = max(report.refusal, refusal, key=lambda each: each.files)
        return replace(report, orphans=len(found) - refusal.files, refusal=at_least)

    def _deletion_refused(self, report: MaintenanceReport) -> LakeholdError:
        return deletion_refused(report.table, self._table(report.table).location(), report.refusal)

    def _table(self, full_name: str) -> Table:
        state = self.survey.timelines.tables.table_state(full_name)
        if state is None:
            raise missing(full_name)
        return state.table


@dataclass
class _Steps:
    """The steps of a table's maintenance: one that others kept from committing does not stop the next ones.

    Attributes:
        conflict: The last such failure.
    """

    conflict: CommitConflict | None = None

    def run(self, step: Callable[[], Result], otherwise: Result) -> Result:
        """Run a step and return its result, or `otherwise` if other writers committed first each time."""
        try:
            return step()
        except CommitConflict as error:
            self.conflict = error
            return otherwise


def _is_plain(path: str) -> bool:
    """Return whether PyIceberg reads the whole path as such: it would delete another file than `a?b`."""
    return not {"?", "#"} & set(path)


def _report_of_plan(plan: TablePlan) -> MaintenanceReport:
    return MaintenanceReport(
        plan.full_name,
        plan.kept_from_ms,
        tags=len(plan.unneeded_tags),
        snapshots=len(plan.expired),
        files=plan.freed.files,
        bytes=plan.freed.bytes,
    )


def _of_table(full_name: str, error: LakeholdError) -> LakeholdError:
    """Return an error that names the table; errors of Spark do not."""
    if full_name in error.message:
        return error
    detail = f"{error.message[:1].upper()}{error.message[1:]}. {error.detail}".rstrip()
    # The class says whether another try may help; only classes of other errors take more than texts.
    of_class = type(error) if error.retryable else LakeholdError
    return of_class(f'"{full_name}" cannot be maintained', code=error.code, detail=detail, hint=error.hint)


def _while_others_write(full_name: str, run: Callable[[], Result]) -> Result:
    """Run `run`, and again when another writer committed first or deleted a file.

    Other writers and other maintenance continue meanwhile.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return run()
        except LakeholdError as error:
            text, is_last = f"{error.message} {error.detail}", attempt == _ATTEMPTS - 1
            if not is_conflict(text) and (is_last or not is_file_gone(text)):
                raise
            log.info("another writer changed %s first: %s", full_name, error.message)
            if is_last:
                raise CommitConflict(
                    f'other writers kept changing "{full_name}"',
                    detail="One step of its maintenance changed nothing; the others were done.",
                    hint="Run lakehold maintain again when fewer batches run.",
                ) from error
    raise AssertionError("unreachable")
