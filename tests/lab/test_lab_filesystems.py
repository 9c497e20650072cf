# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role filesystem_client on machines of the lab: packages by apt, mounts by systemd, and nothing left in the end.

The kernel here has neither NFS nor SMB: in place of the clients, packages of their names bring mount helpers that write
down how they were called and mount a tmpfs. Kernel mounts of NFS and SMB are not run.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.tests.e2e.playbook_world import Play, Result
from ansible_collections.muster.training.tests.lab import image
from ansible_collections.muster.training.tests.lab.k3s import machines
from ansible_collections.muster.training.tests.lab.k3s.session import open_machines
from ansible_collections.muster.training.tests.lab.test_molecule import APT
from ansible_collections.muster.training.tests.support.deb_repository import Package, build_repository

LIMIT_S: t.Final = 600
SECRET: t.Final = "canary-of-a-share-0123"
HELPER: t.Final = """#!/bin/sh
[ -e /run/refusal ] && { cat /run/refusal >&2; exit 32; }
echo "$@" >> /run/mounted
exec mount -i -t tmpfs "$1" "$2"
"""
# A folder stands in for the distribution's archive, which machines may reach or not.
PREPARE: t.Final = """
- hosts: muster_nodes
  gather_facts: false
  vars: {ansible_remote_tmp: /tmp}
  tasks:
    - ansible.builtin.file: {path: /etc/apt/sources.list, state: absent}
    - ansible.builtin.file: {path: /srv/repositories, state: directory, mode: "0755"}
    - ansible.builtin.copy: {src: "{{ repository }}/", dest: /srv/repositories/archive/, mode: preserve}
    - ansible.builtin.copy:
        dest: /etc/apt/sources.list.d/clients.sources
        content: |
          Types: deb
          URIs: file:/srv/repositories/archive/
          Suites: ./
          Signed-By: /srv/repositories/archive/key.asc
        mode: "0644"
"""
ROLE: t.Final = [
    {"hosts": "muster_nodes", "gather_facts": False, "roles": [{"role": "muster.training.filesystem_client"}]}
]
NFS: t.Final[dict[str, t.Any]] = {"name": "nas", "kind": "shared_filesystem", "mode": "bind", "provider": "nfs"}
SHARE: t.Final[dict[str, t.Any]] = {**NFS, "name": "files", "provider": "smb", "endpoint": "smb://10.0.0.5/share"}


class World:
    """Two machines, and a controller that runs the role on them."""

    def __init__(self, lab: machines.BareLab) -> None:
        self.lab, self.plays = lab, 0
        # Of the forty tasks of each play, every one would make three more ways to each machine.
        self.inventory = lab.inventory("root", ansible_pipelining=True)
        files = {f"usr/sbin/mount.{kind}": (HELPER, 0o755) for kind in ("nfs",)}
        other = {f"usr/sbin/mount.{kind}": (HELPER, 0o755) for kind in ("cifs",)}
        # Above the epochs of Debian's own.
        packages = [Package("nfs-common", "9:99.0-1", files=files), Package("cifs-utils", "9:99.0-1", files=other)]
        build_repository(lab.folder / "clients", packages)
        self.run(yaml.safe_load(PREPARE), repository=str(lab.folder / "clients"))

    def run(self, plays: t.Any, *words: str, **values: t.Any) -> Result:
        self.plays += 1
        place = self.lab.folder / f"play-{self.plays}.yml"
        place.write_text(yaml.safe_dump(plays))
        program = os.fspath(pathlib.Path(sys.executable).parent / "ansible-playbook")
        argv = [program, "-i", os.fspath(self.inventory), os.fspath(place), "-e", json.dumps(values), *words]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "PYTHON", "MUSTER_", "XDG_"))}
        home = {"ANSIBLE_HOME": str(self.lab.folder / "ansible"), "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"}
        home |= {"SMB_USERNAME": "train", "SMB_PASSWORD": SECRET}
        return Play(argv, {**kept, **home}, self.lab.folder / f"play-{self.plays}.log", self.lab.folder, 0o022).wait(
            LIMIT_S
        )

    def role(self, *services: t.Any, words: t.Sequence[str] = (), code: int = 0) -> str:
        found = self.run(ROLE, *words, muster_services=list(services))
        assert found.code == code, found.output
        assert SECRET not in found.output
        return " ".join(found.output.split())

    def ask(self, command: str) -> set[str]:
        """Return what the machines say, which should be one thing."""
        return {self.lab.ask(node.name, "sh", "-c", command).strip() for node in self.lab.nodes}

    def state(self) -> dict[str, list[str]]:
        return {
            node.name: [
                line for line in self.lab.state(node.name) if not APT.match(line) and "/run/mounted" not in line
            ]
            for node in self.lab.nodes
        }


@pytest.fixture(scope="module")
def world() -> t.Iterator[World]:
    with open_machines(image.DEVICES) as lab:
        yield World(lab)


def test_the_life_of_mounts(world: World) -> None:
    """Check mode, present, again, other options, a path that is taken, absent, and the machines as they were."""
    nas: dict[str, t.Any] = {
        **NFS,
        "endpoint": "nfs://10.0.0.5/data",
        "filesystem": {"path": "/mnt/my-nas", "mount": True},
    }
    share = {**SHARE, "filesystem": {"path": "/mnt/files", "mount": True, "options": "uid=1000"}}
    before = world.state()
    world.role(nas, share, words=["--check"])
    assert world.state() == before
    assert "changed=0" not in world.role(nas, share)
    assert world.ask("(findmnt -no SOURCE /mnt/my-nas; findmnt -no SOURCE /mnt/files) | sort") == {
        "//10.0.0.5/share\n10.0.0.5:/data"
    }
    assert world.ask("systemctl is-enabled mnt-my\\\\x2dnas.mount mnt-files.mount") == {"enabled\nenabled"}
    (said,) = world.ask("cat /run/mounted")
    assert "hard" in said and "uid=1000,credentials=/etc/muster/filesystems/files.credentials" in said
    assert world.ask("stat -c %a /etc/muster/filesystems/files.credentials") == {"600"}
    assert world.ask("cat /etc/muster/filesystems/files.credentials") == {f"username=train\npassword={SECRET}"}
    assert world.ask(f"grep -rls {SECRET} /etc /var/log /run /tmp /root | sort") == {
        "/etc/muster/filesystems/files.credentials"
    }
    again = world.role(nas, share)
    assert again.count("changed=0") == 2, again
    other = world.role({**nas, "filesystem": {**nas["filesystem"], "options": "nconnect=2"}}, share)
    assert "stays mounted as it was" in other and world.ask("wc -l < /run/mounted") == {"2"}
    taken = {**nas, "name": "another", "endpoint": "nfs://10.0.0.6/x"}
    assert "10.0.0.5:/data is mounted at /mnt/my-nas already, and not by this role" in world.role(taken, code=2)
    # In use, it stays; the other one goes.
    for node in world.lab.nodes:
        world.lab.ask(
            node.name, "sh", "-c", "cd /mnt/my-nas && (sleep 600 >/dev/null 2>&1 & echo $! > /run/user-of-it)"
        )
    world.role({**nas, "state": "absent"}, code=2)
    assert world.ask("findmnt -no SOURCE /mnt/my-nas") == {"10.0.0.5:/data"}
    world.ask("kill $(cat /run/user-of-it) && rm /run/user-of-it && sleep 0.2")
    world.role({**share, "state": "absent"})
    assert world.ask("dpkg -l cifs-utils | grep -c ^ii") == {"1"}, "packages go with the last one"
    world.role({**nas, "state": "absent"})
    assert world.role({**nas, "state": "absent"}, {**share, "state": "absent"}).count("changed=0") == 2
    after = world.state()
    for name, lines in before.items():
        made = {"/mnt/my-nas", "/mnt/files"}
        assert [line for line in after[name] if line not in lines and not any(path in line for path in made)] == []
        assert [line for line in lines if line not in after[name]] == []


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("mount error(13): Permission denied", "Correct the user and password of the share (secret_ref)"),
        ("mount error(2): No such file or directory", "Correct the export or share in endpoint"),
        ("mount.nfs: access denied by server while mounting 10.0.0.5:/x", "Let the server export it to this node"),
        ("mount.nfs: No such device", "The kernel of the node has no such file system"),
        ("mount.nfs: Connection timed out", "Look at the server and at firewalls on the way to it"),
    ],
)
def test_a_server_that_refuses(world: World, said: str, words: str) -> None:
    """With the texts of mount.nfs and mount.cifs; nothing stays half there."""
    share = {**SHARE, "filesystem": {"path": "/mnt/files", "mount": True}}
    world.ask(f"echo '{said}' > /run/refusal")
    text = world.role(share, code=2)
    assert f"//10.0.0.5/share is not mounted at /mnt/files: {said}. {words}" in text
    assert world.ask("ls -A /etc/muster/filesystems; systemctl is-enabled mnt-files.mount 2>/dev/null; true") in (
        {""},
        {"not-found"},
    )
    world.ask("rm /run/refusal")
