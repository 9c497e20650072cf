# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image into a registry that is bound: which registry, with which credentials, and once."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._workflows import registry_image as subject
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.fakes.registry import PASSWORD, USER, FakeRegistry
from ansible_collections.muster.training.tests.support.run_world import Said

NAME = "registry.mesh:5000/team/train:1"


@pytest.fixture
def server(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[FakeRegistry]:
    monkeypatch.setenv("REGISTRY_USERNAME", USER)
    monkeypatch.setenv("REGISTRY_PASSWORD", PASSWORD)
    with FakeRegistry("basic") as made:
        about: dict[str, t.Any] = {"name": "images", "component": "registry", "mode": "bind", "endpoint": made.url}
        about |= {"hosts": ["registry.mesh:5000"], "secret_ref": {"from": "env"}}
        bindings.write_binding(StateHome({"path": str(tmp_path)}, "c"), Binding.from_dict(about))
        yield made


def push(folder: pathlib.Path, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    given = {"name": NAME, "archive": None, "source": None, "cluster": "c", "state_home": {"path": str(folder)}}
    no_host: t.Any = lambda _names: pytest.fail("no host is asked")  # noqa: E731
    return subject.run(RunRequest({**given, **options}, [], {}, folder, check, no_host, Said()))


def test_a_copy_is_made_once_and_not_in_check_mode(server: FakeRegistry, tmp_path: pathlib.Path) -> None:
    with FakeRegistry() as other:
        digest = other.add_image("library/python", "3", ("amd64", "arm64"))
        source = f"{other.host}/library/python:3"
        wanted = push(tmp_path, check=True, source=source)
        assert (wanted["changed"], wanted["uploaded"], server.blobs) == (True, [], {})
        made, again = push(tmp_path, source=source), push(tmp_path, source=source)
        assert made["image"] == f"registry.mesh:5000/team/train@{digest}" and made["bytes"] > 0
        assert (made["changed"], len(made["uploaded"])) == (True, 4)
        assert (again["changed"], again["uploaded"], again["bytes"]) == (False, [], 0)
        # The bound registry is a source, too, with its credentials.
        copied = push(tmp_path, name="registry.mesh:5000/team/other:2", source=NAME)
        assert copied["digest"] == digest and ("team/other", "2") in server.manifests


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "registry.mesh:5000/Team/train:1"}, "'registry.mesh:5000/Team/train:1' is not the name of an image"),
        ({"name": "registry.mesh:5000/a@sha256:0"}, "is not the name of an image that can be pushed"),
        ({"name": "ghcr.io/a/b:1"}, "name: the registry ghcr.io is not bound. Bind it"),
        ({}, "archive: one of archive and source is required"),
        ({"archive": "a", "source": "b"}, "archive: one of archive and source is required"),
        ({"archive": "nowhere.tar"}, "nowhere.tar does not exist"),
    ],
)
def test_what_cannot_be_pushed_is_named(
    server: FakeRegistry, tmp_path: pathlib.Path, options: dict[str, t.Any], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        push(tmp_path, **options)
    assert words in str(caught.value) and not server.blobs
