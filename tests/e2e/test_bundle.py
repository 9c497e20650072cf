# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook bundle against a host of releases and a registry on this machine: all of it once, and then nothing."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

from ansible_collections.muster.training.plugins.plugin_utils._hosts import bundle, downloads
from ansible_collections.muster.training.tests.support.release_host import release_host


def play(folder: pathlib.Path, **values: object) -> tuple[int, str]:
    """Run the playbook with an inventory of its own, as a user does on a machine with a network."""
    (folder / "inventory").mkdir(exist_ok=True)
    (folder / "inventory" / "hosts.yml").write_text("muster_nodes: {hosts: {gpu-1: {}}}\n")
    program = os.fspath(pathlib.Path(sys.executable).parent / "ansible-playbook")
    argv = [program, "-i", "inventory/hosts.yml", "muster.training.bundle", "-e", json.dumps(values)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "MUSTER_"))}
    environment = {**kept, "ANSIBLE_HOME": str(folder / "ansible"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_bundle_is_made_once_and_its_digests_are_held_beside_the_inventory(tmp_path: pathlib.Path) -> None:
    with release_host() as host:
        for item in downloads.entries():
            text = f"kind: Deployment\nspec: {{image: '{host.host}/{item.name}/manager:v1'}}\n"
            host.add(f"/{downloads.bundle_path(item)}", text.encode())
        for name in ("jobset/manager", "kueue/manager"):
            host.add_image(name, "v1", ("amd64", "arm64"))
        host.add_image("team/train", "1", ("amd64", "arm64"))
        values = {
            "muster_bundle": "bundle",
            "muster_bundle_mirror": host.url,
            "muster_bundle_architectures": ["amd64", "arm64"],
            "muster_job": {"image": f"{host.host}/team/train:1"},
        }
        code, output = play(tmp_path, **values)
        assert code == 0 and "changed=1" in output, output
        index = bundle.read_index(tmp_path / "bundle")
        # Programs that are another choice come when their versions are named.
        wanted = [item for item in downloads.entries() if item.name not in downloads.only_named()]
        assert 0 < len(wanted) < len(downloads.entries()) and len(index) == len(wanted) + 3 * 2
        held = json.loads((tmp_path / "inventory" / "muster-downloads.lock.json").read_text())
        unknown = [item for item in wanted if not item.sha256]
        assert len(held) == len(unknown) + 3 * 2
        host.asked.clear()
        code, output = play(tmp_path, **values)
        assert code == 0 and "changed=0" in output and host.asked == [], output
    code, output = play(tmp_path)
    assert code != 0 and "Name the folder with -e muster_bundle=FOLDER" in output, output
