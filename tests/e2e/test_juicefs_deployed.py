# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A volume of JuiceFS that is deployed: real JuiceFS and SeaweedFS, metadata on a real PostgreSQL and a real Redis."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import subprocess
import typing as t
import urllib.parse

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.juicefs_world import PASSWORD, program, store_serving
from ansible_collections.muster.training.tests.e2e.service_world import ACCESS, KEYS, SECRET, free_port
from ansible_collections.muster.training.tests.support import debian, postgres_program
from ansible_collections.muster.training.tests.support.node_lab import eventually
from ansible_collections.muster.training.tests.support.volume_machine import VolumeMachine

Dict = dict[str, t.Any]
ROLES: t.Final = [
    {"include_role": {"name": "muster.training.filesystem_client"}},
    {"include_role": {"name": "muster.training.shared_filesystem"}},
    {"include_role": {"name": "muster.training.filesystem_client"}},
]


@contextlib.contextmanager
def redis(root: pathlib.Path) -> t.Iterator[str]:
    missing = debian.obtain("redis-server", "redis-server")
    if missing:
        lacking(missing)
    port = free_port()
    settings = root / "redis.conf"
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    settings.write_text(f'port {port}\nbind 127.0.0.1\nrequirepass "{quoted}"\nsave ""\ndir {root}\n')
    process = subprocess.Popen([str(debian.program("redis-server")), str(settings)], stdout=subprocess.DEVNULL)
    try:
        yield f"redis://:{urllib.parse.quote(PASSWORD, safe='')}@127.0.0.1:{port}/1"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def postgres(root: pathlib.Path) -> t.Iterator[str]:
    with postgres_program.serving(root) as address:
        yield f"{address}?sslmode=disable"


class Deployed:
    """The machine, with a bound object store and where the metadata is to be."""

    def __init__(self, root: pathlib.Path, endpoint: str, address: str) -> None:
        self.machine, self.address, self.said = VolumeMachine(root, program()), address, ""
        entry = {"name": "store", "component": "object_store", "mode": "bind", "endpoint": endpoint,
                 "secret_ref": {"from": "env"}, "resources": [{"purpose": "files", "ref": "jfs"}]}  # fmt: skip
        self.home = StateHome({"path": str(root / "state")}, "default")
        bindings.write_binding(self.home, Binding.from_dict(entry))

    def role(self, *words: str, code: int = 0, env: t.Mapping[str, str] | None = None, **changes: t.Any) -> str:
        place = {"host": "localhost", "store": "store", "database": {"from": "env"}, **changes.pop("place", {})}
        service = {"name": "far", "kind": "shared_filesystem", "mode": "deploy", "provider": "juicefs", "deploy": place,
                   "filesystem": {"path": str(self.machine.path), "cache_gb": 1}, **changes}  # fmt: skip
        values = {"shared_filesystem_service": service, "muster_services": [service]}
        given = {"JUICEFS_META_URL": self.address, **KEYS, **(env or {})}
        found, said = self.machine.play(ROLES, values, given, "--diff", "-vvv", *words)
        self.said += said
        assert found == code, said[-6000:]
        return " ".join(said.split())

    def recap(self, said: str) -> str:
        return said.rpartition("PLAY RECAP")[2]

    def traces(self) -> list[str]:
        """Return what is on the machine of the volume."""
        look = "ls -d /etc/systemd/system/muster-far.service /etc/muster/filesystems /usr/local/lib/muster/far /var/cache/muster-far"
        return self.machine.run(
            f"{look} 2>/dev/null; findmnt -no SOURCE {self.machine.path}; true", check=False
        ).splitlines()


@pytest.fixture
def metadata() -> str:
    """Return where the metadata is."""
    return "redis"


@pytest.fixture
def deployed(tmp_path: pathlib.Path, metadata: str) -> t.Iterator[Deployed]:
    program()
    with contextlib.ExitStack() as stack:
        address = stack.enter_context({"redis": redis, "postgres": postgres}[metadata](tmp_path))
        endpoint = stack.enter_context(store_serving(tmp_path))
        found = Deployed(tmp_path, endpoint, address)
        stack.callback(found.machine.close)
        yield found


def test_the_life_of_a_volume(deployed: Deployed) -> None:
    """Check mode, made and mounted, again, its program killed, another volume refused, removed with and without data."""
    machine = deployed.machine
    assert "changed=0" not in deployed.recap(deployed.role("--check"))
    assert deployed.traces() == []
    deployed.role()
    assert deployed.traces()[-1] == "JuiceFS:far" and len(deployed.traces()) == 5
    again = deployed.role()
    assert "changed=0" in deployed.recap(again), again[-6000:]
    machine.run(f"echo kept > {machine.path}/canary && sync -f {machine.path}/canary")
    secret = urllib.parse.unquote(urllib.parse.urlsplit(deployed.address).password or "")
    places = machine.run(
        'grep -rlsF -e "$S" /etc /usr/local/lib/muster/far/*.json /run/systemd; true'.replace(
            "$S", secret.replace('"', '\\"').replace("$", "\\$")
        )
    )
    assert places.splitlines() == ["/etc/muster/filesystems/far.credentials"]
    assert machine.run("stat -c %a /etc/muster/filesystems/far.credentials") == "600"
    assert secret not in machine.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "cache-size 953" in machine.run("cat /etc/systemd/system/muster-far.service")
    machine.kill_programs()
    eventually(
        lambda: machine.run(f"cat {machine.path}/canary 2>&1", check=False) == "kept", "the unit to mount it again", 60
    )
    # Nothing is formatted over another one, and files do not change their store or database.
    other = deployed.role(code=2, name="other")
    assert "the metadata of the volume far is there, and other would be another one" in other
    # In use, it stays.
    holder = subprocess.Popen(machine.inside("sh", "-c", f"cd {machine.path} && exec sleep 600"))
    eventually(lambda: os.readlink(f"/proc/{holder.pid}/cwd").endswith("mnt"), "the folder to be used")
    assert "target is busy" in deployed.role(code=2, state="absent")
    assert machine.run(f"cat {machine.path}/canary") == "kept"
    holder.kill()
    holder.wait()
    deployed.role(state="absent")
    assert deployed.traces() == [] and bindings.find_binding(deployed.home, "store") is not None
    assert "changed=0" in deployed.recap(deployed.role(state="absent"))
    deployed.role()
    assert machine.run(f"cat {machine.path}/canary") == "kept", "the data stayed, and the volume was not made anew"
    deployed.role(state="absent", place={"delete_data": True})
    assert deployed.traces() == []
    deployed.role()
    assert machine.run(f"ls {machine.path}") == "", "with delete_data it is a new one"
    deployed.role(state="absent", place={"delete_data": True})
    for canary in (secret, SECRET, json.dumps(secret)[1:-1], urllib.parse.quote(secret, safe="")):
        assert canary not in deployed.said
    assert ACCESS not in deployed.said


@pytest.mark.long
@pytest.mark.parametrize("metadata", ["postgres"])
def test_metadata_in_postgresql(deployed: Deployed) -> None:
    machine = deployed.machine
    deployed.role()
    machine.run(f"echo kept > {machine.path}/canary && sync -f {machine.path}/canary")
    assert "changed=0" in deployed.recap(deployed.role())
    (line,) = machine.run("grep ^ExecStart= /etc/systemd/system/muster-far.service").splitlines()
    assert "postgres://mlflow:@127.0.0.1:" in line and postgres_program.PASSWORD not in line
    # With its program gone, the volume is mounted again by the unit.
    machine.kill_programs()
    eventually(
        lambda: machine.run(f"cat {machine.path}/canary 2>&1", check=False) == "kept", "the unit to mount it", 60
    )
    assert postgres_program.PASSWORD not in deployed.said


@pytest.mark.long
def test_what_is_refused_is_named_and_nothing_is_made(deployed: Deployed, tmp_path: pathlib.Path) -> None:
    wrong = deployed.address.replace("canary", "other")
    closed = f"redis://:a-password@127.0.0.1:{free_port()}/1"
    cases = [
        ({"JUICEFS_META_URL": ""}, {}, "JUICEFS_META_URL is not in the environment of ansible-playbook"),
        ({"JUICEFS_META_URL": f"sqlite3://{tmp_path}/meta.db"}, {}, "sqlite3 is a file of one machine, which other nodes do not have"),
        ({"JUICEFS_META_URL": wrong}, {}, "localhost: the database does not take the password"),
        ({"JUICEFS_META_URL": closed}, {}, "localhost: the database does not answer"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong-key"}, {}, "the store refuses its keys"),
        ({}, {"name": "ab"}, "'ab' is too short for a volume of JuiceFS"),
        ({}, {"place": {"store": "none"}}, "'none' is not a binding of cluster default"),
    ]  # fmt: skip
    for env, changes, words in cases:
        said = deployed.role(code=2, env=env, **changes)
        assert words in said, re.findall("ERROR.{300}", said)
        assert deployed.traces() in ([], ["/usr/local/lib/muster/far"])
        assert not (tmp_path / "state/default/services/far.json").exists()
    deployed.role()
    assert deployed.traces()[-1] == "JuiceFS:far", "what was refused left nothing that stands in the way"
