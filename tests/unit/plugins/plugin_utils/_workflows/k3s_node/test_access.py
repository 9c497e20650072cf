# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubeconfig of a cluster that was brought up from here."""

from __future__ import annotations

import base64
import hashlib
import json
import pathlib
import stat

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.k3s_node import access
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import (
    StateHome,
    cluster_kubeconfig,
)

TEXT = json.dumps({"clusters": [{"name": "default", "cluster": {"server": "https://127.0.0.1:6443"}}]})


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    return StateHome({"path": str(tmp_path)}, "lab")


@pytest.mark.parametrize(
    ("address", "server"), [("192.0.2.1", "https://192.0.2.1:6443"), ("2001:db8::1", "https://[2001:db8::1]:6443")]
)
def test_it_names_the_server_as_the_controller_reaches_it(home: StateHome, address: str, server: str) -> None:
    assert access.write_kubeconfig(home, TEXT, address, check=False) is True
    place = cluster_kubeconfig(home)
    assert yaml.safe_load(place.read_text())["clusters"][0]["cluster"]["server"] == server
    assert stat.S_IMODE(place.stat().st_mode) == 0o600 and stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert access.write_kubeconfig(home, TEXT, address, check=False) is False
    place.chmod(0o644)
    assert access.write_kubeconfig(home, TEXT, address, check=False) is True
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


def test_a_check_writes_nothing(home: StateHome) -> None:
    assert access.write_kubeconfig(home, TEXT, "192.0.2.1", check=True) is True
    assert not home.folder.exists()


def test_a_server_without_one_is_told(home: StateHome) -> None:
    with pytest.raises(RefusedError, match="the server has no /etc/rancher/k3s/k3s.yaml"):
        access.write_kubeconfig(home, None, "192.0.2.1", check=False)


def test_it_goes_with_the_server(home: StateHome) -> None:
    assert access.remove_kubeconfig(home) is False
    access.write_kubeconfig(home, TEXT, "192.0.2.1", check=False)
    assert access.remove_kubeconfig(home) is True and not cluster_kubeconfig(home).exists()


def test_it_stays_with_a_server_of_the_cluster_that_answers(home: StateHome) -> None:
    servers = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
    assert access.find_named(home) is None
    access.write_kubeconfig(home, TEXT, "192.0.2.1", check=False, addresses=servers)
    assert access.write_kubeconfig(home, TEXT, "192.0.2.2", check=False, addresses=servers) is False
    assert access.find_named(home) == "192.0.2.1"
    # The one that it names is not among those that answer: the next one writes its own.
    assert access.write_kubeconfig(home, TEXT, "192.0.2.2", check=False, addresses=servers[1:]) is True
    assert access.find_named(home) == "192.0.2.2"
    other = json.loads(TEXT)
    other["clusters"][0]["cluster"]["certificate-authority-data"] = "bmV3"
    assert access.write_kubeconfig(home, json.dumps(other), "192.0.2.3", check=False, addresses=servers) is True
    assert access.find_named(home) == "192.0.2.3"


def text_of(authority: str) -> str:
    data = base64.b64encode(authority.encode()).decode()
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority-data": data}
    return json.dumps({"clusters": [{"name": "default", "cluster": cluster}]})


def digest(authority: str) -> str:
    return hashlib.sha256(authority.encode()).hexdigest()


@pytest.mark.parametrize("servers", [{"b": digest("other")}, {"b": None}, {"b": None, "c": digest("other")}])
def test_another_cluster_does_not_take_the_name(home: StateHome, servers: dict[str, str | None]) -> None:
    """Neither one that is there nor one that would be begun on a bare machine."""
    access.require_same_cluster(home, servers, adopt=False)
    access.write_kubeconfig(home, text_of("first"), "192.0.2.1", check=False)
    access.require_same_cluster(home, {"a": digest("first"), "d": None}, adopt=False)
    with pytest.raises(RefusedError) as refused:
        access.require_same_cluster(home, servers, adopt=False)
    for words in (
        "lab is the cluster of 192.0.2.1 here",
        "b",
        "muster_cluster)",
        "cluster_absent",
        "muster_cluster_adopt",
    ):
        assert words in str(refused.value)
    access.require_same_cluster(home, servers, adopt=True)


def test_the_kubeconfig_of_the_former_cluster_is_kept(home: StateHome) -> None:
    """What was proven there goes: it says nothing of another cluster."""
    access.write_kubeconfig(home, text_of("first"), "192.0.2.1", check=False)
    (home.folder / "pod_network.json").write_text("{}")
    assert access.write_kubeconfig(home, text_of("second"), "192.0.2.9", check=True) is True
    assert access.write_kubeconfig(home, text_of("second"), "192.0.2.9", check=False) is True
    assert access.find_named(home) == "192.0.2.9" and not (home.folder / "pod_network.json").exists()
    (kept,) = home.folder.glob("kubeconfig-*")
    assert kept.name == f"kubeconfig-{digest('first')[:12]}" and stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "192.0.2.1" in kept.read_text()
