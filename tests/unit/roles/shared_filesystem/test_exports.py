# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host gets of a shared file system that is deployed; the real NFS-Ganesha exports by it, and libnfs reads it.

The role on machines is in tests/lab/test_lab_filesystems.py. The kernel's server is not run: its file is only read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.filesystem_server import plan_server
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.support import debian
from ansible_collections.muster.training.tests.support.node_lab import eventually
from ansible_collections.muster.training.tests.support.run_inventory import environment

ROLE = pathlib.Path(__file__).parents[4] / "roles" / "shared_filesystem"
Dict = dict[str, t.Any]


def plan(export: str, *clients: str, address: str = "127.0.0.1") -> Dict:
    place = {"host": "a", "host_path": export, "clients": list(clients)}
    about = {"name": "nas", "kind": "shared_filesystem", "mode": "deploy", "deploy": place}
    (service,) = parse_services([{**about, "filesystem": {"path": "/mnt/nas"}}])
    assert service.deploy is not None
    return dataclasses.asdict(plan_server(service, service.deploy, "c", address))


def render(folder: pathlib.Path, server: Dict) -> None:
    """Write the files of the role's templates for a server as it does; that of a cluster is in tests/kube_api."""
    tasks = [
        {"ansible.builtin.template": {"src": str(place), "dest": str(folder / place.stem)}}
        for place in (ROLE / "templates").iterdir()
        if place.name != "csi_nfs.yml.j2"
    ]
    values = {"__shared_filesystem_plan": {"server": server}, "ansible_python_interpreter": sys.executable}
    play = {"hosts": "localhost", "gather_facts": False, "vars_files": [str(ROLE / "vars" / "main.yml")]}
    (folder / "play.yml").write_text(yaml.safe_dump([{**play, "vars": values, "tasks": tasks}]))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    argv = [os.fspath(program), "-i", "localhost,", "-c", "local", "play.yml"]
    done = subprocess.run(argv, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_line_of_the_kernels_server(tmp_path: pathlib.Path) -> None:
    """One line, as exports(5) has it, whose fsid is the same each time."""
    server = plan("/srv/nas", "10.0.0.0/24", "fd00::/64")
    render(tmp_path, server)
    _comment, line = (tmp_path / "exports").read_text().splitlines()
    folder, *clients = line.split()
    words = f"rw,sync,no_subtree_check,no_root_squash,fsid={plan('/srv/nas', '10.0.0.0/24')['fsid']}"
    assert (folder, clients) == ("/srv/nas", [f"10.0.0.0/24({words})", f"fd00::/64({words})"])


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_reads_the_unit_of_ganesha(tmp_path: pathlib.Path) -> None:
    render(tmp_path, plan("/srv/nas", "10.0.0.0/24"))
    unit = tmp_path / "muster-nas.service"
    unit.write_text((tmp_path / "ganesha.service").read_text().replace("/usr/bin/ganesha.nfsd", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    about = done.stdout + done.stderr
    assert done.returncode == 0 and unit.name not in about, about


class Server:
    """The real NFS-Ganesha with the file of the role, on loopback."""

    def __init__(self, root: pathlib.Path, *clients: str) -> None:
        for name, package in (("ganesha.nfsd", "nfs-ganesha-vfs"), ("nfs-cp", "libnfs-utils")):
            reason = debian.obtain(name, package)
            if reason:
                lacking(reason)
        if os.geteuid() != 0:
            lacking("a server that opens files by handles needs root")
        with socket.socket() as place:
            if place.connect_ex(("127.0.0.1", 2049)) == 0:
                lacking("another server has the port of NFS")
        self.root, self.export = root, root / "export"
        self.export.mkdir()
        render(root, plan(str(self.export), *clients))
        self.log, config = root / "ganesha.log", root / "ganesha.conf"
        (root / "state").mkdir()
        config.write_text(config.read_text().replace("/var/lib/muster-nas", str(root / "state")))
        self.argv = [str(debian.program("ganesha.nfsd")), "-F", "-f", str(config), "-L", str(self.log)]
        self.argv += ["-p", str(root / "pid"), "-N", "NIV_EVENT"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(self.argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(self._answers, "NFS-Ganesha to answer", 30)

    def _answers(self) -> bool:
        with socket.socket() as place:
            return place.connect_ex(("127.0.0.1", 2049)) == 0

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()

    def client(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a client of libnfs, which speaks NFS 4.0."""
        argv = [str(debian.program(program)), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)

    def url(self, name: str = "") -> str:
        return f"nfs://127.0.0.1{self.export}{name}?version=4"


@contextlib.contextmanager
def serving(root: pathlib.Path, *clients: str) -> t.Iterator[Server]:
    found = Server(root, *clients)
    found.start()
    try:
        yield found
    finally:
        found.stop()


def test_ganesha_exports_the_folder_and_keeps_what_was_written(tmp_path: pathlib.Path) -> None:
    """Files of up to 2 KiB: libnfs' own writing of larger ones by NFS 4 ends the connection."""
    with serving(tmp_path, "127.0.0.0/8") as server:
        source = tmp_path / "canary"
        source.write_text("canary of a checkpoint\n" * 50)
        done = server.client("nfs-cp", str(source), server.url("/canary"))
        assert done.returncode == 0, done.stdout + done.stderr + server.log.read_text()[-2000:]
        stored = server.export / "canary"
        assert stored.read_text() == source.read_text() and stored.stat().st_uid == 0, "root stays root"
        server.stop()
        server.start()
        assert server.client("nfs-cat", server.url("/canary")).stdout == source.read_text()
        wrong = server.client("nfs-ls", f"nfs://127.0.0.1{tmp_path}/other?version=4")
        assert wrong.returncode != 0 and "NOENT" in wrong.stdout + wrong.stderr


def test_ganesha_refuses_a_machine_that_is_not_listed(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path, "192.0.2.0/24") as server:
        (server.export / "canary").write_text("x")
        done = server.client("nfs-cat", server.url("/canary"))
        assert done.returncode != 0 and done.stdout.strip() != "x", done.stdout + done.stderr
