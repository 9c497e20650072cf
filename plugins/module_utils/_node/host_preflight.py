# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preflight of a node for one job. Everything here only reads."""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import errno
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import typing as t

from . import files, host_blobs, host_units

# Run by the job's own interpreter, with the job's environment: versions without importing the (slow) packages. The
# folders of installed packages are named after package and version; importlib.metadata, which knows every other way of
# installing, is asked only when no folder is found, because importing it takes longer than all the rest. The same
# process compiles the script of the name that comes first, from its standard input.
_INSPECT = """
import os, sys
name, text, syntax = sys.argv[1], sys.stdin.buffer.read(), None
if name:
    try:
        compile(text, name, "exec", dont_inherit=True)
    except SyntaxError as exc:
        syntax = "%s, line %s: %s: %s" % (name, exc.lineno, type(exc).__name__, exc.msg)
    except ValueError as exc:
        syntax = "%s: %s" % (name, exc)
    except (RecursionError, MemoryError):
        pass
def listed(place):
    try:
        return os.listdir(place or ".")
    except OSError:
        return []
names = {}
for entry in [entry for place in reversed(sys.path) for entry in listed(place) if entry.endswith(".dist-info")]:
    package, _, version = entry[:-10].partition("-")
    names[package.lower().replace("-", "_").replace(".", "_")] = version
found = {name: names.get(name.lower().replace("-", "_").replace(".", "_")) for name in sys.argv[2:]}
for name in [name for name, version in found.items() if not version]:
    from importlib import metadata
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        found[name] = None
import json
print(json.dumps({"version": "%d.%d.%d" % sys.version_info[:3], "packages": found, "syntax": syntax}))
"""


def find_python(python: str) -> str | None:
    """Return the path of an interpreter; of several, separated by colons, the first that exists."""
    found = (shutil.which(os.path.expanduser(item)) for item in python.split(":") if item)
    return next((path for path in found if path), None)


def inspect_python(
    python: str, packages: t.Sequence[str], env: t.Mapping[str, str], script: tuple[str, str] | None = None
) -> dict[str, t.Any]:
    """Return ``{executable, version, packages {name: version or null}, syntax, problem}`` of the job's interpreter.

    :param script: name and source of the job's script; ``syntax`` is where it is not valid for this interpreter.
    """
    executable = find_python(python)
    if not executable:
        return _unusable(None, f"{' or '.join(python.split(':'))} does not exist")
    name, source = script or ("", "")
    argv, text = [executable, "-c", _INSPECT, name, *packages], source.encode("utf-8", "surrogateescape")
    try:
        done = subprocess.run(argv, input=text, capture_output=True, timeout=30, check=False, env={**os.environ, **env})
        value = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as exc:
        return _unusable(executable, f"{executable} does not run: {exc}")
    if value is None:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
        return _unusable(executable, f"{executable} does not run: {last[:200]}")
    # Not sys.executable: inside a virtual environment it may be resolved past the link that makes it one.
    return {**value, "executable": executable, "problem": None}


def _unusable(executable: str | None, problem: str) -> dict[str, t.Any]:
    return {"executable": executable, "version": None, "packages": {}, "syntax": None, "problem": problem}


def port_problem(host: str, number: int) -> dict[str, t.Any] | None:
    """Return why a program could not listen on ``host:number`` now, or None when it is free.

    ``{address, reason, cause}``; ``cause`` is ``name`` (unknown), ``address`` (no interface has it) or ``port``.
    """
    try:
        family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, number))
    except OSError as exc:
        cause = (
            "name" if isinstance(exc, socket.gaierror) else "address" if exc.errno == errno.EADDRNOTAVAIL else "port"
        )
        return {"address": host, "reason": exc.strerror or str(exc), "cause": cause}
    return None


def check_writable(path: pathlib.Path) -> dict[str, t.Any]:
    """Return ``{path, exists, problem, free_bytes}``: could this user write below ``path``?"""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    problem = None
    stat = os.statvfs(place)
    if stat.f_flag & os.ST_RDONLY:
        problem = "is on a read-only file system"
    elif not place.is_dir():
        problem = f"cannot be created, {place} is not a folder"
    elif not os.access(place, os.W_OK | os.X_OK):
        problem = f"is not writable for {_user_label()}"
    elif stat.f_blocks and stat.f_bavail == 0:
        # One without blocks (/proc, a tmpfs without a limit) is never full; a write shows whether it takes files.
        problem = "is on a full file system"
    return {"path": str(path), "exists": path.exists(), "problem": problem, "free_bytes": host_blobs.free_bytes(path)}


def try_write(path: pathlib.Path) -> str | None:
    """Create ``path`` and really write and remove a small file there; return the problem, if any."""
    probe = path / f".muster-{os.getpid()}.probe"
    try:
        path.mkdir(parents=True, exist_ok=True)
        # A block, not a byte: a full file system may still hold a tiny file inside its inode.
        files.write_atomic(probe, b"\0" * 65536)
    except OSError as exc:
        return f"cannot be written: {exc.strerror}"
    finally:
        try:
            probe.unlink(missing_ok=True)
        except OSError:
            pass
    return None


# So many of a node's newest checkpoints are looked at for one of which all nodes have their parts.
_MOST_HELD: t.Final = 64


def find_checkpoint(wanted: t.Mapping[str, t.Any], run: pathlib.Path) -> dict[str, t.Any]:
    """Return ``{folder, name, half_saved, world_size, held}``: the newest complete one, None where there is none.

    ``half_saved`` then says why the newest one does not count. ``world_size``: for how many ranks alone it can be
    loaded, None where for any, or that is not known. ``held``: all that is here, where other nodes may have parts.
    """
    from . import checkpoint_layouts, checkpoint_sets, checkpoints

    folder = pathlib.Path(wanted["folder"] or run / "checkpoints").expanduser()
    found = checkpoints.list_complete(folder, wanted["format"])
    half = "" if found else checkpoints.describe_half_saved(folder, wanted["format"])
    name = found[0].name if found else None
    ranks = checkpoint_layouts.count_ranks(folder / name) if name else None
    held = checkpoint_sets.list_held(folder, wanted["format"])[:_MOST_HELD] if wanted.get("apart") and found else []
    rows = [item._asdict() for item in held]
    return {"folder": str(folder), "name": name, "half_saved": half, "world_size": ranks, "held": rows}


def list_live_runs(state: pathlib.Path) -> list[dict[str, t.Any]]:
    """Return ``{run_id, gpus}`` of the runs whose agent is alive on this node."""
    found = []
    for folder in sorted((state / "runs").glob("*/units/agent")):
        if host_units.unit_status(folder)["alive"]:
            run = folder.parent.parent
            claim = files.read_json(run / "claim.json") or {}
            found.append({"run_id": run.name, "gpus": claim.get("gpus", 0)})
    return found


def read_basics() -> dict[str, t.Any]:
    """Return ``{python, time, user, manager, cpus, kernel, hostname}``; time is this node's clock, Unix seconds."""
    return {
        "python": ".".join(str(item) for item in sys.version_info[:3]),
        "executable": sys.executable,
        "time": time.time(),
        "user": _user_label(),
        "manager": host_units.unit_manager(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": os.uname().release,
        "hostname": socket.gethostname(),
    }


def read_own_addresses() -> dict[str, list[dict[str, t.Any]]]:
    """Return the addresses of this node's interfaces by network, empty lists where the kernel does not say."""
    from . import facts_net

    try:
        return facts_net.group_addresses(facts_net.query_kernel_addresses())
    except OSError:
        return facts_net.group_addresses([])


def find_interface(address: str) -> str | None:
    """Return the network interface that owns ``address`` (a name is resolved), or None when no interface does."""
    from . import facts_net

    try:
        wanted = {str(item[4][0]) for item in socket.getaddrinfo(address, None)}
        owned = facts_net.query_kernel_addresses()
    except OSError:
        return None
    found = next((interface for interface, own, _unused in owned if own in wanted), None)
    # All of 127.0.0.0/8 belongs to the loopback, which lists one address of it.
    return found or ("lo" if any(item.startswith("127.") for item in wanted) else None)


def _user_label() -> str:
    return f"uid {os.getuid()}"
