# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A supporting service on this node: its program, its files, its unit, whether it is ready, and taking it away.

One record for each service says what was made for it, before it is made. The data of the service is not in it.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import http.client
import os
import pathlib
import re
import shutil
import ssl
import time
import typing as t
import urllib.parse

from . import files, host_blobs, placed_files
from .commands import read_unit, run
from .mount_check import read_mount
from .placed_files import Recorder, place_of

NodeRequest = t.Mapping[str, t.Any]
_AGAIN_S = 0.1
# What a program says before the line in which it ends.
_TELLING: t.Final = re.compile(r"Can't locate revision|out-of-date database schema")
# As often as a unit that cannot start has tried when it is given up.
_RESTARTS = 3


def answer(request: NodeRequest) -> dict[str, t.Any]:
    """Carry out one step for one service.

    All steps have ``service`` (its name), ``unit`` and ``data`` (the folder of what it stores); ``root`` replaces
    ``/``.
    """
    return _STEPS[request["step"]](request)


def _read_state(request: NodeRequest) -> dict[str, t.Any]:
    """Return what is here; reads only. ``ready``: the address that says whether it serves, and ``data``: its folder."""
    recorder = _recorder(request)
    root = request.get("root", "/")
    data = place_of(request["data"], root)
    return {
        "architecture": os.uname().machine,
        "root": os.geteuid() == 0,
        "systemd": _systemd_version(),
        "record": recorder.read(),
        "files": {path: recorder.digest_of(path) for path in request["paths"]},
        "unit": read_unit(request["unit"]),
        "problem_of_service": _find_problem(request["ready"]),
        "foreign": place_of(request["unit_file"], root).exists() and recorder.read() is None,
        "data": data.is_dir() and any(data.iterdir()),
        "keys": _read_keys(request),
        "free_bytes": host_blobs.free_bytes(data),
        "data_type": read_mount(str(data), pathlib.Path("/proc/self/mountinfo").read_text())["type"],
    }


def _bring(request: NodeRequest) -> dict[str, t.Any]:
    """Bring a piece of a file beside its place; ``begin`` has the service's name in a request with a body."""
    about = {"root": request.get("root", "/"), "service": "", **(request.get("begin") or {})}
    return placed_files.bring(_recorder(about), request)


def _apply(request: NodeRequest) -> dict[str, t.Any]:
    """Place files, the record first, start the unit with them, and wait until the service is ready."""
    recorder = _recorder(request)
    if not _hold_keys(request):
        return {"problem": f"the service {request['service']} has other keys: another controller deployed it meanwhile"}
    about = {name: request[name] for name in ("unit", "cluster", "start_with", "data")}
    # No release is there until its program is: what was cut off is done again.
    result = recorder.apply(request["files"], request.get("obsolete", []), {**about, "release": None})
    if not result.get("problem"):
        recorder.write({**(recorder.read() or {}), "release": request["release"]})
    _open_folders(recorder, request["files"])
    _open_environment(recorder)
    if request.get("root", "/") != "/" or result.get("problem"):
        return result
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--quiet", request["unit"])
    record = recorder.read() or {}
    is_started = (
        record.get("started_with") == request["start_with"] and read_unit(request["unit"])["active"] == "active"
    )
    # Restarts are counted from here on.
    run("systemctl", "reset-failed", request["unit"], check=False)
    # One that runs and does not serve, such as a service of secrets that was sealed, is started again.
    if not is_started or _find_problem(request["ready"]) is not None:
        run("systemctl", "restart", "--no-block", request["unit"])
    problem = _wait_ready(request)
    if not problem:
        recorder.write({**record, "started_with": request["start_with"]})
    return {**result, **({"problem": problem} if problem else {})}


def _open_folders(recorder: Recorder, placed: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Let the service's own user come to its program: folders that were made for it are root's alone else."""
    programs = [place_of(item["path"], recorder.root) for item in placed if item["mode"] & 0o001]
    for folder in (recorder.read() or {}).get("folders", []):
        if any(pathlib.Path(folder) in program.parents for program in programs):
            pathlib.Path(folder).chmod(0o755)


def _open_environment(recorder: Recorder) -> None:
    """Let the service's own user read the environment of Python that was made for its program."""
    named = (recorder.read() or {}).get("environment")
    if not named:
        return
    folder = place_of(named, recorder.root)
    run("chmod", "-R", "a+rX", str(folder))
    for parent in (folder.parent, folder.parent.parent):
        parent.chmod(parent.stat().st_mode | 0o055)


def _wait_ready(request: NodeRequest) -> str | None:
    """Wait until the service answers as it should; return what is wrong when it does not."""
    end = time.monotonic() + float(request["wait_s"])
    problem: str | None = None
    while time.monotonic() < end:
        state = read_unit(request["unit"])
        if state["restarts"] >= _RESTARTS:
            said = _last_words(request["unit"])
            run("systemctl", "stop", request["unit"], check=False)
            return f"{request['unit']} is stopped again, it does not start: {said}"
        problem = _find_problem(request["ready"])
        if problem is None and state["active"] == "active":
            return None
        time.sleep(_AGAIN_S)
    reason = problem or _last_words(request["unit"])
    return f"{request['unit']} is not ready after {float(request['wait_s']):.0f} s: {reason}"


def _find_problem(ready: t.Mapping[str, t.Any]) -> str | None:
    """Return why the service does not serve; ``ready``: ``url``, the ``statuses`` of one that does, its own ``ca``."""
    parts = urllib.parse.urlsplit(ready["url"])
    host, port = str(parts.hostname), parts.port
    connection = http.client.HTTPConnection(host, port, timeout=2)
    if parts.scheme == "https":
        trusted = ssl.create_default_context(cadata=ready.get("ca"))
        connection = http.client.HTTPSConnection(host, port, timeout=2, context=trusted)
    try:
        connection.request("GET", f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as exc:
        return f"{ready['url']} does not answer ({exc})"
    finally:
        connection.close()
    return None if status in ready["statuses"] else f"{ready['url']} answers with status {status}"


def _remove(request: NodeRequest) -> dict[str, t.Any]:
    """Stop the service and remove what was installed for it. ``delete_data``: also what it stores.

    Without a record nothing is touched but, where it is ``left``, the data of a service that was removed before.
    """
    recorder = _recorder(request)
    record = recorder.read()
    if record is None and request.get("left"):
        record = {"unit": request["unit"], "files": {}, "data": request["data"]}
    root = request.get("root", "/")
    if record is None:
        return {"removed": False, "kept": None}
    if root == "/":
        run("systemctl", "disable", "--now", "--quiet", record["unit"], check=False, limit_s=120)
    for path in record["files"]:
        place = place_of(path, root)
        place.unlink(missing_ok=True)
        placed_files.part_of(path, root).unlink(missing_ok=True)
    environment = record.get("environment")
    if environment:
        shutil.rmtree(place_of(environment, root), ignore_errors=True)
        lock = place_of(f"{environment.rpartition('/')[0]}/.{environment.rpartition('/')[2]}.lock", root)
        lock.unlink(missing_ok=True)
    data = place_of(record["data"], root)
    if request.get("delete_data"):
        shutil.rmtree(data, ignore_errors=True)
        # systemd's own link to it. The folder that it was in belongs to the machine.
        link = data.parent.parent / data.name
        if link.is_symlink():
            link.unlink()
    place_of(recorder.path, root).unlink(missing_ok=True)
    keys = _keys_file(request)
    # A disk that was mounted there stays, empty.
    is_kept = data.exists() and not (request.get("delete_data") and not any(data.iterdir()))
    if not is_kept:
        keys.unlink(missing_ok=True)
    # Those that several services share are in the record of the first alone.
    made = [*record["files"], *([environment] if environment else [])]
    parents = [parent for path in made for parent in pathlib.PurePosixPath(path).parents]
    shared = {str(place_of(str(parent), root)) for parent in parents if "muster" in parent.parts}
    placed_files.remove_empty({*record.get("folders", []), *shared, str(keys.parent)})
    if root == "/":
        run("systemctl", "daemon-reload")
        run("systemctl", "reset-failed", record["unit"], check=False)
    return {"removed": True, "kept": record["data"] if is_kept else None}


def _recorder(request: NodeRequest) -> Recorder:
    return Recorder(f"var/lib/muster/service-{request['service']}.json", (), request.get("root", "/"))


def _keys_file(request: NodeRequest) -> pathlib.Path:
    """Return where it says which keys the service's data belongs to; it stays as long as the data does."""
    return place_of(f"var/lib/muster/service-{request['service']}.keys", request.get("root", "/"))


def _read_keys(request: NodeRequest) -> str | None:
    """Return the fingerprint of the service's keys, None where there is none."""
    place = _keys_file(request)
    return place.read_text() if place.is_file() else None


def _hold_keys(request: NodeRequest) -> bool:
    """Note which keys the service has; return whether those are the ones that it had already."""
    if _read_keys(request) not in (None, request["keys"]):
        return False
    place = _keys_file(request)
    place.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomic(place, request["keys"].encode())
    return True


def _last_words(unit: str) -> str:
    """Return the last line of the service itself, or the one that says why, else what systemd says of its unit."""
    for which in ([f"_SYSTEMD_UNIT={unit}"], ["--unit", unit]):
        text = run("journalctl", *which, "--output=cat", "--lines=20", "--no-pager", "--quiet", check=False)
        lines = [line for line in text.splitlines() if line.strip()]
        if lines:
            return next((line for line in reversed(lines) if _TELLING.search(line)), lines[-1])[:300]
    return "it said nothing"


def _systemd_version() -> int:
    """Return systemd's version, 0 where this node was not started by it."""
    if not pathlib.Path("/run/systemd/system").is_dir():
        return 0
    words = run("systemctl", "--version", check=False).split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


_STEPS: dict[str, t.Callable[[NodeRequest], dict[str, t.Any]]] = {
    "look": _read_state,
    "bring": _bring,
    "discard": placed_files.discard,
    "apply": _apply,
    "remove": _remove,
}
