# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report in a real browser: on a wide screen, on a phone, dark, and on paper."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import load_run
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.page import render_html
from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.support import browser, debian, report_runs

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "report"
# A run with all that a page can have.
LARGE = ("gpu64",)
PAPER = 2
CONTRAST = 4.5
# It shows a colour of a picture, whatever that is.
SWATCH = "\N{LOWER SEVEN EIGHTHS BLOCK}"

# Every piece of text that is shown: where it is, how it is coloured, and on what.
TEXTS = r"""
(() => {
  const numbers = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const solid = (text) => { const c = numbers(text); return c.length >= 3 && (c.length < 4 || c[3] === 1) ? c : null; };
  const ground = (node, x, y) => {
    for (const below of document.elementsFromPoint(x, y)) {
      if (below === node || node.contains(below)) continue;
      const style = getComputedStyle(below), drawn = below instanceof SVGGeometryElement;
      const shape = drawn && style.fill !== "none" && style.fillOpacity > 0.99 && style.opacity > 0.99;
      const colour = shape ? solid(style.fill) : drawn ? null : solid(style.backgroundColor);
      if (colour) return colour;
    }
    return null;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, owner = node.parentElement;
    if (!node.data.trim() || !owner.checkVisibility() || owner.closest("title")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const style = getComputedStyle(owner), colour = solid(owner instanceof SVGElement ? style.fill : style.color);
    for (const box of range.getClientRects()) {
      if (box.width < 1 || box.height < 1) continue;
      const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
      const words = node.data.trim().slice(0, 60);
      found.push({words, left: box.left, right: box.right, top: box.top, bottom: box.bottom, colour,
                  ground: ground(owner, x, y)});
    }
  }
  return found;
})()
"""
WIDTHS = "[document.scrollingElement.scrollWidth, window.innerWidth]"
# What a stacked table says before its values.
LABELS = r"""
[...document.querySelectorAll("tr")].map((row) => [...row.querySelectorAll("td")].filter((cell) =>
  cell.checkVisibility() && getComputedStyle(cell, "::before").content.includes(cell.dataset.label)
).map((cell) => cell.dataset.label))
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[browser.Page]:
    """A browser for all pages of this file."""
    if reason := debian.obtain("chromium", "chromium"):
        lacking(reason)
    found = browser.Page(str(debian.program("chromium")), tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    """The pages of the runs, by name."""
    place = tmp_path_factory.mktemp("reports")
    folders = {name: report_runs.write_run(name, place) for name in report_runs.NAMES}
    folders |= {name: FIXTURES / name for name in LARGE}
    for name, folder in folders.items():
        (place / f"{name}.html").write_text(render_html(load_run(folder)), encoding="utf-8")
    return {name: place / f"{name}.html" for name in folders}


def overlapping(texts: list[dict[str, t.Any]]) -> list[str]:
    """Return pairs of texts that lie on each other by more than a hair."""
    found = []
    for place, one in enumerate(texts):
        for other in texts[place + 1 :]:
            wide = min(one["right"], other["right"]) - max(one["left"], other["left"])
            high = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
            if wide > 2 and high > 3:
                found.append(f"{one['words']} | {other['words']}")
    return found


def contrast(one: list[float], other: list[float]) -> float:
    """Return the WCAG 2.2 contrast ratio of two colours."""

    def luminance(colour: list[float]) -> float:
        parts = [part / 255 for part in colour[:3]]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", (*report_runs.NAMES, *LARGE))
def test_a_report_on_screens_and_on_paper(page: browser.Page, reports: dict[str, pathlib.Path], name: str) -> None:
    page.open(reports[name])
    for width, dark in ((1200, False), (390, False), (1200, True), (390, True)):
        page.show(width, height=8000, dark=dark)
        where = f"{name} at {width} px{', dark' if dark else ''}"
        shown, room = page.ask(WIDTHS)
        assert shown <= room == width, where
        texts = page.ask(TEXTS)
        assert len(texts) > 60 and texts[0]["words"] == "Training run", where
        assert all(text["left"] >= 0 and text["right"] <= width + 1 for text in texts), where
        assert overlapping(texts) == [], where
        poor = [
            f"{text['words']}: {contrast(text['colour'], text['ground']):.2f}"
            for text in texts
            if text["words"] != SWATCH and contrast(text["colour"], text["ground"]) < CONTRAST
        ]
        assert poor == [], where
        labels = page.ask(LABELS)
        assert all(len(set(row)) == len(row) for row in labels), where
        assert width < 640 or not any(labels), where
        # The checks of a run say by themselves what they are.
        assert not {"Check", "Result", "Evidence"} & {label for row in labels for label in row}, where
    pages = len(re.findall(rb"/Type\s*/Page\b", page.print_pdf()))
    assert 1 <= pages <= PAPER, f"{name}: {pages} pages"
    assert page.complaints() == []


def test_a_browser_that_is_told_of_a_fault_tells_it(page: browser.Page, tmp_path: pathlib.Path) -> None:
    """The measures above find what they look for: else they could not fail."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><meta name=viewport content='width=device-width'><body style='margin:0;background:#fff'><p style='color:#999;width:900px'>pale and wide</p>"
        "<p style='position:absolute;top:16px;left:0;margin:0'>over it</p><img src='http://127.0.0.1:9/x.png'>"
    )
    page.open(bad)
    page.show(390)
    shown, room = page.ask(WIDTHS)
    texts = page.ask(TEXTS)
    assert not shown <= room == 390
    assert overlapping(texts) == ["pale and wide | over it"]
    assert contrast(texts[0]["colour"], texts[0]["ground"]) < CONTRAST
    assert any("127.0.0.1:9" in line for line in page.complaints())
