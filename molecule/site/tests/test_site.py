# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbook site leaves: machines of a cluster, and on the controller a run that succeeded, with its report."""

from __future__ import annotations

import json
import pathlib
import typing as t

testinfra_hosts = ["ansible://muster_nodes"]


def test_the_unit_runs_with_the_changed_option(host: t.Any) -> None:
    unit = "k3s" if host.ansible.get_variables()["muster_k3s_role"] == "server" else "k3s-agent"
    assert host.service(unit).is_running and host.service(unit).is_enabled
    assert not host.file(f"/etc/systemd/system/{unit}.service.d/50-memlock.conf").exists


def test_the_controller_has_one_run_that_succeeded_and_its_report(host: t.Any) -> None:
    values = host.ansible.get_variables()
    home = pathlib.Path(values["muster_state"]["path"]) / values["muster_cluster"]
    (folder,) = (home / "runs").iterdir()
    record = json.loads((folder / "run.json").read_text())
    assert record["outcome"] == "succeeded" and record["world_size"]["seen"] == record["world_size"]["asked"]
    assert (folder / "report" / "report.html").exists()
    assert all(item["seconds"] > 0 for item in json.loads((home / "site.json").read_text())["phases"])
