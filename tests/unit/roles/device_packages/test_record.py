# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of what came has what the role installed, and nothing that others have installed since."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = pathlib.Path(__file__).resolve().parents[4] / "roles" / "device_packages"
TASKS = {task["name"]: task for task in yaml.safe_load((ROLE / "tasks" / "ensure_present.yml").read_text())}


def render(task: str, record: dict[str, t.Any] | None, packages: list[str], streams: str = "") -> dict[str, t.Any]:
    """What a task writes as the record of a machine that has a record and packages."""
    known: dict[str, t.Any] = {}
    for kind in ("defaults", "vars"):
        known |= yaml.safe_load((ROLE / kind / "main.yml").read_text())
    said = {"stdout": json.dumps(record) if record else ""}
    known |= {
        "device_packages_manager": "apt",
        "device_packages_name": "gpu-driver",
        "__device_packages_recorded": said,
        "__device_packages_there": {"stdout_lines": [name if "  " in name else f"ii  {name}" for name in packages]},
        "__device_packages_streams": {"stdout": streams},
        "device_packages_dnf_stream": "nvidia-driver:open-dkms",
    }
    trusted = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in known.items()}
    content = TASKS[task]["vars"]["__device_packages_content"]
    wanted = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in content.items()}
    return t.cast("dict[str, t.Any]", Templar(loader=DataLoader(), variables=trusted).template(wanted))


FIRST, LAST = "Record the packages that were there before", "Record the packages that came"


@pytest.mark.parametrize(
    ("record", "packages", "there"),
    [
        (None, ["bash", "vim"], ["bash", "vim"]),
        # A run that was cut has installed what was not there when it began.
        ({"there": ["bash"], "added": [], "complete": False}, ["bash", "driver"], ["bash"]),
        # One that came to its end knows what it has installed: vim came from others.
        ({"there": ["bash"], "added": ["driver"], "complete": True}, ["bash", "driver", "vim"], ["bash", "vim"]),
    ],
)
def test_what_was_there_before_a_run(record: dict[str, t.Any] | None, packages: list[str], there: list[str]) -> None:
    began = render(FIRST, record, packages)
    assert (began["there"], began["complete"]) == (there, False)
    ended = render(LAST, began, [*packages, "newer"])
    assert ended["complete"] is True
    assert ended["added"] == sorted({*packages, "newer"} - set(there)) and "vim" not in ended["added"]


@pytest.mark.parametrize(
    ("record", "streams", "before"),
    [
        (None, "[nvidia-driver]\nstream=\nstate=disabled\n", (True, "")),
        (None, "[nvidia-driver]\nstream=latest-dkms\nstate=enabled\n", (False, "nvidia-driver:latest-dkms")),
        (None, "", (False, "")),
        # This role has enabled it since: the record says what it was, and one without such a key that it was not disabled.
        ({"disabled_before": True, "complete": False}, "[nvidia-driver]\nstream=x\nstate=enabled\n", (True, "")),
        ({"complete": True, "added": []}, "[nvidia-driver]\nstream=x\nstate=enabled\n", (False, "")),
    ],
)
def test_what_the_module_was_before_is_in_the_record_until_the_end(
    record: dict[str, t.Any] | None, streams: str, before: tuple[bool, str]
) -> None:
    known = {"there": [], "added": [], "stream_before": "", **record} if record else None
    began = render(FIRST, known, ["bash"], streams)
    assert (began["disabled_before"], began["stream_before"]) == before
    ended = render(LAST, began, ["bash"], streams)
    assert (ended["disabled_before"], ended["stream_before"]) == before


def test_packages_that_dpkg_did_not_finish_are_those_that_came() -> None:
    begun = {"there": ["bash"], "added": [], "complete": False}
    packages = ["ii  bash", "iF  nvidia-kernel-open-dkms", "iU  nvidia-driver-cuda", "rc  nfs-common", "un  zsh"]
    ended = render(LAST, begun, packages)
    assert ended["added"] == ["nvidia-driver-cuda", "nvidia-kernel-open-dkms"]
