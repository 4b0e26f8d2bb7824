"""The page of a verdict: one HTML file that needs no script, no style sheet and no network."""

from __future__ import annotations

from pyiceberg.io import FileIO

from lakehold.errors import LakeholdError, SettingsError, UpstreamUnavailable
from lakehold.file_names import file_name_of
from lakehold.iceberg.catalog_outages import reason_of
from lakehold.iceberg.store_errors import store_hint
from lakehold.quality.describe import examples_text, keys_text
from lakehold.quality.verdict import Verdict
from lakehold.settings import local_path
from lakehold.state.hold_checks import DATABASE, QUERY
from lakehold.templates import page_template
from lakehold.times import iso


def page_uri(directory: str, verdict: Verdict, table_id: str) -> str:
    """Return the URI of a verdict's page below `directory`, where no other lake has one.

    A new check of the same snapshot replaces the page, and so does a new comparison the page of a comparison.

    Args:
        directory: The directory of pages, perhaps of several lakes.
        verdict: The verdict.
        table_id: The UUID of the table: without a snapshot, nothing else sets it apart from another lake's table of its name.
    """
    of_comparison = f"-{verdict.suite}" if verdict.suite in (DATABASE, QUERY) else ""
    file = f"{verdict.snapshot_id or f'no-rows-{table_id}'}{of_comparison}.html"
    return f"{directory.rstrip('/')}/{file_name_of(verdict.full_name)}/{file}"


def page_text(verdict: Verdict) -> str:
    """Render the page of a verdict."""
    ordered = sorted(verdict.outcomes, key=lambda outcome: outcome.success)
    return page_template("lakehold.quality").render(
        verdict=verdict, outcomes=ordered, iso=iso, examples_text=examples_text, keys_text=keys_text
    )


def write_page(verdict: Verdict, io: FileIO, uri: str) -> None:
    """Write the page of `verdict` to `uri` by `io`.

    Raises:
        SettingsError: The page cannot be written there.
        UpstreamUnavailable: The object store does not work.
    """
    text = page_text(verdict).encode()
    try:
        if path := local_path(uri):
            path.parent.mkdir(parents=True, exist_ok=True)
        with io.new_output(uri).create(overwrite=True) as file:
            file.write(text)
    except (OSError, ValueError) as error:
        raise _unwritten(verdict, uri, error) from error


def _unwritten(verdict: Verdict, uri: str, cause: Exception) -> LakeholdError:
    return (UpstreamUnavailable if store_hint(str(cause)) else SettingsError)(
        f'the page of the check of "{verdict.full_name}" cannot be written',
        code="check-page",
        detail=f'Writing "{uri}" failed: {reason_of(cause)}.',
        hint="Let lakehold write there, or set check_pages to a directory or URI where it may.",
    )
