# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws SVG pictures with matplotlib (imported here only) in the style of the page.

Colours are drawn as stand-ins and replaced by the page's CSS variables, so that one picture serves dark, light and
print. Text stays text in the page's own font. Equal input gives equal output: no date, ids from a fixed salt.
"""

from __future__ import annotations

import importlib.util
import io
import logging
import re
import typing as t

from markupsafe import Markup, escape

if t.TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, RULE, PAPER = "#010101", "#020202", "#030303", "#040404"
ACCENT, BAD, WARN = "#050505", "#060606", "#070707"
HEAT = tuple(f"#1{index}1{index}1{index}" for index in range(7))
SERIES = tuple(f"#2{index}2{index}2{index}" for index in range(8))
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    RULE: "--rule",
    PAPER: "--paper",
    ACCENT: "--accent",
    BAD: "--bad",
    WARN: "--warn",
    **{colour: f"--heat-{index}" for index, colour in enumerate(HEAT)},
    **{colour: f"--series-{index}" for index, colour in enumerate(SERIES)},
}
FONT_SIZE = 12.0
_SETTINGS: dict[str, t.Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": FONT_SIZE,
    "text.color": MUTED,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 1.0,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "hatch.color": RULE,
    "path.simplify": True,
    # Names of nodes are text: a dollar sign in one does not begin a formula.
    "text.parse_math": False,
}


class Size(t.NamedTuple):
    """A picture's size in CSS pixels at its natural scale; ``name`` is the class that shows it (wide, narrow)."""

    name: t.Literal["wide", "narrow"]
    width: int
    height: int


Painter = t.Callable[["Figure", Size], None]


def missing_package() -> str:
    """Return what to do to get plots, empty where they can be drawn."""
    there = importlib.util.find_spec("matplotlib") is not None
    return (
        "" if there else "plots need the Python package matplotlib where ansible-playbook runs: pip install matplotlib"
    )


def draw_svg(size: Size, salt: str, title: str, paint: Painter) -> Markup:
    """Return an inline SVG of what ``paint`` draws. ``title`` is what a screen reader says; ``salt`` is unique.

    Without matplotlib it is a picture of one sentence that says so: the figures of the page are worth having alone.
    """
    if missing_package():
        return _draw_absence(size, title)
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # A name in a script that DejaVu lacks is drawn by the reader's browser: no glyph is missed here.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    settings: t.Any = {**_SETTINGS, "svg.hashsalt": f"{salt}-{size.name}"}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(size.width / 72, size.height / 72))
        figure.patch.set_visible(False)
        paint(figure, size)
        out = io.StringIO()
        canvas: t.Any = FigureCanvasSVG(figure)
        canvas.print_svg(out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return clean_svg(out.getvalue(), size, title)


def _draw_absence(size: Size, title: str) -> Markup:
    words = "Not drawn: matplotlib is not installed."
    return Markup(
        '<svg class="{}" viewBox="0 0 {} 40" role="img"><title>{}. {}</title>'
        '<text x="0" y="24" font-size="13" fill="currentColor">{}</text></svg>'
    ).format(size.name, size.width, title, words, words)


def add_axes(figure: Figure, size: Size, box: tuple[float, float, float, float]) -> Axes:
    """Return axes with a hairline below; ``box`` is the space left, top, right, bottom of them in pixels."""
    left, top, right, bottom = box
    width, height = size.width - left - right, size.height - top - bottom
    ax = figure.add_axes((left / size.width, bottom / size.height, width / size.width, height / size.height))
    for side in ("left", "top", "right"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="y", length=0, pad=6)
    ax.tick_params(axis="x", length=3, pad=4)
    ax.patch.set_visible(False)
    ax.set_axisbelow(True)
    return ax


def set_round_ticks(axis: t.Any, most: int, *, whole: bool = False) -> None:
    """Put at most about ``most`` round numbers on an axis."""
    from matplotlib import ticker

    axis.set_major_locator(ticker.MaxNLocator(most, integer=whole))


def hide_minor_ticks(axis: t.Any) -> None:
    """Take the ticks between the decades off a logarithmic axis."""
    from matplotlib import ticker

    axis.set_minor_locator(ticker.NullLocator())


def fill_boxes(ax: Axes, boxes: t.Iterable[tuple[float, float, float, float]], colour: str) -> None:
    """Fill boxes (left, top, right, bottom) as one path: thousands of cells stay one element of the page."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    points: list[tuple[float, float]] = []
    for left, top, right, bottom in boxes:
        points += [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * (len(points) // 5)
    ax.add_patch(PathPatch(Path(points, codes), facecolor=colour, linewidth=0))


def draw_frame(ax: Axes, left: float, top: float, colour: str) -> None:
    """Draw a frame around the cell of size 1 at ``left``, ``top``."""
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((left, top), 1, 1, fill=False, edgecolor=colour, linewidth=2, clip_on=False))


_ROOT = re.compile(r"<svg\b[^>]*>")
_PLACES = re.compile(r' (?:d|x|y|points|transform)="[^"]*"')


def clean_svg(svg: str, size: Size, title: str) -> Markup:
    """Return matplotlib's SVG document as an element of the page.

    Its prologue, its page-wide style and the ids that nothing refers to go; colours and fonts become the page's.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r"<style[^>]*>.*?</style>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    body = re.sub(r' id="(?![mph][0-9a-f]{10}")[^"]*"', "", body)
    body = re.sub(r"#(?:0([1-7])){3}|#(1[0-6]){3}|#(2[0-7]){3}", _css_variable, body)
    body = re.sub(r"font: ([0-9.]+)px [^;\"]*", r"font-size: \1px", body)
    body = re.sub(r"(font-size: [0-9.]+px); font-family: [^;\"]*", r"\1", body)
    body = re.sub(r' transform="rotate\(-?0 [^"]*"', "", body).replace("xlink:href", "href")
    body = _PLACES.sub(lambda match: re.sub(r"(\.[0-9])[0-9]+|\s*\n", r"\1", match.group(0)), body)
    body = re.sub(r"<g>\s*</g>\s*|<defs>\s*</defs>\s*", "", body)
    body = re.sub(r"\n\s*", "\n", body)
    name = f"<title>{escape(title)}</title>"
    root = f'<svg class="{size.name}" viewBox="0 0 {size.width} {size.height}" role="img" xmlns="http://www.w3.org/2000/svg">'
    return Markup(_ROOT.sub(lambda _match: root + name, body, count=1).strip())


def _css_variable(match: re.Match[str]) -> str:
    name = _VARIABLES.get(match.group(0))
    return f"var({name})" if name else match.group(0)
