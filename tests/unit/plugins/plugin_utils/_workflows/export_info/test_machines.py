# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where an exported file is to be, and how it is used."""

from __future__ import annotations

import pathlib

from ansible_collections.muster.training.plugins.plugin_utils._workflows.export_info import machines

HOSTS = {"gpu-1": {"ansible_host": "192.0.2.11"}}


def test_a_folder_gets_a_file_of_the_cluster(tmp_path: pathlib.Path) -> None:
    made = machines.make_export("ssh_config", HOSTS, "lab", tmp_path, tmp_path)
    assert made["path"] == str(tmp_path / "muster-lab.ssh_config") and made["changed"] is False
    assert made["use"] == [
        f"first line of ~/.ssh/config: Include {tmp_path}/muster-lab.ssh_config",
        "ssh muster-lab-gpu-1",
    ]


def test_a_file_is_what_was_named(tmp_path: pathlib.Path) -> None:
    made = machines.make_export("ssh_config", HOSTS, "lab", tmp_path / "x.conf", tmp_path)
    assert made["path"] == str(tmp_path / "x.conf") and not list(tmp_path.iterdir())
