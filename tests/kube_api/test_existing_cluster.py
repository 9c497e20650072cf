# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks of machines where there is a kubeconfig and no machine: what is checked, and what leads on."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.tests.kube_api.test_cluster_identity import unproven
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

__all__ = ["unproven"]
Dict = dict[str, t.Any]
LIMIT_S = 120


def play(api: ApiServer, folder: pathlib.Path, name: str, **variables: t.Any) -> tuple[int, str]:
    given = {"muster_kubeconfig": str(api.kubeconfig), "muster_state": {"path": str(folder / "state")}, **variables}
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    argv = [program, "-i", "localhost,", "-c", "local", f"muster.training.{name}", "-e", json.dumps(given)]
    env = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": str(folder)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    output = " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in output, output
    return done.returncode, output


def job(namespace: str, **changes: t.Any) -> Dict:
    place = {"backend": "kubernetes", "engine": "indexed_job", "namespace": namespace}
    return {
        "name": "x",
        "nodes": 2,
        "image": "i:1",
        "command": ["true"],
        "launcher": "command",
        "placement": place,
    } | changes


@pytest.mark.usefixtures("unproven")
def test_preflight_checks_the_cluster_and_the_job(
    api: ApiServer, client: Client, namespace: str, tmp_path: pathlib.Path
) -> None:
    code, output = play(api, tmp_path, "preflight", muster_job=job(namespace))
    assert code == 0, output
    assert "No host of the inventory matches muster_nodes: interpreters, disks, drivers and SSH of machines" in output
    assert f"Nodes that take pods: {namespace}-0, {namespace}-1" in output and "cpu" in output
    assert "would be started in namespace" in output and "nothing was changed" in output
    assert client.list("batch/v1/Job", namespace).items == []
    code, output = play(api, tmp_path, "preflight", muster_job=job(namespace, gpus_per_node=8))
    assert code == 2 and "0 of 2 nodes fit" in output, output
    code, output = play(api, tmp_path, "preflight")
    assert code == 0 and "whether one would run is not checked" in output, output


def test_site_names_the_playbooks_of_a_cluster_that_is_there(api: ApiServer, tmp_path: pathlib.Path) -> None:
    code, output = play(api, tmp_path, "site")
    assert code == 2 and "no host of the inventory matches muster_nodes" in output, output
    for name in ("muster.training.preflight", "muster.training.verify_fabric", "muster.training.train"):
        assert name in output
