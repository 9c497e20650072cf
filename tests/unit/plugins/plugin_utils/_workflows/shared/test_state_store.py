# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opening the store that a setting names."""

from __future__ import annotations

import sys

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.state_store import StateSetting
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.secret_state import SecretState
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_store import open_store

S3 = {"store": "s3", "s3": {"endpoint": "https://s3.example.org", "bucket": "state"}}


def test_missing_keys_are_named_with_their_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    with pytest.raises(
        InputError, match="muster_state.s3.secret_ref: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is not in"
    ):
        open_store(StateSetting.from_dict(S3), "lab")


def test_a_missing_package_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKaccess-key-01")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SKsecret-key-0123")
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(RefusedError, match="needs botocore on the controller. .*pip install botocore"):
        open_store(StateSetting.from_dict(S3), "lab")


def test_a_namespace_is_opened_once(tmp_path: object) -> None:
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": "https://kube.example:6443"}}],
        "users": [{"name": "u", "user": {"token": "token-0123456789"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    import json
    import pathlib

    place = pathlib.Path(str(tmp_path), "config")
    place.write_text(json.dumps(kubeconfig))
    setting = StateSetting.from_dict(
        {"store": "kubernetes", "kubernetes": {"namespace": "m", "kubeconfig": str(place)}}
    )
    store = open_store(setting, "lab")
    assert isinstance(store, SecretState) and store is open_store(setting, "lab")
    assert store.title == "namespace m at https://kube.example:6443"


def test_a_working_copy_has_a_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    one, two = StateHome(S3, "lab"), StateHome({**S3, "s3": {**S3["s3"], "bucket": "b"}}, "lab")  # type: ignore[dict-item]
    assert one.root != two.root and one.root.parent == two.root.parent
    assert str(one.folder).startswith("/xdg/muster/s3-") and StateHome({**S3, "path": "/x"}, "lab").root.name == "x"
