# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of a registry over real HTTP: names, tokens, architectures, digests, and the archive that is written."""

from __future__ import annotations

import json
import pathlib
import tarfile
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError, TransportError
from ansible_collections.muster.training.plugins.plugin_utils._services.registry import archives as subject
from ansible_collections.muster.training.plugins.plugin_utils._services.registry.client import (
    ImageName,
    Registry,
    digest_of,
)
from ansible_collections.muster.training.tests.support.release_host import ReleaseHost, release_host


@pytest.fixture
def host() -> t.Iterator[ReleaseHost]:
    with release_host() as made:
        yield made


def registry(host: ReleaseHost, reference: str = ":1") -> Registry:
    return Registry(ImageName.from_text(f"{host.host}/team/train{reference}"))


@pytest.mark.parametrize(
    ("name", "url", "reference"),
    [
        ("docker.io/library/python:3.13", "https://registry-1.docker.io/v2/library/python", "3.13"),
        ("registry.k8s.io/jobset/jobset:v0.12.0", "https://registry.k8s.io/v2/jobset/jobset", "v0.12.0"),
        ("localhost:5000/a/b", "http://localhost:5000/v2/a/b", "latest"),
        ("ghcr.io/a/b:1@sha256:0a", "https://ghcr.io/v2/a/b", "sha256:0a"),
    ],
)
def test_a_name_has_its_parts(name: str, url: str, reference: str) -> None:
    found = ImageName.from_text(name)
    assert (found.url, found.reference) == (url, reference)


@pytest.mark.parametrize("token", ["", "s3cr3t"])
def test_an_image_of_one_architecture_becomes_an_archive(host: ReleaseHost, tmp_path: pathlib.Path, token: str) -> None:
    digests = host.add_image("team/train", "1", ("amd64", "arm64"))
    host.token = token
    source = registry(host)
    manifest = subject.find_manifest(source, "arm64")
    assert digest_of(manifest[0]) == digests["arm64"]
    for name in ("one", "two"):
        subject.write_archive(source, "train:1", manifest, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with tarfile.open(tmp_path / "one") as archive:
        index = json.load(t.cast("t.IO[bytes]", archive.extractfile("index.json")))
        (entry,) = index["manifests"]
        names = archive.getnames()
        assert b"team/train arm64" in [t.cast("t.IO[bytes]", archive.extractfile(name)).read() for name in names]
    assert entry["digest"] == digests["arm64"] and entry["annotations"]["io.containerd.image.name"] == "train:1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_an_architecture_that_an_image_lacks_is_named(host: ReleaseHost) -> None:
    host.add_image("team/train", "1")
    with pytest.raises(RefusedError, match="1 has no image for arm64"):
        subject.find_manifest(registry(host), "arm64")


def test_what_is_not_as_its_digest_says_is_refused(host: ReleaseHost, tmp_path: pathlib.Path) -> None:
    digests = host.add_image("team/train", "1")
    source = registry(host)
    manifest = subject.find_manifest(source, "amd64")
    layer = json.loads(manifest[0])["layers"][0]["digest"]
    host.add(f"/v2/team/train/blobs/{layer}", b"something else")
    with pytest.raises(RefusedError, match="arrived as sha256:"):
        subject.write_archive(source, "train:1", manifest, tmp_path / "one")
    assert list(tmp_path.iterdir()) == []
    content, kind = host.files[f"/v2/team/train/manifests/{digests['amd64']}"]
    host.add(f"/v2/team/train/manifests/{digests['amd64']}", content + b" ", kind)
    for reference in (":1", f"@{digests['amd64']}"):
        with pytest.raises(RefusedError, match="arrived as sha256:"):
            subject.find_manifest(registry(host, reference), "amd64")


def test_an_image_that_is_not_there_is_named(host: ReleaseHost) -> None:
    with pytest.raises(TransportError, match="manifests/1 cannot be read: HTTP Error 404"):
        subject.find_manifest(registry(host), "amd64")
