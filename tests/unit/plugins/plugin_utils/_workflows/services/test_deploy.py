# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked for: one service of mode deploy, its credentials made once, and kept before they are used."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest
from cryptography import x509

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.plugins.module_utils._model.service_deploy import Deploy
from ansible_collections.muster.training.plugins.plugin_utils._services.component import certificate_of
from ansible_collections.muster.training.plugins.plugin_utils._services.components import find_component
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import deploy
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.digest_lock import DigestLock
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.run_world import RunWorld

SERVICE: t.Final = {
    "name": "store",
    "kind": "object_store",
    "mode": "deploy",
    "deploy": {"host": "a"},
    "resources": [{"purpose": "datasets", "ref": "data"}],
}


def order(root: pathlib.Path, check: bool = False) -> deploy.DeployOrder:
    (service,) = parse_services([SERVICE])
    about: t.Any = (root, DigestLock(root / "lock"), "", check, 1, {})
    component = find_component("object_store", None, "x")
    return deploy.DeployOrder(service, Deploy(host="a"), component, StateHome({"path": str(root)}, "c"), *about)


def test_credentials_are_made_once(tmp_path: pathlib.Path) -> None:
    made = order(tmp_path).require_credentials(lambda: None)
    assert order(tmp_path).require_credentials(lambda: pytest.fail("they are kept")) == made
    assert order(tmp_path / "new").require_credentials(lambda: dict(made)) == made
    assert order(tmp_path / "x", check=True).require_credentials(lambda: None) and not (tmp_path / "x").exists()


def test_two_services_are_not_reached_at_one_port(tmp_path: pathlib.Path) -> None:
    made = order(tmp_path)
    deployed.write_deployed(made.home, "images", {"endpoint": "https://10.0.0.1:5000"})
    deployed.write_deployed(made.home, "store", {"endpoint": "https://10.0.0.1:5050"})
    deployed.write_deployed(made.home, "old", {"endpoint": "https://10.0.0.1:5001"})
    deployed.remove_deployed(made.home, "old", forget=False)
    with pytest.raises(
        RefusedError, match=r"store\.deploy\.port: images is reached at 10\.0\.0\.1:5000 already.*another port"
    ):
        deploy.refuse_taken_port(made, "http://10.0.0.1:5000")
    for endpoint in ("https://10.0.0.1:5050", "https://10.0.0.2:5000", "https://10.0.0.1:5001"):
        deploy.refuse_taken_port(made, endpoint)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mode": "bind", "deploy": None, "endpoint": "http://h:1"}, "must be deploy"),
        ({"mode": "none"}, "must be deploy"),
        ({"endpoint": "http://h:1"}, "endpoint: is for mode: bind"),
        ({"secret_ref": {"from": "env"}}, "secret_ref: is for mode: bind"),
        ({"addressing": "virtual"}, "addressing: must be path"),
    ],
)
def test_others_are_refused(tmp_path: pathlib.Path, changes: t.Any, problem: str) -> None:
    world = RunWorld(tmp_path)
    service = {key: value for key, value in {**SERVICE, **changes}.items() if value is not None}
    request = world.request(None, check=False, service=service, cluster="c", state_home={"path": str(tmp_path)})
    with pytest.raises(InputError, match=problem):
        deploy.run(request, [])
    world.close()


def test_a_certificate_is_made_for_the_addresses_and_again_for_others(tmp_path: pathlib.Path) -> None:
    asked = dataclasses.replace(order(tmp_path), component=find_component("secrets", None, "x"))
    made = asked.require_credentials(lambda: None, ["192.0.2.7", "bao.example"])
    certificate = x509.load_pem_x509_certificate(str(certificate_of(made)).encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(item) for item in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7"]
    assert names.get_values_for_type(x509.DNSName) == ["bao.example"]
    assert asked.require_credentials(lambda: None, ["192.0.2.7", "bao.example"]) == made
    moved = asked.require_credentials(lambda: None, ["192.0.2.8"])
    assert moved["SEAL_KEY"] == made["SEAL_KEY"] and moved["TLS_CERTIFICATE"] != made["TLS_CERTIFICATE"]
