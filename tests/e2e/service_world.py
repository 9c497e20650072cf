# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real services for end-to-end tests: SeaweedFS on loopback, and a controller that has botocore and hvac."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shutil
import socket
import ssl
import subprocess
import time
import typing as t
import urllib.error
import urllib.request

from ansible_collections.muster.training.plugins.plugin_utils._services import own_certificate
from ansible_collections.muster.training.plugins.plugin_utils._services import seaweedfs as seaweedfs_component
from ansible_collections.muster.training.plugins.plugin_utils._services.component import (
    TLS_CERTIFICATE,
    TLS_KEY,
    Component,
    Site,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.e2e.playbook_world import LIMIT_S, Play, Result, World

ACCESS, SECRET = "AKcanaryaccess0001", "SKcanary-secret/9f2+Qx77k"
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}


def services_python() -> str:
    """Return the interpreter with botocore, hvac and the servers; empty where there is none."""
    named = os.environ.get("MUSTER_SERVICES_PYTHON", "")
    return named if named and shutil.which(named) else ""


# argv: folder for job events, ansible-playbook, its words. As AWX runs a playbook: with a pseudo-terminal and events.
RUNNER = """
import os, pathlib, shlex, shutil, sys
import ansible_runner
target, program, *words = sys.argv[1:]
os.environ["PATH"] = os.path.dirname(program) + ":" + os.environ["PATH"]
playbook = words.pop(next(n for n, word in enumerate(words) if word.startswith("muster.training.")))
private = pathlib.Path(target).with_name("runner-private")
(private / "project").mkdir(parents=True)
done = ansible_runner.run(private_data_dir=str(private), ident="1", playbook=playbook, cmdline=shlex.join(words),
                          suppress_env_files=True)
shutil.copytree(private / "artifacts" / "1" / "job_events", target)
sys.exit(done.rc)
"""


class ServiceWorld(World):
    """A world whose controller is the environment with the services' libraries."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root)
        self.program = str(pathlib.Path(services_python()).parent / "ansible-playbook")

    def use_core(self, python: pathlib.Path) -> None:
        """Run playbooks by another ansible-core, the one of ``python``, with the services' libraries behind its own."""
        text = "import sysconfig; print(sysconfig.get_path('purelib'))"
        libraries = subprocess.run([services_python(), "-c", text], capture_output=True, text=True, check=True).stdout
        program = self.root / "ansible-playbook"
        begin = f"#!{python}\nimport sys\nsys.path.append({libraries.strip()!r})\n"
        program.write_text(f"{begin}from ansible.cli.playbook import main\nsys.exit(main())\n")
        program.chmod(0o755)
        self.program = str(program)

    def use_runner(self, events: pathlib.Path) -> None:
        """Run the next playbook under ansible-runner, which leaves its job events in a folder."""
        self.prefix = (services_python(), "-c", RUNNER, str(events))

    def bind(self, store: Store, **changes: t.Any) -> dict[str, t.Any]:
        """Return a service of ``muster_services`` that binds the store."""
        return {
            "name": "store",
            "kind": "object_store",
            "mode": "bind",
            "endpoint": store.endpoint,
            "resources": [{"purpose": "checkpoints", "ref": "ckpt/team"}, {"purpose": "datasets", "ref": "data"}],
            **changes,
        }

    def bind_deployed(self, service: t.Mapping[str, t.Any], *words: str) -> Result:
        """Bind a service of mode deploy, without the role that deploys it."""
        task = {"muster.training.service_binding": {"services": [service], "cluster": "local",
                                                     "state_home": {"path": str(self.state)}}, "run_once": True}  # fmt: skip
        play = [{"hosts": "muster_nodes", "gather_facts": False, "tasks": [task]}]
        place = self.root / "bind.yml"
        place.write_text(json.dumps(play))
        argv = [*self.prefix, self.program, "-i", os.fspath(self.inventory), os.fspath(place), *words]
        log = self.root / f"bind-{len(self.plays)}.log"
        self.plays.append(Play(argv, self.environment(None), log, self.root, 0o022))
        return self.plays[-1].wait(LIMIT_S)

    def binding(self, name: str = "store") -> dict[str, t.Any]:
        """Return a binding as the controller keeps it."""
        return t.cast("dict[str, t.Any]", json.loads(self.binding_file(name).read_text()))

    def binding_file(self, name: str = "store") -> pathlib.Path:
        """Return where it is."""
        return self.state / "local" / "bindings" / f"{name}.json"


@dataclasses.dataclass(frozen=True)
class Store:
    """A running SeaweedFS. ``client`` is botocore's own, which knows nothing of this collection."""

    endpoint: str
    root: pathlib.Path

    def script(self, text: str, *args: str) -> str:
        """Run Python code with ``s3``, a client of botocore with the store's keys; return what it prints."""
        begin = (
            "import sys, json, botocore.session as b\n"
            "from botocore.config import Config\n"
            "s3 = b.get_session().create_client('s3', endpoint_url=sys.argv[1], region_name='us-east-1',"
            " config=Config(s3={'addressing_style': 'path'}))\n"
        )
        argv = [services_python(), "-c", begin + text, self.endpoint, *args]
        done = subprocess.run(argv, env={**os.environ, **KEYS}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def keys(self, bucket: str) -> list[str]:
        """Return the keys of all objects of a bucket."""
        text = "print(json.dumps([o['Key'] for o in s3.list_objects_v2(Bucket=sys.argv[2]).get('Contents', [])]))"
        return t.cast("list[str]", json.loads(self.script(text, bucket)))

    def buckets(self) -> list[str]:
        """Return the names of all buckets."""
        return t.cast(
            "list[str]", json.loads(self.script("print(json.dumps([x['Name'] for x in s3.list_buckets()['Buckets']]))"))
        )


def rclone(store: Store, *words: str) -> subprocess.Popen[bytes]:
    """Start rclone, which copies between files and ``BUCKET/KEY``, in the order of its own words."""
    options = (
        f":s3,provider=SeaweedFS,access_key_id={ACCESS},secret_access_key='{SECRET}',"
        f"endpoint='{store.endpoint}',region=us-east-1:"
    )
    program = str(pathlib.Path(services_python()).parent / "rclone")
    places = [word if word.startswith("/") else f"{options}{word}" for word in words[1:]]
    return subprocess.Popen([program, "--config", os.devnull, words[0], *places])


@contextlib.contextmanager
def seaweedfs(root: pathlib.Path, buckets: str = "ckpt,data", processors: t.Collection[int] = ()) -> t.Iterator[Store]:
    """Run SeaweedFS with these buckets, on these processors alone where they are given."""
    root.mkdir(parents=True, exist_ok=True)
    ports = [free_port() for _ in range(6)]
    s3, master, volume, filer, admin, webdav = (str(port) for port in ports)
    weed = str(pathlib.Path(services_python()).parent / "weed")
    argv = [weed, "-logdir", str(root), "mini", "-dir", str(root / "data"), "-bucket", buckets, "-ip", "127.0.0.1"]
    argv += ["-s3.port", s3, "-master.port", master, "-volume.port", volume, "-filer.port", filer]
    argv += ["-admin.port", admin, "-webdav.port", webdav, "-ip.bind", "127.0.0.1"]
    # Their ports would be the same for all: a second SeaweedFS on this machine would end.
    argv += ["-s3.port.iceberg", "0", "-s3.port.lance", "0"]
    (root / "data").mkdir(exist_ok=True)
    allowed = os.sched_getaffinity(0)
    # What is started inherits it, with all its threads.
    os.sched_setaffinity(0, processors or allowed)
    try:
        with (root / "weed.log").open("wb") as log:
            process = subprocess.Popen(argv, env={**os.environ, **KEYS}, cwd=root, stdout=log, stderr=log)
    finally:
        os.sched_setaffinity(0, allowed)
    try:
        store = Store(f"http://127.0.0.1:{s3}", root)
        wait_for(store.endpoint, process, root / "weed.log")
        end = time.monotonic() + 30
        while not {*buckets.split(",")} <= {*store.buckets()}:
            assert time.monotonic() < end, "the buckets were not made"
        yield store
    finally:
        process.kill()
        process.wait()


def deployed_seaweedfs(world: ServiceWorld, scheme: str = "http") -> contextlib.AbstractContextManager[list[str]]:
    """Run SeaweedFS as it is deployed, as the service own; its credentials are yielded."""
    return deployed_store(world, seaweedfs_component.COMPONENT, pathlib.Path(services_python()).parent / "weed", scheme)


@contextlib.contextmanager
def deployed_store(
    world: ServiceWorld, component: Component, program: pathlib.Path, scheme: str
) -> t.Iterator[list[str]]:
    """Run a store as it is deployed, as the service own; yield its credentials."""
    root = world.root / "own"
    for name in ("data", "files"):
        (root / name).mkdir(parents=True)
    port = next(port for port in iter(free_port, None) if port < 54000)
    site = Site("own", f"{scheme}://127.0.0.1:{port}", "127.0.0.1", port, str(root / "data"), str(root / "files"))
    pair = own_certificate.make("own") if scheme == "https" else []
    texts = zip((TLS_KEY, TLS_CERTIFICATE), pair, strict=False)
    made = component.make_credentials() | {name: base64.b64encode(text.encode()).decode() for name, text in texts}
    for name, text in component.write_files(site, made).items():
        (root / "files" / name).write_text(text)
    home = StateHome({"path": str(world.state)}, "local")
    deployed.write_credentials(home, "own", made)
    deployed.write_deployed(
        home, "own", {"provider": component.provider, "endpoint": site.endpoint, "backend": "hosts", "place": {}}
    )
    argv, variables = [str(program), *component.command(site)], component.environment(site)
    with (root / "weed.log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=root, stdout=log, stderr=log, env=variables)
    try:
        wait_for(f"{site.endpoint}{component.ready}", process, root / "weed.log", ca=pair[1:])
        yield list(made.values())
    finally:
        process.kill()
        process.wait()


def wait_for(
    url: str, process: subprocess.Popen[bytes], log: pathlib.Path, within_s: float = 60.0, ca: t.Sequence[str] = ()
) -> None:
    """Wait until a server gives any HTTP answer; ``ca`` is the certificate of its own that is trusted."""
    end = time.monotonic() + within_s
    trusted = urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata="".join(ca) or None))
    while True:
        assert process.poll() is None and time.monotonic() < end, log.read_text(errors="replace")[-3000:]
        try:
            urllib.request.build_opener(trusted).open(url, timeout=2).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)


def free_port() -> int:
    """Return a port that is free now, and the one 10000 above it too (SeaweedFS' gRPC).

    Both are below the range from which the kernel gives ports to other programs, and apart from ``node_lab.free_port``.
    """
    while True:
        port = random.randrange(20_000, 22_700)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port
