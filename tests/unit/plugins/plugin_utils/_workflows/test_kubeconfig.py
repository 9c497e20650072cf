# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubeconfig of a service account: what is written, what a token says, and that anything may stand in its place."""

from __future__ import annotations

import base64
import json
import pathlib
import typing as t

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api import kubeconfig
from ansible_collections.muster.training.plugins.plugin_utils._workflows import kubeconfig as subject
from ansible_collections.muster.training.tests.unit.plugins.action.test_options_match_docs import (
    PACKAGE,
    compare,
    documented,
)

CLAIMS = {
    "sub": "system:serviceaccount:vision:member",
    "iat": 1000,
    "exp": 2000,
    "kubernetes.io": {"serviceaccount": {"name": "member", "uid": "u-1"}},
}


def token(**claims: t.Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps({**CLAIMS, **claims}).encode()).decode().rstrip("=")
    return f"head.{body}.sign"


@pytest.mark.parametrize(
    ("now", "account", "uid", "serves"),
    [
        (1000, "member", "u-1", True),
        (1749, "member", "u-1", True),
        (1751, "member", "u-1", False),
        (2500, "member", "u-1", False),
        (1000, "other", "u-1", False),
        (1000, "member", "u-2", False),
    ],
)
def test_when_a_token_is_kept(now: float, account: str, uid: str, serves: bool) -> None:
    found = subject.read_token(token())
    assert found is not None and found.is_valid_for(account, "vision", uid, now) is serves
    assert not found.is_valid_for(account, "rival", uid, now)


@given(st.one_of(st.text(), st.text().map(lambda body: f"a.{body}.c")))
def test_what_is_no_token(text: str) -> None:
    assert subject.read_token(text) is None


@pytest.mark.parametrize("claims", [{"exp": "soon"}, {"kubernetes.io": None}, {"kubernetes.io": {}}, {"sub": None}])
def test_claims_of_another_kind(claims: dict[str, t.Any]) -> None:
    found = subject.read_token(token(**claims))
    assert found is None or not found.is_valid_for("member", "vision", "u-1", 1000)


def config(**cluster: t.Any) -> dict[str, t.Any]:
    return {
        "current-context": "a",
        "clusters": [{"name": "c", "cluster": {"server": "https://lab:6443", **cluster}}],
        "users": [{"name": "admin", "user": {"token": "the-administrators-token"}}],
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "admin", "namespace": "ops"}}],
    }


@pytest.mark.parametrize(
    "cluster",
    [
        {},
        {"certificate-authority-data": base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()},
        {"insecure-skip-tls-verify": True},
        {"tls-server-name": "kube.lab"},
        {"proxy-url": "http://proxy:3128"},
    ],
)
def test_the_server_stays_and_the_credential_goes(cluster: dict[str, t.Any]) -> None:
    made = subject.build_document(kubeconfig.load_access({"kubeconfig": config(**cluster)}), "member", "vision")
    assert made["clusters"][0]["cluster"] == {"server": "https://lab:6443", **cluster}
    assert "administrators" not in json.dumps(made)
    read = kubeconfig.load_access({"kubeconfig": subject.with_token(made, "the-members-own-token")})
    assert (read.namespace, read.user.token) == ("vision", "the-members-own-token")


def options(**more: t.Any) -> dict[str, t.Any]:
    home = {"state_home": {}, "cluster": "default"}
    return {"account": "member", "namespace": "vision", "lifetime_s": 600, "state": "present", **home, **more}


def test_options_that_cannot_be() -> None:
    with pytest.raises(InputError, match="lifetime_s: must be at least 600"):
        subject.run(options(lifetime_s=599), pathlib.Path("/"), False)
    with pytest.raises(InputError, match="path: x/y is not absolute"):
        subject.run(options(path="x/y"), pathlib.Path("/"), False)


def test_absent_asks_no_server(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "k"
    place.write_text("x")
    wanted = options(state="absent", path=str(place))
    assert subject.run(wanted, pathlib.Path("/"), True)["changed"] and place.exists()
    assert subject.run(wanted, pathlib.Path("/"), False)["changed"] and not place.exists()
    assert not subject.run(wanted, pathlib.Path("/"), False)["changed"]


def test_documentation_and_action_agree() -> None:
    from ansible_collections.muster.training.plugins.action import kube_kubeconfig as face

    assert PACKAGE and compare(documented("kube_kubeconfig"), face.ActionModule.OPTIONS) == []


class Nobody:
    """A cluster without any object."""

    def get(self, *_names: str) -> None:
        return None


@pytest.mark.parametrize("state", ["present", "absent"])
def test_the_file_of_another_cluster_stays(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    there, here, place = "AAAA", "BBBB", tmp_path / "vision.kubeconfig"
    place.write_text(yaml.safe_dump(config(**{"certificate-authority-data": there})))
    monkeypatch.setattr(subject.connect, "connect", lambda _connection: t.cast("t.Any", Nobody()))
    own = {"kubeconfig": config(**{"certificate-authority-data": base64.b64encode(here.encode()).decode()})}
    options = {"account": "member", "namespace": "vision", "lifetime_s": 600, "path": str(place), "state": state, **own}
    before = place.read_text()
    with pytest.raises(RefusedError, match=f"{place} is of another cluster.*or another muster_cluster for this one"):
        subject.run(options, tmp_path, check=False)
    assert place.read_text() == before


def test_what_is_left_of_a_cluster_that_is_gone_is_deleted(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "vision.kubeconfig"
    place.write_text(yaml.safe_dump(config(**{"certificate-authority-data": "AAAA"})))
    options = {"account": "member", "namespace": "vision", "lifetime_s": 600, "path": str(place), "state": "absent"}
    gone = {**options, "kubeconfig": str(tmp_path / "no-such.kubeconfig")}
    assert subject.run(gone, tmp_path, check=False)["changed"] and not place.exists()
