"""Rows as an HTML table, which notebooks show for results and batches."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from lakehold.printable import printable

_SHOWN_MOST = 100


def html_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], notices: Sequence[str] = ()) -> str:
    """Write rows as a table, and notices below; every text is escaped, and a long table ends with the number of its rows."""
    head = "".join(f"<th>{_escaped(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:_SHOWN_MOST])
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if columns else ""
    more = f"<p>{_SHOWN_MOST} of {len(rows):,} rows</p>" if len(rows) > _SHOWN_MOST else ""
    return table + more + "".join(f"<p>{_escaped(text)}</p>" for text in notices)


def _cell(value: object) -> str:
    if value is None:
        return "<td><i>null</i></td>"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    style = ' style="text-align:right"' if is_number else ""
    return f"<td{style}>{_escaped(value)}</td>"


def _escaped(value: object) -> str:
    return escape(printable(str(value)))
