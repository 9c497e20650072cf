# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts, stops and inspects supervisors: as transient systemd units where systemd runs, else detached.

A unit's folder is ``<run>/units/<unit>``. Its ``spec.json`` is a :class:`UnitSpec`. Secrets are never in it, only the
path of their file.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import typing as t

from . import files, processes

UNITS = ("agent", "store")
# So long may what has ended keep a port.
PORT_S = 3.0
_RUN_S = 20


class UnitAddress(t.TypedDict, total=False):
    """An address and port; ``seconds`` is how long to wait for it."""

    host: str
    port: int
    seconds: float


class UnitSpec(t.TypedDict, total=False):
    """What a supervisor starts and watches. Paths are absolute, and on this node.

    ``marker`` is in the environment of all processes of the unit, by which they are found. ``argv`` may hold
    ``{listen_fd}``, the socket of ``listen``. ``secrets`` is a file with variables (JSON); it and ``secret_files`` are
    removed when the unit ends.
    """

    run_id: str
    node: str
    unit: t.Literal["agent", "store"]
    marker: str
    folder: str
    events: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    # How the unit is restarted (host_restart_policy.py), and how often, for what a program and what a node did.
    policy: t.Literal["torchrun", "whole", "never", "store"]
    max_crashes: int
    max_lost: int
    launcher_restarts: int
    fatal_exit_codes: list[int]
    wait_for: UnitAddress | None
    listen: UnitAddress | None
    secrets: str | None
    secret_files: list[str]
    # Where samples of the node's use go.
    usage: str | None
    # Seconds from the first start to the end of the job, and from the wish to end to the kill.
    timeout_s: float | None
    grace_s: float
    # Bytes.
    memory: int | None
    checkpoints: dict[str, t.Any]
    # Regular expressions of printed metrics by key, by the preset that they are of (metric_lines.py).
    forms: dict[str, dict[str, str]]
    # Counts the starts of one run: what a former one left does not count.
    generation: int
    # Set here: ``system``, ``user`` or ``detached``.
    manager: str


def unit_manager() -> str:
    """Return ``system``, ``user`` or ``detached``: how a process can outlive this connection."""
    if not pathlib.Path("/run/systemd/system").is_dir() or not shutil.which("systemd-run"):
        return "detached"
    if os.geteuid() == 0:
        return "system"
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    lingering = pathlib.Path(f"/var/lib/systemd/linger/{_user_name()}").exists()
    return "user" if lingering and pathlib.Path(runtime, "systemd/private").exists() else "detached"


def start_unit(spec: UnitSpec, program: pathlib.Path, *, wait: bool = True) -> bool:
    """Start the supervisor of ``spec`` unless it is running; return whether it was started.

    :param program: the installed agent's folder (it holds the package ``muster_node``).
    :param wait: return only when it has begun.
    """
    folder = files.private_dir(pathlib.Path(spec["folder"]))
    if unit_status(folder)["alive"]:
        return False
    for name in ("exit.json", "stop"):
        (folder / name).unlink(missing_ok=True)
    if unit_status(folder)["generation"] != spec["generation"]:
        (folder / "state.json").unlink(missing_ok=True)
    kind = unit_manager()
    files.write_json(folder / "spec.json", {**spec, "manager": kind})
    argv = [sys.executable, "-I", "-S", str(program / "run.py"), "supervise", str(folder / "spec.json")]
    if kind == "detached":
        _start_detached(argv, folder)
    else:
        _run_command(_systemd_command(spec, kind) + argv)
    if wait and not _wait_until(lambda: _has_begun(folder), 10.0):
        raise OSError(f"the supervisor did not start, see {folder}/supervisor.log")
    return True


def unit_status(folder: pathlib.Path) -> dict[str, t.Any]:
    """Return the state of a unit.

    ``{alive, state, detail, exit, heartbeat_age_s, crashes, lost, child, generation, stopping}``: ``exit`` is what
    ``exit.json`` holds, ``child`` the pid of its process; both are None while there is none, as is all of a unit that
    never started. ``stopping``: whether a controller has asked it to stop since its start.
    """
    state = files.read_json(folder / "state.json") or {}
    try:
        age = max(0.0, time.time() - (folder / "heartbeat").stat().st_mtime)
    except OSError:
        age = None
    lives = processes.living_pid(state.get("supervisor")) is not None
    # After that: a supervisor writes how its unit ended before it is gone.
    stopping, ending = (folder / "stop").exists(), files.read_json(folder / "exit.json")
    alive = lives or (ending is None and _is_restarting(folder))
    return {
        "alive": alive,
        "state": state.get("state"),
        "detail": state.get("detail", ""),
        "exit": ending,
        "heartbeat_age_s": age,
        "crashes": state.get("crashes", 0),
        "lost": state.get("lost", 0),
        "child": processes.living_pid(state.get("child")),
        "generation": state.get("generation"),
        "stopping": stopping,
    }


def stop_unit(folder: pathlib.Path, within_s: float) -> list[int]:
    """Stop a unit: its supervisor lets the program save and end, then everything marked is killed.

    :returns: pids that could not be ended.
    """
    state = files.read_json(folder / "state.json") or {}
    spec = _read_spec(folder)
    pid = processes.living_pid(state.get("supervisor"))
    if folder.is_dir() and not (folder / "exit.json").exists():
        # By this the supervisor tells a cancel from a node that shuts down, and a follower one from a lost node.
        (folder / "stop").touch()
    if pid is not None:
        processes.kill_all([pid], signal.SIGTERM)
        if not _wait_until(lambda: processes.living_pid(state.get("supervisor")) is None, within_s):
            processes.kill_all([pid])
    if spec.get("manager", "detached") != "detached":
        # systemd would start the killed process again.
        _systemctl(spec, "stop", _unit_name(spec))
    for file in [spec.get("secrets"), *spec.get("secret_files", [])]:
        if file:
            pathlib.Path(file).unlink(missing_ok=True)
    return processes.kill_marked(spec["marker"]) if spec.get("marker") else []


def find_left(run: pathlib.Path, units: t.Iterable[str] = UNITS) -> list[int]:
    """Return processes of units of a run here whose supervisor is gone, also where the run's folder is, too."""
    return [pid for marker in _list_dead_markers(run, units) for pid in processes.find_marked(marker)]


def is_left(run: pathlib.Path) -> bool:
    """Return whether processes of a run are here, and none of its supervisors."""
    return not any(unit_status(run / "units" / unit)["alive"] for unit in UNITS) and bool(find_left(run))


def end_left(run: pathlib.Path, units: t.Iterable[str] = UNITS) -> list[int]:
    """End what :func:`find_left` finds; return pids that could not be ended."""
    return [pid for marker in _list_dead_markers(run, units) for pid in processes.kill_marked(marker)]


def _list_dead_markers(run: pathlib.Path, units: t.Iterable[str]) -> list[str]:
    """Return the markers of the units of a run whose supervisor is gone."""
    return [run_marker(run, unit) for unit in units if not unit_status(run / "units" / unit)["alive"]]


def run_marker(run: pathlib.Path, unit: str) -> str:
    """Return the marker of a unit as the controller makes it (``unit_marker`` of ``_model/object_names.py``)."""
    return f"{run.name}/{unit}/{hashlib.sha256(str(run).encode()).hexdigest()[:12]}"


def _read_spec(folder: pathlib.Path) -> UnitSpec:
    return t.cast("UnitSpec", files.read_json(folder / "spec.json") or {})


def _has_begun(folder: pathlib.Path) -> bool:
    now = unit_status(folder)
    return now["alive"] or now["exit"] is not None


def _is_restarting(folder: pathlib.Path) -> bool:
    """Return whether systemd is about to start the unit again after its main process ended."""
    spec = _read_spec(folder)
    if spec.get("manager", "detached") == "detached":
        return False
    state = _systemctl(spec, "show", "--property=ActiveState", "--value", _unit_name(spec))
    return state in ("active", "activating", "deactivating", "reloading")


def _systemctl(spec: UnitSpec, *words: str) -> str:
    scope = ["--user"] if spec["manager"] == "user" else []
    try:
        done = subprocess.run(
            ["systemctl", *scope, *words],
            capture_output=True,
            text=True,
            timeout=_RUN_S,
            check=False,
            env=_bus_environment(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _bus_environment() -> dict[str, str]:
    """Return the environment with the folder of a user's own systemd, which sudo and cron do not set."""
    return {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", **os.environ}


def _unit_name(spec: UnitSpec) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"muster-{spec['run_id']}-{spec['node']}-{spec['unit']}")


def _start_detached(argv: list[str], folder: pathlib.Path) -> None:
    with open(folder / "supervisor.log", "ab") as log:
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/")


def _systemd_command(spec: UnitSpec, kind: str) -> list[str]:
    properties = {
        "Restart": "on-failure",
        "RestartSec": "200ms",
        "KillMode": "mixed",
        "OOMPolicy": "continue",
        "TimeoutStopSec": str(spec["grace_s"] + 15),
        "UMask": "0077",
        "TasksMax": "infinity",
    }
    if kind == "system":
        # RDMA registers memory, and a rank opens a socket or a queue pair per peer.
        properties.update({"LimitMEMLOCK": "infinity", "LimitNOFILE": "1048576"})
    if spec.get("memory"):
        properties["MemoryMax"] = str(spec["memory"])
    if limit_s := spec.get("timeout_s"):
        # A backstop for a supervisor that hangs; it ends the job itself at timeout_s.
        properties["RuntimeMaxSec"] = str(limit_s + spec["grace_s"] + 60)
    scope = ["--user"] if kind == "user" else []
    options = [f"--property={key}={value}" for key, value in properties.items()]
    head = ["systemd-run", *scope, "--quiet", "--collect", f"--unit={_unit_name(spec)}", "--slice=muster.slice"]
    return [*head, f"--description=muster.training run {spec['run_id']}", *options]


def _run_command(argv: list[str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_RUN_S, check=False, env=_bus_environment())
    except subprocess.TimeoutExpired as exc:
        raise OSError(f"{argv[0]} did not answer within {_RUN_S} s") from exc
    if done.returncode != 0:
        raise OSError(f"{argv[0]} answered {done.returncode}: {done.stderr.strip()[:300]}")


def _wait_until(true: t.Callable[[], bool], within_s: float) -> bool:
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def _user_name() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
