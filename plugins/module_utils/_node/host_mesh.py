# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tailscale on this node: reading its state, placing its programs, joining a tailnet, preferences, leaving.

Settings of the node's owner stay: preferences are changed one by one with ``tailscale set``, never reset,
and their former values are in the record, from which a removal restores them.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import tempfile
import time
import typing as t

from . import facts_host, files, host_reachability, placed_files
from .commands import CommandError, run
from .placed_files import Recorder, place_of

NodeRequest = t.Mapping[str, t.Any]
RECORD = "var/lib/muster/mesh.json"
UNIT = "tailscaled.service"
# What tailscaled keeps by itself: the node's identity, and its socket.
_TREES = ("var/lib/tailscale", "run/tailscale", "var/cache/tailscale")
_ANSWERS_S = 30
# In memory: a key does not reach the disk.
_RUN = "/run"
# The marked block of the role mesh.
_NAMES = "of names in the mesh (muster.training)"
_PATHS = ("/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin", "/snap/bin")


def _read_names(place: pathlib.Path) -> list[str]:
    """Return the names of services that the marked block of /etc/hosts has."""
    try:
        text = place.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    block = text.partition(f"# BEGIN {_NAMES}\n")[2].partition(f"# END {_NAMES}")[0]
    return [name for line in block.splitlines() for name in line.split()[1:]]


def answer(request: NodeRequest) -> dict[str, t.Any]:
    """Carry out one step of the request."""
    return _STEPS[request["step"]](request)


def _read_state(request: NodeRequest) -> dict[str, t.Any]:
    """Return what is here (see _model/mesh.py, MeshState), and the path to ``peers``; reads only."""
    root = request.get("root", "/")
    recorder = Recorder(RECORD, _TREES, root)
    record = recorder.read()
    program = _find_program()
    status = _read_json(program, "status", "--json") if program else {}
    own = status.get("Self") or {}
    return {
        "architecture": os.uname().machine,
        "root": os.geteuid() == 0,
        "systemd": pathlib.Path("/run/systemd/system").is_dir(),
        "tun": pathlib.Path("/dev/net/tun").exists(),
        "program": program,
        "active": bool(status),
        "backend": status.get("BackendState"),
        "prefs": _read_json(program, "debug", "prefs") if status else {},
        "addresses": status.get("TailscaleIPs") or [],
        "name": str(own.get("DNSName") or "").rstrip(".") or own.get("HostName"),
        "id": own.get("ID"),
        "record": record,
        "names": _read_names(place_of("etc/hosts", root)),
        "intact": _is_intact(recorder, record, request.get("files", [])),
        "path": facts_host.mesh_path(set(host_reachability.read_tailscale_paths(request.get("peers", [])).values())),
    }


def _bring(request: NodeRequest) -> dict[str, t.Any]:
    """Bring the archive of the programs beside its place."""
    return placed_files.bring(_recorder(request), request)


def _apply(request: NodeRequest) -> dict[str, t.Any]:
    """Place the programs and the unit."""
    recorder = _recorder(request)
    result = recorder.apply(request["files"], [], {"release": request["release"]})
    if request.get("root", "/") == "/" and not result.get("problem"):
        run("systemctl", "daemon-reload")
        run("systemctl", "try-restart", UNIT)
        if run("systemctl", "is-active", UNIT, check=False).strip() == "active":
            return {**result, **_wait_ready()}
    return result


def _start(_request: NodeRequest) -> dict[str, t.Any]:
    """Enable and start tailscaled, and wait until it answers."""
    run("systemctl", "enable", "--now", "--quiet", UNIT)
    return _wait_ready()


def _wait_ready() -> dict[str, t.Any]:
    """Wait until tailscaled knows whether it is in a tailnet."""
    end = time.monotonic() + _ANSWERS_S
    while time.monotonic() < end:
        if _read_json(_find_program(), "status", "--json").get("BackendState") not in (None, "NoState", "Starting"):
            return {}
        time.sleep(0.1)
    return {"problem": f"tailscaled was started and did not answer within {_ANSWERS_S} s"}


def _join(request: NodeRequest) -> dict[str, t.Any]:
    """Join a tailnet with a key, which is on the disk for as long as tailscale reads it; ``flags``: preferences."""
    recorder = Recorder(RECORD, _TREES)
    # Before: a removal after a crash leaves the tailnet again.
    recorder.begin([], {"joined": request["login_server"]})
    words = [f"--login-server={request['login_server']}", f"--timeout={int(request['wait_s'])}s"]
    words += [f"--{flag}" for flag in request.get("flags", [])]
    folder = tempfile.mkdtemp(prefix="muster-mesh-", dir=_RUN)
    try:
        key = pathlib.Path(folder) / "key"
        files.write_atomic(key, request["key"].encode(), 0o600)
        _connect_with([f"--auth-key=file:{key}", *words], request["wait_s"] + 10)
    except OSError as exc:
        health = _read_json(_find_program(), "status", "--json").get("Health") or []
        # Else tailscaled would try again for ever.
        run(_find_program(), "down", check=False)
        return {"problem": _explain(" ".join([str(exc), *map(str, health)]).replace(request["key"], "…"))}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {}


def _connect_with(words: t.Sequence[str], limit_s: float) -> None:
    """Run ``tailscale up``. A node that tried before must repeat its settings, which tailscale lists."""
    program = _find_program()
    try:
        run(program, "up", *words, limit_s=limit_s)
    except CommandError as exc:
        listed = next((line for line in exc.said if line.split()[:2] == ["tailscale", "up"]), "")
        if not listed:
            raise
        run(program, "up", *shlex.split(listed)[2:], limit_s=limit_s)


def _set(request: NodeRequest) -> dict[str, t.Any]:
    """Change preferences one by one; their former values are recorded once."""
    recorder = Recorder(RECORD, _TREES)
    former = (recorder.read() or {}).get("prefs", {})
    recorder.begin([], {"prefs": {**request["former"], **former}})
    run(_find_program(), "set", *(f"--{flag}" for flag in request["flags"]))
    return {}


def _connect(request: NodeRequest) -> dict[str, t.Any]:
    """Bring a node that is in its tailnet, and was disconnected, online again."""
    run(_find_program(), "up", f"--timeout={int(request['wait_s'])}s", limit_s=request["wait_s"] + 10)
    return {}


def _remove(request: NodeRequest) -> dict[str, t.Any]:
    """Leave what was joined, restore preferences, remove what was installed; without a record nothing is touched.

    ``flags``: the former preferences as options of ``tailscale set``.
    """
    recorder = _recorder(request)
    record = recorder.read()
    if record is None:
        return {"removed": False}
    live = request.get("root", "/") == "/"
    program = _find_program()
    if live and program and request.get("flags") and not record["files"]:
        run(program, "set", *(f"--{flag}" for flag in request["flags"]))
    if live and program and record.get("joined"):
        run(program, "logout", check=False)
    if record["files"]:
        _uninstall(recorder, record, live)
    place_of(RECORD, recorder.root).unlink(missing_ok=True)
    placed_files.remove_empty(record.get("folders", []))
    return {"removed": True}


def _uninstall(recorder: Recorder, record: t.Mapping[str, t.Any], live: bool) -> None:
    if live:
        run("systemctl", "disable", "--now", "--quiet", UNIT, check=False)
    for path in record["files"]:
        place = place_of(path, recorder.root)
        place.unlink(missing_ok=True)
        place.with_name(f".{place.name}.part").unlink(missing_ok=True)
    for path in set(_TREES) - set(record.get("before", [])):
        shutil.rmtree(place_of(path, recorder.root), ignore_errors=True)
    if live:
        run("systemctl", "daemon-reload")
        run("systemctl", "reset-failed", UNIT, check=False)


def _recorder(request: NodeRequest) -> Recorder:
    return Recorder(RECORD, _TREES, request.get("root", "/"))


def _is_intact(
    recorder: Recorder, record: t.Mapping[str, t.Any] | None, wanted: t.Sequence[t.Mapping[str, t.Any]]
) -> bool:
    """Return whether the programs are as they were placed, and texts (``sha256``) are as they are wanted."""
    known = (record or {}).get("files", {})
    for item in wanted:
        found = recorder.digest_of(item["path"])
        digest = item.get("sha256") or (known.get(item["path"]) or {}).get("sha256")
        if found is None or found["sha256"] != digest:
            return False
    return all(found is not None for found in known.values())


def _find_program() -> str:
    return shutil.which("tailscale", path=os.pathsep.join([os.environ.get("PATH", os.defpath), *_PATHS])) or ""


def _read_json(program: str, *words: str) -> dict[str, t.Any]:
    try:
        value = json.loads(run(program, *words, check=False) or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _explain(problem: str) -> str:
    """Return what a failed join means, by tailscale's own words."""
    if "auth-key" in problem or "authkey" in problem or "auth key" in problem:
        return f"the tailnet refused the key (used, expired, or another tailnet's): {problem}"
    return f"could not join the tailnet: {problem}"


_STEPS: dict[str, t.Callable[[NodeRequest], dict[str, t.Any]]] = {
    "look": _read_state,
    "bring": _bring,
    "discard": placed_files.discard,
    "apply": _apply,
    "start": _start,
    "join": _join,
    "set": _set,
    "connect": _connect,
    "remove": _remove,
}
