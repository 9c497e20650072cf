# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role on this machine in a mount namespace whose /etc and /srv are a copy, with systemd and packages recorded.

Machines with systemd and apt are in tests/lab/test_lab_filesystems.py.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.support.mount_world import can_mount
from ansible_collections.muster.training.tests.support.run_inventory import environment

Dict = dict[str, t.Any]
pytestmark = pytest.mark.skipif(not can_mount(), reason="mounts in namespaces need root")
# What the role asks of a machine. The programs write down what they are asked, and remember which units run.
PROGRAMS: t.Final = {
    "systemctl": """
for word in "$@"; do case "$word" in *.service) unit=$word ;; esac; done
case "$1" in
    show) state=inactive; [ -e "$ROOT/unit-$unit" ] && state=active
        printf 'Id=%s\\nLoadState=loaded\\nActiveState=%s\\nUnitFileState=enabled\\n' "$unit" $state ;;
    is-enabled) [ -e "$ROOT/unit-$unit" ] && echo enabled || { echo disabled; exit 1; } ;;
    start|restart) touch "$ROOT/unit-$unit" ;;
    stop) rm -f "$ROOT/unit-$unit" ;;
esac
""",
    "dpkg-query": "printf 'ii  nfs-kernel-server\\nii  nfs-ganesha\\nii  nfs-ganesha-vfs\\n'\n",
    "systemd-detect-virt": "exit $CONTAINER\n",
    "modprobe": "exit $NFSD\n",
    "ss": "true\n",
    "exportfs": "true\n",
}
OVERLAYS: t.Final = """set -e
for place in /etc /srv; do
    mkdir -p $ROOT/over$place/upper $ROOT/over$place/work
done
mount -t tmpfs tmpfs /run/systemd 2>/dev/null || { mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd; }
mkdir -p /run/systemd/system
mount -t overlay overlay -o lowerdir=/etc,upperdir=$ROOT/over/etc/upper,workdir=$ROOT/over/etc/work /etc
mount -t overlay overlay -o lowerdir=/srv,upperdir=$ROOT/over/srv/upper,workdir=$ROOT/over/srv/work /srv
exec "$@"
"""


class Machine:
    """This machine without what it may not have changed. ``kernel``: whether it has a server of NFS."""

    def __init__(self, root: pathlib.Path, kernel: bool) -> None:
        self.root, self.kernel = root, kernel
        (root / "bin").mkdir()
        for name, text in PROGRAMS.items():
            place = root / "bin" / name
            place.write_text(f'#!/bin/sh\necho "{name} $*" >> "$ROOT/asked"\n{text}')
            place.chmod(0o755)

    def role(self, *words: str, **changes: t.Any) -> str:
        place = {"host": "localhost", "clients": ["10.0.0.0/24"], "address": "127.0.0.1"}
        service = {"name": "nas", "kind": "shared_filesystem", "mode": "deploy", "deploy": place}
        values = {
            "shared_filesystem_service": {**service, "filesystem": {"path": "/mnt/nas"}, **changes},
            "muster_state": {"path": str(self.root / "state")},
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
        }
        task = {"include_role": {"name": "muster.training.shared_filesystem"}}
        play = {"hosts": "localhost", "gather_facts": False, "vars": values, "tasks": [task]}
        (self.root / "play.yml").write_text(json.dumps([play]))
        program = pathlib.Path(sys.executable).parent / "ansible-playbook"
        argv = [
            "unshare",
            "-m",
            "sh",
            "-c",
            OVERLAYS,
            "sh",
            str(program),
            "-i",
            "localhost,",
            "-c",
            "local",
            "play.yml",
        ]
        env = {**environment(self.root), "ROOT": str(self.root), "CONTAINER": "1", "NFSD": "01"[not self.kernel]}
        env["PATH"] = f"{self.root / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run([*argv, *words], cwd=self.root, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
        return done.stdout

    def files(self) -> set[str]:
        """Return what was written below /etc and /srv."""
        found: set[str] = set()
        for top in ("etc", "srv"):
            upper = self.root / "over" / top / "upper"
            found |= {f"/{top}/{item.relative_to(upper)}" for item in upper.rglob("*") if item.is_file()}
        return found

    def asked(self, word: str) -> list[str]:
        lines = (self.root / "asked").read_text().splitlines()
        return [line for line in lines if word in line]


def test_a_host_with_a_server_in_its_kernel(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path, kernel=True)
    assert "changed=0" not in machine.role("--check")
    assert machine.files() == set() and not (tmp_path / "state").exists() and machine.asked("exportfs") == []
    assert "changed=0" not in machine.role()
    made = {"/etc/exports.d/muster-nas.exports", "/etc/muster/shared_filesystems/nas.json"}
    assert machine.files() == made and machine.asked("exportfs") == ["exportfs -ra"]
    record = json.loads((tmp_path / "state/default/services/nas.json").read_text())
    assert record["endpoint"] == "nfs://127.0.0.1/srv/muster/nas"
    assert (tmp_path / "over/srv/upper/muster/nas").stat().st_mode & 0o7777 == 0o1777
    assert "changed=0" in machine.role() and machine.asked("exportfs") == ["exportfs -ra"]
    (tmp_path / "over/srv/upper/muster/nas/canary").write_text("x")
    machine.role(state="absent")
    assert machine.files() == {"/srv/muster/nas/canary"} and len(machine.asked("exportfs")) == 2
    assert not (tmp_path / "state/default/services/nas.json").exists()


def test_a_host_without_one_gets_ganesha(tmp_path: pathlib.Path) -> None:
    """Its settings are changed, and it is started again, only where something differs."""
    machine = Machine(tmp_path, kernel=False)
    script = (
        "import socket; s = socket.create_server(('127.0.0.1', 2049)); print(1, flush=True)\nwhile s.accept(): pass"
    )
    with_server = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert with_server.stdout is not None
        if with_server.stdout.readline() != b"1\n":
            pytest.skip("another server has the port of NFS, or a file system cannot be mounted here")
        assert "changed=0" not in machine.role()
        made = {"/etc/muster/shared_filesystems/nas.conf", "/etc/muster/shared_filesystems/nas.json"}
        assert machine.files() == {*made, "/etc/systemd/system/muster-nas.service"}
        assert len(machine.asked("start muster-nas.service")) == 1
        assert "changed=0" in machine.role() and len(machine.asked("start muster-nas.service")) == 1
    finally:
        with_server.kill()
        with_server.wait()
