# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that share a real JuiceFS over a real SeaweedFS: each has a mount namespace and a FUSE mount of its own.

Store and mounts can be killed and come back with what they had.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time
import typing as t
from unittest import mock

import jinja2

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.juicefs_volume import VARIABLE
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind, deploy, deploy_volume
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.service_world import KEYS, free_port, services_python
from ansible_collections.muster.training.tests.support import debian
from ansible_collections.muster.training.tests.support.mount_world import MountWorld, can_mount
from ansible_collections.muster.training.tests.support.node_lab import eventually

VOLUME = "team"
# With signs that shells, units and addresses have a meaning for.
PASSWORD: t.Final = "canary \"w$d'%s/1"
_PASSWORD: t.Final = "canary-of-metadata-0451"
_UNIT: t.Final = pathlib.Path(__file__).parents[2] / "roles/filesystem_client/templates/juicefs.service.j2"


def program() -> str:
    """Return the program of JuiceFS; where it or FUSE is not to be had, the test is not run."""
    found = pathlib.Path(services_python()).parent / "juicefs"
    reasons = (
        (not found.exists(), "MUSTER_SERVICES_PYTHON names no interpreter with JuiceFS"),
        (not can_mount(), "mounts in namespaces need root"),
        (not os.access("/dev/fuse", os.W_OK), "FUSE needs /dev/fuse"),
        (not shutil.which("fusermount3") and not shutil.which("fusermount"), "FUSE needs the program fusermount"),
    )
    for is_missing, reason in reasons:
        if is_missing:
            lacking(reason)
    return str(found)


@contextlib.contextmanager
def store_serving(root: pathlib.Path, host: str = "127.0.0.1") -> t.Iterator[str]:
    """Run SeaweedFS with a bucket ``jfs``; yield its address."""
    ports = [str(free_port()) for _number in range(6)]
    names = ("-s3.port", "-master.port", "-volume.port", "-filer.port", "-admin.port", "-webdav.port")
    data = root / "weed"
    data.mkdir()
    argv = [str(pathlib.Path(services_python()).parent / "weed"), "-logdir", str(data), "mini", "-dir", str(data)]
    argv += ["-bucket", "jfs", "-ip", host, "-ip.bind", host, "-s3.port.iceberg", "0"]
    argv += ["-s3.port.lance", "0", *(word for pair in zip(names, ports, strict=True) for word in pair)]
    with (root / "weed.log").open("wb") as log:
        process = subprocess.Popen(argv, env={**os.environ, **KEYS}, cwd=data, stdout=log, stderr=log)
    try:
        # Before the bucket is there, what is written to it is refused.
        eventually(lambda: '"jfs"' in (root / "weed.log").read_text() or (data / "filerldb2").exists(), "the store", 60)
        yield f"http://{host}:{ports[0]}"
    finally:
        process.kill()
        process.wait()


class JuiceFsWorld(MountWorld):
    """Nodes a and b, a volume that both have at :attr:`path`, and the store that holds its data."""

    # What a test may kill.
    kinds: t.ClassVar[tuple[str, ...]] = ("store", "mount")

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root)
        self.program = program()
        self.meta = f"sqlite3://{root / 'meta.db'}"
        self.data = root / "weed"
        self.data.mkdir()
        self._ports = [str(free_port()) for _number in range(6)]
        self._store: subprocess.Popen[bytes] | None = None
        self.start_store()
        for name in "ab":
            self.node(name, None)
        eventually(self._make_volume, "the bucket to take the volume", 60)
        for name in "ab":
            self.mount(name)

    @property
    def endpoint(self) -> str:
        """The address of the store."""
        return f"http://127.0.0.1:{self._ports[0]}"

    @property
    def service(self) -> dict[str, t.Any]:
        """What a user writes of the file system."""
        about = {"name": "scratch", "kind": "shared_filesystem", "mode": "bind", "provider": "path"}
        return {**about, "filesystem": {"path": str(self.path), "type": "juicefs"}}

    def _make_volume(self) -> bool:
        keys = ["--access-key", KEYS["AWS_ACCESS_KEY_ID"], "--secret-key", KEYS["AWS_SECRET_ACCESS_KEY"]]
        about = ["--storage", "s3", "--bucket", f"{self.endpoint}/jfs", *keys, "--trash-days", "0"]
        argv = [self.program, "format", *about, self.meta, VOLUME]
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0

    def kill_server(self, kind: str) -> None:
        """End a server that all nodes need, at once."""
        assert kind == "store"
        self.kill_store()

    def start_server(self, kind: str) -> None:
        """Start it again with what it has."""
        assert kind == "store"
        self.start_store()

    def start_store(self) -> None:
        """Start the store where it was, with what it has."""
        weed = str(pathlib.Path(services_python()).parent / "weed")
        names = ("-s3.port", "-master.port", "-volume.port", "-filer.port", "-admin.port", "-webdav.port")
        argv = [weed, "-logdir", str(self.data), "mini", "-dir", str(self.data), "-bucket", "jfs"]
        argv += ["-ip", "127.0.0.1", "-ip.bind", "127.0.0.1", "-s3.port.iceberg", "0", "-s3.port.lance", "0"]
        argv += [word for pair in zip(names, self._ports, strict=True) for word in pair]
        with (self.root / "weed.log").open("ab") as log:
            self._store = subprocess.Popen(argv, env={**os.environ, **KEYS}, cwd=self.data, stdout=log, stderr=log)

    def kill_store(self) -> None:
        """End the store at once, as a machine that loses its power does to its programs."""
        assert self._store is not None
        self._store.kill()
        self._store.wait()

    def mount(self, name: str) -> None:
        """Mount the volume on a node, by a process of its own."""
        cache, log = self.root / f"cache-{name}", self.root / f"juicefs-{name}.log"
        words = f"--no-usage-report --cache-dir {cache} --log {log} --no-syslog --attr-cache 0 --entry-cache 0"
        self.shells[name].run(f"{self.program} mount -d {words} {self.meta} {self.path} >/dev/null 2>&1 </dev/null")

    def kill_mount(self, name: str) -> None:
        """End the program of a node's mount at once."""
        for pid in self._list_mounts(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not self._list_mounts(name), "the mount's program to end")

    def repair_mount(self, name: str) -> None:
        """Mount it again, as its unit does."""
        self.shells[name].run(f"umount -l {self.path} 2>/dev/null; true")
        self.mount(name)

    def _list_mounts(self, name: str) -> list[int]:
        """Return the processes of a node's mount: JuiceFS has a parent that starts another one."""
        found = []
        for place in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                # It writes its own command line, as one word.
                words = (place / "cmdline").read_bytes()
                alive = (place / "stat").read_text().rpartition(") ")[2][:1] != "Z"
                if alive and f"{self.root}/cache-{name}".encode() in words and self.program.encode() in words:
                    found.append(int(place.name))
        return found

    def close(self) -> None:
        """End everything, the mounts before the store that they ask."""
        for name in self.shells:
            self.kill_mount(name)
        super().close()
        self.kill_store()
        time.sleep(0.1)


class DeployedJuiceFs(JuiceFsWorld):
    """A volume that is made and mounted as the roles do: metadata on a real Redis, which keeps what it has answered.

    The command of a mount is that of the unit; the folder of its cache is the test's.
    """

    kinds = ("store", "database", "mount")

    def __init__(self, root: pathlib.Path) -> None:
        missing = debian.obtain("redis-server", "redis-server")
        if missing:
            lacking(missing)
        self._redis_port, self._redis_folder = free_port(), root / "redis"
        self._redis_folder.mkdir()
        self._redis: subprocess.Popen[bytes] | None = None
        self.start_database()
        os.environ[VARIABLE] = self.address
        (root / "password").write_text(_PASSWORD)
        self._env = {"META_PASSWORD_FILE": str(root / "password"), "PATH": os.environ["PATH"]}
        super().__init__(root)

    @property
    def address(self) -> str:
        """That of the metadata, with its password."""
        return f"redis://:{_PASSWORD}@127.0.0.1:{self._redis_port}/1"

    @property
    def service(self) -> dict[str, t.Any]:
        place = {"host": "a", "store": "store", "database": {"from": "env"}}
        about = {"name": "scratch", "kind": "shared_filesystem", "mode": "deploy", "provider": "juicefs"}
        return {**about, "deploy": place, "filesystem": {"path": str(self.path), "cache_gb": 1}}

    def _make_volume(self) -> bool:
        home = StateHome({"path": str(self.root / "home")}, "default")
        entry = {"name": "store", "component": "object_store", "mode": "bind", "endpoint": self.endpoint,
                 "secret_ref": {"from": "env"}, "resources": [{"purpose": "files", "ref": "jfs"}]}  # fmt: skip
        bindings.write_binding(home, Binding.from_dict(entry))
        with mock.patch.object(deploy_volume, "program_of", lambda *_words: self.program):
            try:
                made = deploy.run(self.request(None, service=self.service), [])
            except RefusedError:
                # The store has no bucket yet.
                return False
        assert made["changed"] and _PASSWORD not in str(made)
        return True

    def start_database(self) -> None:
        """Start Redis where it was; what it has answered is in its file."""
        about = ["--port", str(self._redis_port), "--bind", "127.0.0.1", "--requirepass", _PASSWORD, "--save", ""]
        about += ["--appendonly", "yes", "--appendfsync", "always", "--dir", str(self._redis_folder)]
        argv = [str(debian.program("redis-server")), *about]
        with (self._redis_folder / "log").open("ab") as log:
            self._redis = subprocess.Popen(argv, stdout=log, stderr=log)

    def kill_database(self) -> None:
        """End it at once."""
        assert self._redis is not None
        self._redis.kill()
        self._redis.wait()

    def kill_server(self, kind: str) -> None:
        if kind == "database":
            self.kill_database()
        else:
            super().kill_server(kind)

    def start_server(self, kind: str) -> None:
        if kind == "database":
            self.start_database()
        else:
            super().start_server(kind)

    def mount(self, name: str) -> None:
        """Mount it by the command of the unit that the role filesystem_client writes."""
        home = StateHome({"path": str(self.root / "home")}, "default")
        ((item,), _gone) = bind.plan_mounts([self.service], [], home)
        assert item.volume is not None
        known = {"item": dataclasses.asdict(item), "volume": dataclasses.asdict(item.volume), "password": _PASSWORD,
                 "program": self.program, "where": item.path}  # fmt: skip
        unit = jinja2.Template(_UNIT.read_text()).render(
            {f"__filesystem_client_{key}": value for key, value in known.items()}
        )
        (command,) = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart=")]
        cache = f"--cache-dir {self.root}/cache-{name}"
        assert "--cache-dir /var/cache/muster-scratch" in command and _PASSWORD not in unit
        command = command.replace("--cache-dir /var/cache/muster-scratch", cache)
        variables = " ".join(f"{key}={shlex.quote(value)}" for key, value in self._env.items())
        log = self.root / f"juicefs-{name}.log"
        self.shells[name].run(f"setsid env -i {variables} {command} >>{log} 2>&1 </dev/null &")
        self.shells[name].run(f"for n in $(seq 300); do mountpoint -q {self.path} && exit 0; sleep 0.2; done; exit 1")

    def close(self) -> None:
        super().close()
        self.kill_database()
        os.environ.pop(VARIABLE, None)
