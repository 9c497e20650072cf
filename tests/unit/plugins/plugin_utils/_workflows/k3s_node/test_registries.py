# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine is told of registries that are bound: mirrors, own CAs, and no credential."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._hosts import k3s_files
from ansible_collections.muster.training.plugins.plugin_utils._workflows.k3s_node.registries import build_registries
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.certificates import make_certificate

ENDPOINT = "https://10.0.0.5:5000"
PLACE = "/etc/rancher/k3s/muster-registry-images.pem"


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    return StateHome({"path": str(tmp_path)}, "c")


def authority(folder: pathlib.Path) -> str:
    return pathlib.Path(make_certificate(folder, "10.0.0.5", -1, 9)[0]).read_text()


def bind(home: StateHome, **changes: t.Any) -> None:
    about = {"name": "images", "component": "registry", "mode": "bind", "endpoint": ENDPOINT}
    bindings.write_binding(home, Binding.from_dict({**about, "secret_ref": {"from": "env"}, **changes}))


def test_a_mirror_and_an_own_ca_are_keyed_as_k3s_reads_them(home: StateHome, tmp_path: pathlib.Path) -> None:
    ca = authority(tmp_path)
    bind(home, hosts=["registry.mesh:5000"], ca=ca)
    found, authorities = build_registries({}, home)
    endpoint = {"endpoint": [ENDPOINT]}
    assert found["mirrors"] == {"registry.mesh:5000": endpoint, "10.0.0.5:5000": endpoint}
    assert found["configs"] == {"10.0.0.5:5000": {"tls": {"ca_file": PLACE}}}
    settings = k3s_files.K3sSettings("server", "a", registries=found, authorities=authorities)
    files = {item.path: item for item in k3s_files.render(settings)}
    assert files[PLACE].text == ca and files[k3s_files.REGISTRIES].mode == 0o600
    assert yaml.safe_load(files[k3s_files.REGISTRIES].text) == found


def test_what_the_user_writes_goes_first(home: StateHome, tmp_path: pathlib.Path) -> None:
    bind(home, hosts=["docker.io"], ca=authority(tmp_path))
    given: dict[str, t.Any] = {
        "mirrors": {"docker.io": {"endpoint": ["https://mine"]}},
        "configs": {"10.0.0.5:5000": {"auth": {"username": "u"}}, "mine": {"tls": {"insecure_skip_verify": True}}},
    }
    found, _authorities = build_registries(given, home)
    assert found["mirrors"]["docker.io"] == {"endpoint": ["https://mine"]}
    assert found["configs"]["10.0.0.5:5000"] == {"tls": {"ca_file": PLACE}, "auth": {"username": "u"}}
    assert found["configs"]["mine"] == given["configs"]["mine"]


def test_two_registries_serve_one_name_and_http_is_said(home: StateHome) -> None:
    bind(home, endpoint="http://a.mesh:5000", hosts=["docker.io"])
    bind(home, name="second", endpoint="http://b.mesh:5000", hosts=["docker.io"])
    found, authorities = build_registries({}, home)
    assert found["mirrors"]["docker.io"] == {"endpoint": ["http://a.mesh:5000", "http://b.mesh:5000"]}
    assert found["mirrors"]["a.mesh:5000"] == {"endpoint": ["http://a.mesh:5000"]}
    assert (authorities, "configs" in found) == ((), False)


def test_a_registry_with_a_public_certificate_changes_no_machine(home: StateHome) -> None:
    bind(home, endpoint="https://ghcr.io")
    bind(home, name="tracker", component="tracking", endpoint="http://mlflow.mesh:5000", secret_ref=None)
    assert build_registries({}, home) == ({}, ())
    given = {"mirrors": {"x.y": {"endpoint": ["https://z"]}}}
    assert build_registries(given, home) == (given, ())
    assert dataclasses.replace(k3s_files.K3sSettings("agent", "a"), registries={}).authorities == ()


def test_credentials_by_the_name_of_a_mirror_are_refused(home: StateHome) -> None:
    """K3s reads them by the host of the endpoint: by the mirror's name they would be passed over."""
    bind(home, hosts=["registry.mesh:5000"])
    auth: dict[str, t.Any] = {"auth": {"username": "u", "password": "canary-pw-0001"}}
    with pytest.raises(InputError) as caught:
        build_registries({"configs": {"registry.mesh:5000": auth}}, home)
    assert "registry.mesh:5000: its images are pulled from 10.0.0.5:5000" in str(caught.value)
    assert "Name 10.0.0.5:5000 in configs" in caught.value.fix and "canary" not in str(caught.value)
    for given in (
        {"configs": {"10.0.0.5:5000": auth}},
        {"configs": {"10.0.0.5:5000": auth, "registry.mesh:5000": auth}},
        {"configs": {"registry.mesh:5000": auth}, "mirrors": {"registry.mesh:5000": {"endpoint": ["https://x"]}}},
    ):
        assert build_registries(given, home)[0]["configs"]
