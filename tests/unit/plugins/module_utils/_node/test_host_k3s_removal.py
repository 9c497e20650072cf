# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removal below a folder: what was made goes, what was there before stays. Pods, links and rules are the lab's."""

from __future__ import annotations

import pathlib

from ansible_collections.muster.training.plugins.module_utils._node import host_k3s, host_k3s_removal
from ansible_collections.muster.training.tests.support.carried import carry

UNIT = {"unit": "k3s.service", "role": "server", "cluster": "lab"}


def tree(root: pathlib.Path) -> list[str]:
    return sorted(str(place.relative_to(root)) for place in root.rglob("*"))


def install(root: pathlib.Path) -> None:
    items = [{"path": path, "mode": 0o600, "text": "x"} for path in ("/usr/local/bin/k3s", "/etc/rancher/k3s/a.yaml")]
    host_k3s.answer({"step": "apply", "root": str(root), "files": items, "start_with": "d1", **UNIT})
    # What K3s makes itself.
    for path in ("var/lib/rancher/k3s/server/db", "var/lib/kubelet/pods", "etc/rancher/node", "var/log/pods/a"):
        (root / path).mkdir(parents=True, exist_ok=True)
        (root / path / "file").write_text("x")


def test_a_machine_is_left_as_it_was_found(tmp_path: pathlib.Path) -> None:
    (tmp_path / "usr/local/bin").mkdir(parents=True)
    (tmp_path / "usr/local/bin/mine").touch()
    (tmp_path / "var/lib/kubelet").mkdir(parents=True)
    (tmp_path / "etc/rancher/other").mkdir(parents=True)
    before = tree(tmp_path)
    install(tmp_path)
    assert tree(tmp_path) != before
    assert host_k3s_removal.remove({"root": str(tmp_path)}) == {"removed": True}
    # /var/log is a folder of every machine.
    assert [path for path in tree(tmp_path) if path != "var/log"] == before
    assert host_k3s_removal.remove({"root": str(tmp_path)}) == {"removed": False}


def test_a_half_done_installation_is_removed_too(tmp_path: pathlib.Path) -> None:
    (tmp_path / "usr/local/bin").mkdir(parents=True)
    before = tree(tmp_path)
    half = carry("/usr/local/bin/k3s", b"half")
    begin = {"paths": ["/usr/local/bin/k3s"], **UNIT}
    host_k3s.answer({"step": "bring", "root": str(tmp_path), "begin": begin, **half})
    assert (tmp_path / "usr/local/bin/.k3s.part").read_text() == "half"
    host_k3s_removal.remove({"root": str(tmp_path)})
    assert [path for path in tree(tmp_path) if not path.startswith("var")] == before


def test_without_a_record_nothing_is_touched(tmp_path: pathlib.Path) -> None:
    (tmp_path / "etc/rancher/k3s").mkdir(parents=True)
    (tmp_path / "etc/rancher/k3s/config.yaml").touch()
    before = tree(tmp_path)
    assert host_k3s_removal.remove({"root": str(tmp_path)}) == {"removed": False}
    assert tree(tmp_path) == before
