# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The teardown playbook where machines are nodes: a real API server, a fake provider, no kubelets."""

from __future__ import annotations

import pathlib

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.tests.e2e.rent_world import RentWorld
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod
from ansible_collections.muster.training.tests.support.kube_api import ApiServer


def test_nodes_of_what_is_proved_gone_leave_the_cluster(api: ApiServer, client: Client, tmp_path: pathlib.Path) -> None:
    """Machines that no inventory names any more are in the ledger, and their nodes bear the names there."""
    world = RentWorld(tmp_path, lambda clock: FakeRunpod(clock, boot_s=30.0), "runpod")
    with world.running():
        done = world.play("rent", rented_nodes_count=2)
        assert done.code == 0 and world.alive == 2, done.output
        names = sorted(lease.name for lease in world.ledger.leases.values())
        for name in [*names, "somebody-elses"]:
            client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        done = world.play("teardown", muster_kubeconfig=str(api.kubeconfig))
        assert done.code == 0 and "Traceback" not in done.output, done.output
        assert world.alive == 0
        assert [client.get("v1/Node", name) for name in names] == [None, None]
        assert client.delete("v1/Node", "somebody-elses")
