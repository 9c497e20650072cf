# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A class that is deployed: read from the cluster, recorded, and bound as a StorageClass by that record."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind, deploy, deploy_class
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings, deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.run_world import RunWorld

Dict = dict[str, t.Any]


class Cluster:
    """What the workflow reads of a cluster."""

    catalog = types.SimpleNamespace(serves=lambda _kind: True)

    def __init__(self, *objects: Dict, drivers: t.Sequence[str] = ()) -> None:
        self.objects, self.drivers = objects, drivers

    def get(self, kind: str, name: str) -> Dict | None:
        found = [
            item for item in self.objects if (item["kind"], item["metadata"]["name"]) == (kind.split("/")[-1], name)
        ]
        return found[0] if found else None

    def list(self, _kind: str) -> t.Any:
        return types.SimpleNamespace(items=[{"spec": {"csi": {"driver": name}}} for name in self.drivers])


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[RunWorld]:
    found = RunWorld(tmp_path)
    yield found
    found.close()


def entry(**changes: t.Any) -> Dict:
    place = {"namespace": "kube-system", "export": "nas"}
    about: Dict = {
        "name": "team",
        "kind": "shared_filesystem",
        "mode": "deploy",
        "provider": "csi_nfs",
        "deploy": place,
    }
    return {**about, "filesystem": {"storage_class": "team-nfs"}, **changes}


def test_it_is_made_of_an_export_that_was_deployed_or_bound(world: RunWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    home = StateHome({"path": str(world.root / "home")}, "c")
    nas = {"provider": "nfs", "endpoint": "nfs://10.0.0.5/srv/muster/nas"}
    live = Cluster()
    monkeypatch.setattr(deploy_class, "open_client", lambda *_words: live)
    about: Dict = {"cluster": "c", "state_home": {"path": str(world.root / "home")}}

    def run(check: bool = False, **changes: t.Any) -> Dict:
        return deploy.run(world.request(None, check=check, service=entry(**changes), **about), [])

    bindings.write_binding(
        home, Binding.from_dict({**nas, "name": "nas", "component": "shared_filesystem", "mode": "bind"})
    )
    looked = run(check=True)
    assert looked["changed"] and looked["server"]["needs_driver"] and deployed.read_deployed(home, "team") is None
    assert looked["server"]["objects"][0]["parameters"]["share"] == "/srv/muster/nas"
    # One that is deployed in the same run has no binding yet.
    deployed.write_deployed(home, "nas", {**nas, "endpoint": "nfs://10.0.0.9/data"})
    first, again = run(), run()
    assert (first["changed"], again["changed"]) == (True, False)
    assert first["server"]["objects"][0]["parameters"]["server"] == "10.0.0.9"
    (service,) = parse_services([entry()])
    filled = bind.fill_deployed(home, service, deployed.read_deployed(home, "team"))
    bound = filled.to_binding(None)
    assert (bound.provider, bound.endpoint, bound.mode) == ("storage_class", "storageclass/team-nfs", "deploy")
    assert bound.filesystem is not None and bound.filesystem.claim == "team" and not bound.filesystem.mount
    live = Cluster({**first["server"]["objects"][0]}, drivers=["nfs.csi.k8s.io"])
    gone = run(state="absent")
    assert gone["changed"] and gone["server"]["removes_class"] and not gone["server"]["removes_driver"]
    assert deployed.read_deployed(home, "team") is None and not run(state="absent")["changed"]
