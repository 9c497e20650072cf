# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file system that is exported: the entries by which none can be, and what the host gets of one that can."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.filesystem_server import (
    FilesystemServer,
    plan_server,
)
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services

Dict = dict[str, t.Any]
PLACE: t.Final[Dict] = {"host": "a", "clients": ["10.0.0.0/24"]}


def entry(place: Dict | None = None, **changes: t.Any) -> Dict:
    about = {"name": "nas", "kind": "shared_filesystem", "mode": "deploy", "deploy": {**PLACE, **(place or {})}}
    return {**about, "filesystem": {"path": "/mnt/nas"}, **changes}


def plan(address: str = "10.0.0.5", cluster: str = "c", **changes: t.Any) -> FilesystemServer:
    (service,) = parse_services([entry(**changes)])
    assert service.deploy is not None
    return plan_server(service, service.deploy, cluster, address)


@pytest.mark.parametrize(
    ("place", "changes", "option", "words"),
    [
        ({}, {"provider": "smb"}, "provider", "'smb' is not deployed"),
        ({"host": None, "namespace": "s"}, {}, "deploy.namespace", "is not for NFS"),
        ({"clients": []}, {}, "deploy.clients", "is required: who may mount it"),
        ({"clients": ["10.0.0.5/24"]}, {}, "deploy.clients", "'10.0.0.5/24' is not a network"),
        ({"clients": ["*"]}, {}, "deploy.clients", "'*' is not a network"),
        ({"clients": ["0.0.0.0/0"]}, {}, "deploy.clients", "every machine there is"),
        ({"clients": ["::/0"]}, {}, "deploy.clients", "every machine there is"),
        ({"host_path": "srv/x"}, {}, "deploy.host_path", "not an absolute path"),
        ({"host_path": "/"}, {}, "deploy.host_path", "not an absolute path"),
        ({"host_path": "/srv/../etc"}, {}, "deploy.host_path", "not an absolute path"),
        ({"host_path": "/srv/a b(rw)"}, {}, "deploy.host_path", "not an absolute path"),
        ({"host_path": "/mnt/nas/of"}, {}, "deploy.host_path", "are in one another"),
        ({"host_path": "/mnt"}, {}, "deploy.host_path", "are in one another"),
        ({"port": 3049}, {}, "deploy.port", "has no effect"),
        ({"tls": True}, {}, "deploy.tls", "has no effect"),
        ({"login": True}, {}, "deploy.login", "is for kind: tracking"),
        ({"size": "1Gi"}, {}, "deploy.size", "is for services in clusters only"),
        ({}, {"resources": [{"purpose": "datasets", "ref": "data"}]}, "resources", "has no effect"),
        ({}, {"endpoint": "nfs://h/x"}, "endpoint", "is for mode: bind"),
        ({}, {"filesystem": None}, "filesystem.path", "is required"),
        ({}, {"filesystem": {"path": "/etc/nas"}}, "filesystem.path", "must not be in"),
        ({}, {"filesystem": {"path": "/mnt/nas", "type": "nfs"}}, "filesystem.type", "has no effect"),
        ({}, {"filesystem": {"path": "/mnt/nas", "options": "soft"}}, "filesystem.options", "must not have soft"),
    ],
)
def test_what_is_refused(place: Dict, changes: Dict, option: str, words: str) -> None:
    values = {key: value for key, value in entry(place, **changes).items() if value is not None}
    values["deploy"] = {key: value for key, value in values["deploy"].items() if value is not None}
    with pytest.raises(InputError) as caught:
        parse_services([values])
    assert caught.value.option == f"muster_services.nas.{option}" and words in str(caught.value)


def test_only_a_file_system_has_clients() -> None:
    place = {"host": "a", "clients": ["10.0.0.0/24"]}
    tracker = {"name": "t", "kind": "tracking", "mode": "deploy", "deploy": place}
    with pytest.raises(InputError, match="clients: is for kind: shared_filesystem"):
        parse_services([tracker])
    with pytest.raises(InputError, match="filesystem: is for kind: shared_filesystem"):
        parse_services([{**tracker, "deploy": {"host": "a"}, "filesystem": {"path": "/x"}}])


def test_what_the_host_gets() -> None:
    made = plan()
    assert (made.endpoint, made.export, made.provider) == ("nfs://10.0.0.5/srv/muster/nas", "/srv/muster/nas", "nfs")
    assert (made.listen, plan("storage-1").listen, plan("storage-1").endpoint) == (
        "10.0.0.5",
        "0.0.0.0",
        "nfs://storage-1/srv/muster/nas",
    )
    assert plan("fd00::5", place={"host_path": "/data"}).endpoint == "nfs://[fd00::5]/data"
    assert plan(address="10.0.0.6").fsid == made.fsid != plan(cluster="other").fsid, "of the name, not of the address"


def test_one_that_goes_needs_no_clients() -> None:
    made = plan(state="absent", place={"clients": [], "delete_data": True})
    assert (made.state, made.delete_data, made.export) == ("absent", True, "/srv/muster/nas")
