"""Plots of the benchmarks' page: each ratio beside its floor, its goal and the ratios measured before."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tests.benchmarks.figures import is_rate
from tests.benchmarks.results import Result

_COLORS = {True: "#00796b", False: "#c62828", None: "#616161"}
_GOAL, _PAST = "#1a237e", "#9e9e9e"
_STYLE: dict[Any, Any] = {
    # Texts stay texts, which a reader can search, and names of clips do not change from run to run.
    "svg.fonttype": "none",
    "svg.hashsalt": "lakehold",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
}
_ROW_INCHES, _WIDTH_INCHES = 0.45, 6.0


def drawn(results: Sequence[Result]) -> str:
    """Draw the figures of a part of the page as SVG, one row each."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_INCHES, _ROW_INCHES * (len(results) + 2)))
        axes = figure.add_subplot()
        axes.axvline(1, color="black", linewidth=0.8, linestyle="--", zorder=1)
        for row, result in enumerate(results):
            _draw_row(axes, row, result)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g} \u00d7"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(len(results) - 0.5, -0.5)
        axes.set_yticks([*range(len(results))], [f"{result.name}\nagainst {result.floor}" for result in results])
        axes.tick_params(axis="y", length=0, labelsize=7)
        axes.grid(axis="x", color="#eeeeee", zorder=0)
        axes.legend(
            handles=_legend(), loc="upper center", bbox_to_anchor=(0, -1 / (len(results) + 1)), ncols=3, frameon=False
        )
        file = io.StringIO()
        figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def _draw_row(axes: Axes, row: int, result: Result) -> None:
    ratios = [measured.ratio for measured in result.measured]
    axes.plot(ratios, [row] * len(ratios), color=_PAST, linewidth=0.8, zorder=2)
    for age, ratio in enumerate(reversed(ratios[:-1]), start=1):
        axes.plot(ratio, row, "o", color=_PAST, markersize=4, alpha=max(1 - 0.15 * age, 0.3), zorder=2)
    if result.goal is not None:
        axes.plot(result.goal, row, _better_side(result), color=_GOAL, markersize=7, fillstyle="none", zorder=3)
    axes.plot(ratios[-1], row, "o", color=_COLORS[result.is_met], markersize=7, zorder=4)


def _better_side(result: Result) -> str:
    """Return a triangle that points to where the goal is met."""
    return ">" if is_rate(result.unit) else "<"


def _legend() -> list[Line2D]:
    def mark(label: str, marker: str, color: str, *, filled: bool = True) -> Line2D:
        style: Literal["full", "none"] = "full" if filled else "none"
        return Line2D([], [], marker=marker, color=color, linestyle="", label=label, fillstyle=style)

    return [
        mark("newest, goal met", "o", _COLORS[True]),
        mark("newest, goal missed", "o", _COLORS[False]),
        mark("newest, no goal", "o", _COLORS[None]),
        mark("goal, at most", "<", _GOAL, filled=False),
        mark("goal, at least", ">", _GOAL, filled=False),
        mark("measured before", "o", _PAST),
    ]
