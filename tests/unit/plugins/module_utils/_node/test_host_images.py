# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of images, over a containerd that is a folder of lines."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    commands,
    files,
    host_agent,
    host_images,
    host_k3s,
    placed_files,
)

NAME, ARCHIVE = "localhost/train:1", b"an archive"
SHA = hashlib.sha256(ARCHIVE).hexdigest()


class Containerd:
    """Answers ``k3s ctr images``: an import adds ``brings``."""

    def __init__(self, brings: str = NAME) -> None:
        self.images: dict[str, str] = {"pause:3": "sha256:aa"}
        self.brings, self.calls = brings, list[tuple[str, ...]]()

    def run(self, *argv: str, **_how: t.Any) -> str:
        self.calls.append(argv[1:])
        if argv[3] == "import":
            assert pathlib.Path(argv[4]).read_bytes() == ARCHIVE
            self.images[self.brings] = "sha256:bb"
        listed = [f"{name} application/x {digest} 1.0 MiB linux/amd64 -" for name, digest in self.images.items()]
        return "\n".join(["REF TYPE DIGEST SIZE PLATFORMS LABELS", *listed])


@pytest.fixture
def containerd(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Containerd:
    made = Containerd()
    (tmp_path / "var/lib/muster").mkdir(parents=True)
    files.write_json(tmp_path / host_k3s.RECORD, {})
    (tmp_path / host_images.RECORD).parent.mkdir(parents=True)
    monkeypatch.setattr(commands, "run", lambda *argv, **how: made.run(*argv, **how))
    monkeypatch.setattr(placed_files, "place_of", lambda path, root="/": tmp_path / path.lstrip("/"))
    return made


def ask(step: str, **values: t.Any) -> dict[str, t.Any]:
    return host_agent.answer_request({"op": "k3s", "step": step, "node": "n", "name": NAME, **values})


def place_part(folder: pathlib.Path, content: bytes = ARCHIVE) -> pathlib.Path:
    part = folder / "data/.image.tar.part"
    part.parent.mkdir(exist_ok=True)
    part.write_bytes(content)
    return part


def test_an_import_is_pinned_and_recorded(tmp_path: pathlib.Path, containerd: Containerd) -> None:
    machine = {"architecture": os.uname().machine}
    assert ask("find_image") == {"digest": None, "record": None, **machine}
    part = place_part(tmp_path)
    assert ask("load_image", path="/data/image.tar", sha256=SHA) == {"digest": "sha256:bb"}
    assert not part.exists()
    assert ("ctr", "images", "label", NAME, "io.cri-containerd.pinned=pinned") in containerd.calls
    assert ask("find_image") == {"digest": "sha256:bb", "record": {"archive": SHA, "digest": "sha256:bb"}, **machine}
    assert json.loads((tmp_path / host_images.RECORD).read_text()) == {NAME: {"archive": SHA, "digest": "sha256:bb"}}


def test_an_archive_that_arrived_broken_is_not_imported(tmp_path: pathlib.Path, containerd: Containerd) -> None:
    part = place_part(tmp_path, ARCHIVE[:-1])
    assert "arrived with the SHA-256" in ask("load_image", path="/data/image.tar", sha256=SHA)["problem"]
    assert containerd.calls == [] and not part.exists()


def test_an_archive_of_another_image_is_named(tmp_path: pathlib.Path, containerd: Containerd) -> None:
    containerd.brings = "localhost/other:1"
    place_part(tmp_path)
    said = ask("load_image", path="/data/image.tar", sha256=SHA)["problem"]
    assert said == f"the archive does not hold the image {NAME} (but localhost/other:1)"
    assert not (tmp_path / host_images.RECORD).exists()


def test_a_machine_without_k3s_says_so(tmp_path: pathlib.Path, containerd: Containerd) -> None:
    (tmp_path / host_k3s.RECORD).unlink()
    assert ask("find_image")["problem"] == "K3s is not installed by this collection" and containerd.calls == []
