# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pushing into a strict registry over real HTTP: what is sent, what continues after a fault, and what is refused."""

from __future__ import annotations

import io
import json
import pathlib
import tarfile
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    ApiError,
    InputError,
    RefusedError,
    TransportError,
)
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services.registry import push as subject
from ansible_collections.muster.training.plugins.plugin_utils._services.registry.client import (
    ImageName,
    Registry,
    RegistryAccess,
    digest_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._services.registry.image_source import (
    ArchiveSource,
    RegistrySource,
)
from ansible_collections.muster.training.tests.fakes.registry import PASSWORD, USER, FakeRegistry, Fault

LAYER = bytes(range(256)) * 100
NAME = "registry.mesh:5000/team/train:1"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_PAUSE_S", 0.0)
    monkeypatch.setattr(subject, "_CHUNK", 10_000)


@pytest.fixture
def server() -> t.Iterator[FakeRegistry]:
    with FakeRegistry("bearer") as made:
        yield made


@pytest.fixture
def archive(tmp_path: pathlib.Path) -> pathlib.Path:
    """As docker save writes it."""
    place = tmp_path / "train.tar"
    write(place, {"config.json": b'{"architecture": "amd64"}', "one/layer.tar": LAYER})
    return place


def write(place: pathlib.Path, files: dict[str, bytes], *names: str) -> None:
    entry = {"Config": "config.json", "Layers": ["one/layer.tar"], "RepoTags": [NAME]}
    listed = [entry, *({**entry, "RepoTags": [name]} for name in names)]
    with tarfile.open(place, "w") as tar:
        for path, content in {**files, "manifest.json": json.dumps(listed).encode()}.items():
            about = tarfile.TarInfo(path)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))


def target(server: FakeRegistry, repository: str = "team/train") -> Registry:
    access = RegistryAccess(server.url, None, USER, Secret(PASSWORD, "test"))
    return Registry(ImageName("registry.mesh:5000", repository, "1"), access)


def send(server: FakeRegistry, archive: pathlib.Path) -> tuple[str, list[str]]:
    with ArchiveSource(archive, NAME) as source:
        plan = subject.plan_push(source)
        return plan.digest, subject.push(target(server), source, plan, lambda _line: None)


def test_an_archive_is_sent_once_and_is_what_it_was(server: FakeRegistry, archive: pathlib.Path) -> None:
    digest, sent = send(server, archive)
    assert server.blobs["team/train", digest_of(LAYER)] == LAYER and len(sent) == 2
    assert subject.find_digest(target(server)) == digest
    patches = [call for call in server.calls if call.startswith("PATCH")]
    assert len(patches) == 4, "three chunks of the layer, one of the configuration"
    calls = len(server.calls)
    again, sent = send(server, archive)
    assert (again, sent) == (digest, []) and not [call for call in server.calls[calls:] if "uploads" in call]


LOST = [Fault(500), Fault(500, effect=True), Fault(503), Fault(429), Fault(502, b"<html>", effect=True)]


@pytest.mark.parametrize(
    ("method", "fault"),
    [*((method, fault) for method in ("PATCH", "PUT", "POST") for fault in LOST), ("PATCH", Fault(416))],
)
def test_a_push_continues_after_a_fault(server: FakeRegistry, archive: pathlib.Path, fault: Fault, method: str) -> None:
    """Also where the registry did what it answered an error to."""
    server.faults[f"{method} *"] = [Fault(**vars(fault)) for _count in range(2)]
    digest, _sent = send(server, archive)
    assert server.blobs["team/train", digest_of(LAYER)] == LAYER
    assert subject.find_digest(target(server)) == digest


def test_what_does_not_pass_ends_and_leaves_the_tag(server: FakeRegistry, archive: pathlib.Path) -> None:
    before = server.add_image("team/train", "1")
    full = [Fault(500, b'{"errors": [{"code": "UNKNOWN"}]}') for _count in range(9)]
    server.faults["PATCH *"] = full
    with pytest.raises(ApiError, match="cannot be written: HTTP Error 500: UNKNOWN") as caught:
        send(server, archive)
    assert "space on its disk" in caught.value.fix and subject.find_digest(target(server)) == before


def test_a_token_that_may_only_pull_is_told(server: FakeRegistry, archive: pathlib.Path) -> None:
    server.rights = ("pull",)
    with pytest.raises(RefusedError, match=r"the credentials may not push \(HTTP 401\)") as caught:
        send(server, archive)
    assert "canary" not in str(caught.value) and not server.blobs


def test_an_index_is_copied_whole_from_another_registry(server: FakeRegistry) -> None:
    with FakeRegistry() as other:
        digest = other.add_image("library/python", "3.13", ("amd64", "arm64"))
        name = ImageName.from_text(f"{other.host}/library/python:3.13")
        for expected in (4, 0):
            source = RegistrySource(Registry(name))
            plan = subject.plan_push(source)
            assert len(subject.push(target(server), source, plan, lambda _line: None)) == expected
        assert plan.digest == digest == subject.find_digest(target(server)) and len(plan.children) == 2
        name = ImageName.from_text(f"{other.host}/library/python@{digest}")
        assert subject.plan_push(RegistrySource(Registry(name))) == plan
        layer = next(key for key, blob in other.blobs.items() if blob.startswith(b"library"))
        other.blobs[layer] = b"something else"
        with pytest.raises(RefusedError, match="arrived as"):
            subject.push(target(server, "team/other"), source, plan, lambda _line: None)
    with pytest.raises(TransportError):
        subject.plan_push(RegistrySource(Registry(name)))


def test_a_tag_that_is_not_there_has_no_digest(server: FakeRegistry) -> None:
    assert subject.find_digest(target(server)) is None
    server.rights = ()
    with pytest.raises(ApiError):
        subject.find_digest(target(server))


def test_an_image_of_a_kind_that_is_not_known_is_refused(server: FakeRegistry) -> None:
    class Odd:
        def root(self) -> tuple[bytes, str]:
            return b"{}", "application/vnd.docker.distribution.manifest.v1+prettyjws"

    with pytest.raises(InputError, match="of the kind application/vnd.docker.distribution.manifest.v1"):
        subject.plan_push(t.cast("t.Any", Odd()))


def test_a_kind_of_image_that_a_registry_does_not_take_is_named(server: FakeRegistry, archive: pathlib.Path) -> None:
    """As zot answers to Docker's own manifests; an archive of docker save is sent as one of the OCI."""
    server.faults["PUT *"] = [Fault(400, b'{"errors": [{"code": "MANIFEST_INVALID"}]}') for _count in range(9)]
    with pytest.raises(ApiError, match="cannot be written: HTTP Error 400: MANIFEST_INVALID") as caught:
        send(server, archive)
    assert "compat: [docker2s2]" in caught.value.fix and subject.find_digest(target(server)) is None
