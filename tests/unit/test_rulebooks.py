# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rulebooks of Event-Driven Ansible: what they name exists. ansible-rulebook itself is not run here: it needs Java."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOOKS = sorted((ROOT / "extensions" / "eda" / "rulebooks").glob("*.yml"))
ALERTS = ROOT / "plugins/plugin_utils/_services/monitoring/muster.rules.yml"


@pytest.mark.parametrize("place", BOOKS, ids=lambda place: place.stem)
def test_playbooks_and_alerts_exist(place: pathlib.Path) -> None:
    text = place.read_text()
    rules: list[dict[str, t.Any]] = [rule for book in yaml.safe_load(text) for rule in book["rules"]]
    names = {rule["action"]["run_playbook"]["name"] for rule in rules}
    chosen = {re.sub(r"{{ \w+ \| default\('(\w+)'\) }}", r"\1", name) for name in names}
    chosen |= {f"muster.training.{name}" for name in re.findall(r"MUSTER_ON_LOST_GPU=(\w+)", text)}
    assert chosen and all((ROOT / "playbooks" / f"{name.rpartition('.')[2]}.yml").exists() for name in chosen), chosen
    known = {
        rule["alert"]
        for group in yaml.safe_load(ALERTS.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    cited = {name for rule in rules for name in re.findall(r'"([A-Z]\w+)"', rule["condition"])}
    assert cited and cited <= known, cited - known
    # A hang is never ended by an alert.
    assert not {"muster.training.cancel", "muster.training.teardown"} & chosen
