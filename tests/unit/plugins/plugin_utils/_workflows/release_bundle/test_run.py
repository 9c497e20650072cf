# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle from a host of releases and a registry, over real HTTP."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    InputError,
    RefusedError,
    TransportError,
)
from ansible_collections.muster.training.plugins.plugin_utils._hosts import bundle, downloads
from ansible_collections.muster.training.plugins.plugin_utils._workflows import release_file
from ansible_collections.muster.training.plugins.plugin_utils._workflows.release_bundle import run as release_bundle
from ansible_collections.muster.training.tests.support.release_host import ReleaseHost, release_host


@pytest.fixture
def host() -> t.Iterator[ReleaseHost]:
    """A mirror with every file of the list, and the images that the manifests name."""
    with release_host() as made:
        for item in downloads.entries():
            content = f"{item.key}".encode()
            if item.name in ("jobset", "kueue"):
                content = f"kind: Deployment\nspec: {{image: '{made.host}/{item.name}/manager:v1'}}\n".encode()
                made.add_image(f"{item.name}/manager", "v1", ("amd64", "arm64"))
            made.add(f"/{downloads.bundle_path(item)}", content)
        made.add_image("team/train", "1", ("amd64",))
        yield made


def make(base: pathlib.Path, host: ReleaseHost, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    values = {"path": "bundle", "architectures": ["amd64"], "images": [], "controller_images": True}
    return release_bundle.run({**values, "mirror": host.url, **options}, [], base, check)


def test_a_bundle_has_all_of_one_architecture_and_is_fetched_once(tmp_path: pathlib.Path, host: ReleaseHost) -> None:
    checked = make(tmp_path, host, check=True)
    assert checked["changed"] and not list(tmp_path.iterdir()) and host.asked == []
    first = make(tmp_path, host, images=[f"{host.host}/team/train:1"])
    usual = [item for item in downloads.entries() if item.name not in downloads.only_named()]
    wanted = [downloads.bundle_path(item) for item in usual if item.architecture != "arm64"]
    assert set(wanted) < set(first["fetched"]) and len(first["fetched"]) == len(wanted) + 3
    index = bundle.read_index(tmp_path / "bundle")
    assert {item.use for item in index} == {"file", "cluster", "job"}
    host.asked.clear()
    again = make(tmp_path, host, images=[f"{host.host}/team/train:1"])
    assert (again["changed"], again["fetched"], host.asked) == (False, [], [])
    # Each file is what a role that takes the folder gets, by the digest that the lock file holds.
    options = {"name": "kueue", "architecture": "any", "source": "bundle", "cluster": "lab", "state_home": {}}
    found = release_file.run(options, [], tmp_path, False)
    assert "kueue/manager" in pathlib.Path(found["path"]).read_text()


def test_a_choice_of_several_programs_is_fetched_when_it_is_named(tmp_path: pathlib.Path, host: ReleaseHost) -> None:
    """Both architectures have files of one name; each goes where a host of it finds it."""
    both = {"controller_images": False, "architectures": ["amd64", "arm64"]}
    version = downloads.default_version("minio")
    made = make(tmp_path, host, versions={"minio": version}, **both)
    found = [path for path in made["fetched"] if path.startswith("minio/")]
    assert found == [f"minio/{version}/{name}/minio.{version}" for name in ("amd64", "arm64")]
    assert not [path for path in made["fetched"] if path.startswith(("vault/", "rustfs/"))]
    for architecture in ("amd64", "arm64"):
        place = downloads.locate(downloads.find("minio", version, architecture), "bundle", tmp_path)
        assert architecture in pathlib.Path(place).read_text()


def test_a_damaged_file_is_fetched_again_with_the_digest_that_is_held(
    tmp_path: pathlib.Path, host: ReleaseHost
) -> None:
    made = make(tmp_path, host)
    path = next(path for path in made["fetched"] if path.endswith("/k3s"))
    (tmp_path / "bundle" / path).write_bytes(b"damaged")
    options = {"name": "k3s", "architecture": "amd64", "source": "bundle", "cluster": "lab", "state_home": {}}
    (tmp_path / "muster-downloads.lock.json").rename(tmp_path / "kept.json")
    with pytest.raises(RefusedError, match=r"which bundle\.json has"):
        release_file.run(options, [], tmp_path, False)
    (tmp_path / "kept.json").rename(tmp_path / "muster-downloads.lock.json")
    assert make(tmp_path, host)["fetched"] == [path]
    (tmp_path / "bundle" / path).unlink()
    host.add(f"/{path}", b"another release")
    with pytest.raises(RefusedError, match=r"k3s .* has the SHA-256"):
        make(tmp_path, host)
    assert not (tmp_path / "bundle" / path).exists()


def test_an_image_that_moved_to_another_digest_is_refused(tmp_path: pathlib.Path, host: ReleaseHost) -> None:
    image = f"{host.host}/team/train:1"
    digest = next(item["digest"] for item in make(tmp_path, host, images=[image])["entries"] if item["name"] == image)
    held = json.loads((tmp_path / "muster-downloads.lock.json").read_text())
    assert digest.removeprefix("sha256:") in " ".join(held.values())
    for item in (tmp_path / "bundle" / "images").iterdir():
        item.unlink()
    host.files = {path: kept for path, kept in host.files.items() if "/team/" not in path}
    host.add_image("team/train", "1", ("amd64", "arm64"))
    make(tmp_path, host, images=[image])
    (tmp_path / "bundle" / "bundle.json").unlink()
    content, kind = host.files[f"/v2/team/train/manifests/{digest}"]
    moved = content.replace(b'"schemaVersion": 2', b'"schemaVersion":  2')
    host.add("/v2/team/train/manifests/1", moved, kind)
    with pytest.raises(RefusedError, match=r"image .*team/train:1 .* has the SHA-256"):
        make(tmp_path, host, images=[image])


def test_a_file_that_the_mirror_lacks_is_named_and_the_rest_stays(tmp_path: pathlib.Path, host: ReleaseHost) -> None:
    (path,) = [path for path in host.files if path.endswith("manifests.yaml") and "kueue" in path]
    kept = host.files.pop(path)
    with pytest.raises(TransportError, match=r"kueue/.*/manifests\.yaml cannot be downloaded: HTTP Error 404"):
        make(tmp_path, host)
    host.files[path] = kept
    assert not any("k3s" in item for item in make(tmp_path, host)["fetched"])


def test_versions_are_of_programs_that_are_downloaded(tmp_path: pathlib.Path, host: ReleaseHost) -> None:
    with pytest.raises(InputError, match="'k3z' is not one of the downloads"):
        make(tmp_path, host, versions={"k3z": "v1"})
    order = release_bundle.BundleOrder(tmp_path, t.cast("t.Any", None), {"k3s": "v9.9.9+k3s9"}, ("arm64",))
    found = [(item.name, item.version) for item in release_bundle.list_downloads(order)]
    assert ("k3s", "v9.9.9+k3s9") in found and ("k3s-images", "v9.9.9+k3s9") in found


def test_images_are_those_of_objects_and_not_of_schemas() -> None:
    text = """
kind: CustomResourceDefinition
spec: {properties: {image: text}}
---
kind: Deployment
spec: {template: {spec: {initContainers: [{image: busybox}], containers: [{image: 'registry.k8s.io/a/b:v1'}]}}}
---
"""
    assert release_bundle.find_images(text) == ["docker.io/library/busybox:latest", "registry.k8s.io/a/b:v1"]


def test_an_image_that_is_named_comes_for_the_nodes_by_its_pinned_digest(
    tmp_path: pathlib.Path, host: ReleaseHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{host.host}/team/train:1"
    monkeypatch.setattr(downloads, "image_of", lambda _program, version: name if version == "" else "")
    made = make(tmp_path, host, versions={"nvidia-device-plugin": ""})
    (entry,) = [item for item in made["entries"] if item["name"] == name]
    assert entry["use"] == "cluster"
    other = "sha256:" + "0" * 64
    pinned = downloads.Download("image", name, "any", "index", "", other)
    monkeypatch.setattr(downloads, "image", lambda _name: pinned)
    with pytest.raises((RefusedError, TransportError), match="0000"):
        make(tmp_path / "b", host, versions={"nvidia-device-plugin": ""})
