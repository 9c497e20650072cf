# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image to one machine: sent once, and again only where it is gone or the archive is another one."""

from __future__ import annotations

import hashlib
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._hosts import bundle
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.k3s_image import run as k3s_image


class Machine(NodeClient):
    """A machine that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__("n", lambda command, data: (1, "", ""))
        self.digest: str | None = None
        self.record: dict[str, str] | None = None
        self.steps: list[str] = []

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        self.steps.append(values["step"])
        assert values["step"] != "bring" or b"".join(values["body"]).endswith(b"\n")
        if values["step"] == "load_image":
            self.digest, self.record = "sha256:bb", {"archive": values["sha256"], "digest": "sha256:bb"}
        return {"digest": self.digest, "record": self.record, "digests": {}, "architecture": "aarch64"}


def bring(machine: Machine, base: pathlib.Path, check: bool = False) -> dict[str, t.Any]:
    machine.steps.clear()
    return k3s_image.run({"name": "train:1", "archive": "train.tar"}, machine, base, check)


def test_an_image_is_sent_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "train.tar").write_bytes(b"one")
    machine = Machine()
    assert bring(machine, tmp_path, check=True)["changed"] and machine.steps == ["find_image"]
    first = bring(machine, tmp_path)
    assert first == {
        "changed": True,
        "image": "docker.io/library/train:1",
        "digest": "sha256:bb",
        "archive_sha256": hashlib.sha256(b"one").hexdigest(),
    }
    assert bring(machine, tmp_path) == {**first, "changed": False} and machine.steps == ["find_image"]


@pytest.mark.parametrize("what", ["archive", "removed", "replaced"])
def test_what_differs_is_sent_again(tmp_path: pathlib.Path, what: str) -> None:
    (tmp_path / "train.tar").write_bytes(b"one")
    machine = Machine()
    bring(machine, tmp_path)
    if what == "archive":
        (tmp_path / "train.tar").write_bytes(b"two")
    else:
        machine.digest = None if what == "removed" else "sha256:cc"
    assert bring(machine, tmp_path)["changed"] and "load_image" in machine.steps


def test_an_archive_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match=r"train\.tar does not exist"):
        bring(Machine(), tmp_path)


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_bundle_gives_the_archive_of_the_machines_architecture(tmp_path: pathlib.Path) -> None:
    image = "docker.io/library/train:1"
    (tmp_path / "bundle").mkdir()
    for architecture in ("amd64", "arm64"):
        (tmp_path / "bundle" / f"{architecture}.tar").write_bytes(architecture.encode())
    entries = [
        bundle.BundleEntry(image, "", architecture, f"{architecture}.tar", sha256_of(architecture), "job")
        for architecture in ("amd64", "arm64")
    ]
    bundle.write_index(tmp_path / "bundle", entries)
    found = k3s_image.run({"name": "train:1", "archive": "bundle"}, Machine(), tmp_path, False)
    assert found["archive_sha256"] == hashlib.sha256(b"arm64").hexdigest()
    with pytest.raises(InputError, match="does not hold the image docker.io/library/other:latest for arm64. It has"):
        k3s_image.run({"name": "other", "archive": "bundle"}, Machine(), tmp_path, False)
    (tmp_path / "bundle" / "arm64.tar").write_bytes(b"damaged")
    with pytest.raises(RefusedError, match=r"which bundle\.json has"):
        k3s_image.run({"name": "train:1", "archive": "bundle"}, Machine(), tmp_path, False)
