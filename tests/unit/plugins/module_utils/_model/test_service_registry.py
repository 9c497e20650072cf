# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an entry of a registry may hold, and which names of images lead to it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.plugins.module_utils._model.service_registry import hosts_of, is_repository

ENTRY: t.Final = {"name": "images", "kind": "registry", "mode": "bind", "endpoint": "https://10.0.0.5:5000/"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"endpoint": "https://h/v2/team"}, "images.endpoint: has a path"),
        ({"hosts": ["https://registry.mesh"]}, "'https://registry.mesh' is not the name of a registry"),
        ({"hosts": ["registry"]}, "'registry' is not the name of a registry"),
        ({"hosts": ["Registry.Mesh"]}, "'Registry.Mesh' is not the name"),
        ({"resources": [{"purpose": "images", "ref": "Team/Train"}]}, "'Team/Train' is not the name of a repository"),
        ({"resources": [{"purpose": "images", "ref": "team/train:1"}]}, "without host and tag"),
        ({"mode": "deploy", "deploy": {"host": "h"}}, "images.endpoint: is for mode: bind"),
        ({"mode": "deploy", "deploy": {"host": "h"}, "endpoint": None, "hosts": ["x"]}, "'x' is not the name of"),
        ({"mode": "deploy", "deploy": {"host": "h", "proxy": "x"}, "endpoint": None}, "proxy: is not the address of a"),
        (
            {"mode": "deploy", "deploy": {"host": "h", "proxy": "https://u:pw@x"}, "endpoint": None},
            "proxy: must not contain a user or a password",
        ),
        (
            {
                "mode": "deploy",
                "deploy": {"host": "h", "proxy": "https://x"},
                "endpoint": None,
                "resources": [{"purpose": "images", "ref": "team"}],
            },
            "images.resources: is not for a registry that pulls through",
        ),
        ({"region": "eu"}, "images.region: has no effect"),
        ({"env": {"A": "b"}}, "images.env: has no effect"),
        ({"kind": "tracking", "hosts": ["a.b"]}, "images.hosts: is for kind: registry"),
        ({"secret_ref": {"from": "env", "keys": {"token": "T"}}}, "Known are: username, password"),
    ],
)
def test_an_entry_that_cannot_work_is_refused(changes: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_services([{**ENTRY, **changes}])
    assert words in str(caught.value)


def test_names_of_images_lead_to_a_registry() -> None:
    (service,) = parse_services([{**ENTRY, "hosts": ["registry.mesh:5000", "docker.io", "localhost", "reg:80"]}])
    binding = service.to_binding(None)
    assert hosts_of(binding) == ("registry.mesh:5000", "docker.io", "localhost", "reg:80", "10.0.0.5:5000")
    assert Binding.from_dict(binding.to_dict()) == binding
    (hub,) = parse_services([{**ENTRY, "endpoint": "https://registry-1.docker.io"}])
    assert hosts_of(hub.to_binding(None)) == ("docker.io",)


@pytest.mark.parametrize(("name", "good"), [("a", True), ("a/b-c__d.e", True), ("a//b", False), ("a/B", False)])
def test_the_name_of_a_repository(name: str, good: bool) -> None:
    assert is_repository(name) is good and not is_repository("a" * 256)
