# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The colours of the pages."""

from __future__ import annotations

import re

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.pages import css
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import contrast


@pytest.mark.parametrize("palette", [css.LIGHT, css.DARK], ids=["light", "dark"])
def test_texts_meet_the_contrast_of_wcag_aa(palette: dict[str, str]) -> None:
    texts = [*("ink", "muted", "accent", "ok", "warn", "bad"), *(f"series-{n}" for n in range(8))]
    for name in texts:
        assert contrast(palette[name], palette["paper"]) >= 4.5, name
    for name in ("ink", "muted"):
        assert contrast(palette[name], palette["soft"]) >= 4.5, name
    for shade in range(7):
        assert contrast(palette["paper" if shade >= 5 else "ink"], palette[f"heat-{shade}"]) >= 4.5, shade


def test_both_palettes_name_the_same_colours_and_the_pictures_use_only_those(pages: dict[str, str]) -> None:
    assert set(css.LIGHT) == set(css.DARK)
    used = set(re.findall(r"var\(--([a-z0-9-]+)", "".join(pages.values())))
    assert used <= set(css.LIGHT) | {"tone", "k"}
    assert not re.search(r"#(?:0[1-7]|1[0-6]|2[0-7]){3}\b", re.sub(r"<style>.*?</style>", "", pages["gpu64"]))
