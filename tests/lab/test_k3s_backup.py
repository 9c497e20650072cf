# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks ``backup`` and ``restore`` on machines of the lab: a server whose data are destroyed, and what comes back.

Real: Kubernetes, SSH, systemd, tar. K3s is the stand-in, whose datastore is an etcd of its own at the path of K3s' SQLite, so
it is copied while K3s is stopped. A SQLite database that is written meanwhile is in tests/e2e.
"""

from __future__ import annotations

import json
import time

from ansible_collections.muster.training.tests.lab.k3s.operator import AGENT, SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import open_operator
from ansible_collections.muster.training.tests.support.kube_lab import NOTES
from ansible_collections.muster.training.tests.support.node_lab import eventually

GATE_S = 180
_VALUES = {"muster_gang_scheduling": False}


def read_maps(operator: Operator) -> set[str]:
    """Return the names of the ConfigMaps that the test has made, and others of that namespace."""
    return {item["metadata"]["name"] for item in operator.items("configmaps", "-n", "default")}


def read_ready(operator: Operator) -> dict[str, str]:
    """Return by Node whether it is ready."""
    return {
        node["metadata"]["name"]: item["status"]
        for node in operator.items("nodes")
        for item in node["status"]["conditions"]
        if item["type"] == "Ready"
    }


def test_a_server_whose_data_are_destroyed_comes_back_with_all_objects() -> None:
    with open_operator() as operator:
        up = operator.play("cluster", **_VALUES)
        assert up.code == 0, up.output
        operator.kubectl("create", "configmap", "before", "--from-literal=key=value")
        secret = ("create", "secret", "generic", "password", "--from-literal=word=of-this-test")
        operator.kubectl(*secret)
        earlier = operator.folder / "kubeconfig-earlier"
        earlier.write_text((operator.state / "kubeconfig").read_text())

        checked = operator.play("backup", "--check", **_VALUES)
        assert checked.code == 0 and not (operator.state / "backups").exists(), checked.output
        taken = operator.play("backup", **_VALUES)
        assert taken.code == 0, taken.output
        (place,) = (operator.state / "backups").glob("*/manifest.json")
        manifest = json.loads(place.read_text())
        assert manifest["host"] == SERVER and manifest["cluster"] == "lab", manifest
        operator.kubectl("create", "configmap", "after", "--from-literal=key=value")
        refused = operator.play("restore", **_VALUES)
        assert refused.code != 0 and refused.changed == 0, refused.output
        assert "K3s runs on it with data of this cluster" in refused.errors[0], refused.errors

        operator.lab.ask(SERVER, "systemctl", "stop", "k3s")
        operator.lab.ask(SERVER, "rm", "-rf", "/var/lib/rancher/k3s/server", "/etc/rancher/node")
        began = time.monotonic()
        restored = operator.play("restore", **_VALUES)
        took = time.monotonic() - began
        assert restored.code == 0, restored.output
        # K3s issues its administrator's certificate anew; the authority is that of before, so that earlier ones are valid.
        operator.kubectl("get", "configmap", "before", "-n", "default", f"--kubeconfig={earlier}")
        maps = read_maps(operator)
        assert "before" in maps and "after" not in maps, maps
        found = operator.kubectl("get", "secret", "password", "-o", "jsonpath={.data.word}")
        assert found == "b2YtdGhpcy10ZXN0", found
        everyone = {SERVER: "True", AGENT: "True"}
        eventually(lambda: read_ready(operator) == everyone, "all Nodes are ready", 120)

        again = operator.play("restore", **_VALUES)
        assert again.code == 0 and again.changed == 0, again.output
        assert "was restored to" in again.output
        settled = operator.play("cluster", **_VALUES)
        assert settled.code == 0, settled.output
        NOTES.append(
            f"restore of a server whose data were destroyed: {took:.0f} s (gate {GATE_S} s), archive "
            f"{manifest['size'] / 1e6:.1f} MB, all objects of the time of the backup there"
        )
        assert took <= GATE_S
