# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is still to be done: read of all services at once. How one is found to be deployed: tests/kube_api/test_service_deploy.py."""

from __future__ import annotations

import pathlib
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import deploy, deploy_info
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings, deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome

Dict = dict[str, t.Any]


def entry(name: str, **changes: t.Any) -> Dict:
    place = {"namespace": "storage"}
    return {"name": name, "kind": "registry", "mode": "deploy", "deploy": place, **changes}


def look(root: pathlib.Path, *services: Dict) -> Dict:
    options = {"services": list(services), "state_home": {"path": str(root / "home")}, "cluster": "default"}
    request = RunRequest(options, [], {"a": {}}, root, False, lambda _names: [], t.cast("t.Any", None))
    return deploy_info.run(request, [])


def test_all_are_asked_at_once_and_named_in_their_order(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(3, timeout=30)

    def is_settled(_request: t.Any, service: t.Any, _sources: t.Any) -> bool:
        together.wait()
        return bool(service.name == "b")

    monkeypatch.setattr(deploy, "is_settled", is_settled)
    bound = {"name": "d", "kind": "registry", "mode": "bind", "endpoint": "https://r.example.com"}
    found = look(tmp_path, entry("c"), entry("a"), entry("b"), bound, {**bound, "name": "e", "mode": "none"})
    assert found == {"changed": False, "pending": ["c", "a"], "unbound": ["c", "a", "b", "d"]}


def test_hosts_mounts_removals_and_what_is_not_recorded_are_not_asked_for(tmp_path: pathlib.Path) -> None:
    """Without a cluster: asking it would fail."""
    home = StateHome({"path": str(tmp_path / "home")}, "default")
    for name in ("host", "gone"):
        deployed.write_deployed(home, name, {"endpoint": "https://r:1", "kind": "registry", "provider": "distribution"})
    volume = {"kind": "shared_filesystem", "provider": "nfs", "filesystem": {"path": "/mnt/a"}}
    services = [
        entry("host", deploy={"host": "a"}),
        entry("new"),
        entry("gone", state="absent"),
        entry("nas", **volume, deploy={"host": "a", "clients": ["10.0.0.0/8"]}),
    ]
    found = look(tmp_path, *services)
    assert found["pending"] == ["host", "new", "gone", "nas"] and "gone" not in found["unbound"]


def test_a_bound_service_is_not_named_and_a_bad_entry_is(tmp_path: pathlib.Path) -> None:
    home = StateHome({"path": str(tmp_path / "home")}, "default")
    about = {"name": "hub", "component": "registry", "mode": "bind", "endpoint": "https://r.example.com"}
    bindings.write_binding(home, Binding.from_dict(about))
    service = {"name": "hub", "kind": "registry", "mode": "bind", "endpoint": "https://r.example.com"}
    assert look(tmp_path, service)["unbound"] == []
    assert look(tmp_path, {**service, "hosts": ["r.mesh:5000"]})["unbound"] == ["hub"]
    with pytest.raises(InputError, match=r"muster_services\[0\]\.kind"):
        look(tmp_path, {**service, "kind": "nothing"})
