# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of every request: one JSON value in, one JSON value out.

The controller sends these sources with its first request (nothing is installed for reading), and calls the installed
copy afterwards. Each operation is a function from the request to the answer; a refusal is ``{"problem": text}``.

This is a private utility of the collection; it may change without notice.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import signal
import socket
import sys
import time
import typing as t

from . import files, host_blobs, host_log_follow, host_preflight, host_units, processes

Request = t.Mapping[str, t.Any]
MARK = "\x1emuster\x1e"


def op_info(request: Request) -> dict[str, t.Any]:
    """Return what the controller must know before it plans; reads only."""
    state = _state(request)
    answer: dict[str, t.Any] = {"state_dir": str(state), "home": str(files.home()), **host_preflight.basics()}
    answer["live_runs"] = host_preflight.live_runs(state)
    answer["free_bytes"] = host_blobs.free_bytes(state)
    answer["state"] = host_preflight.writable(state)
    program = state / "agent" / str(request.get("version"))
    answer["program"] = str(program) if (program / "run.py").exists() else None
    if request.get("run_id"):
        run = _run_dir(request)
        answer["claim"] = files.read_json(run / "claim.json")
        answer["units"] = host_log_follow.statuses(run)
        answer["missing"] = host_blobs.offsets(state, request.get("blobs", []))
        if request.get("reserve"):
            # The first host decides between two controllers that start one run at the same moment.
            answer["reserved"] = _claim(files.private_dir(run), request["reserve"])
    if request.get("address"):
        answer["interface"] = host_preflight.interface_of(request["address"])
    if request.get("python"):
        answer["training"] = host_preflight.training_python(
            request["python"], request.get("packages", []), request.get("env", {})
        )
    answer["tools"] = {name: shutil.which(name, path=_tool_path()) for name in request.get("tools", [])}
    answer["ports"] = {str(port): host_preflight.port(host, port) for host, port in request.get("ports", [])}
    answer["paths"] = {
        path: host_preflight.writable(pathlib.Path(path).expanduser()) for path in request.get("paths", [])
    }
    answer["files"] = {path: os.access(os.path.expanduser(path), os.R_OK) for path in request.get("files", [])}
    if request.get("facts"):
        from . import facts

        answer["facts"] = facts.gather(request["facts"] if isinstance(request["facts"], dict) else {})
    return answer


def op_put(request: Request) -> dict[str, t.Any]:
    """Store pieces of blobs."""
    return {"refused": host_blobs.put(files.private_dir(_state(request)), request["pieces"])}


def op_install(request: Request) -> dict[str, t.Any]:
    """Install these sources, from where later requests and the supervisors run."""
    program = files.private_dir(_state(request)) / "agent" / str(request["version"])
    if not (program / "run.py").exists():
        package = files.private_dir(program / "muster_node")
        for name, text in request["sources"].items():
            files.write_atomic(package / name, text.encode())
        # Byte-code once, and not at the first request of each kind.
        import py_compile

        for file in sorted(package.glob("*.py")):
            py_compile.compile(str(file), quiet=2)
        files.write_atomic(program / "run.py", request["entry"].encode())
        return {"program": str(program), "changed": True}
    return {"program": str(program), "changed": False}


def op_prepare(request: Request) -> dict[str, t.Any]:
    """Claim the run, place its files and, on the first node, start the rendezvous store.

    Ends with a connection to the first node's port, so that "prepared" means that the gang can meet.
    """
    run = files.private_dir(_run_dir(request))
    host_log_follow.name_folder(run)
    refusal = _claim(run, request["claim"])
    if refusal:
        return {"problem": refusal}
    try:
        if request.get("store"):
            # First: it imports torch while the files are placed.
            host_units.start(request["store"], pathlib.Path(request["program"]), wait=False)
        problem = _place(run, request)
        if not problem and request.get("store"):
            problem = _wait_for_store(request["store"])
        if not problem and request.get("meet"):
            problem = _meet(**request["meet"])
        if not problem and request.get("reach"):
            problem = _reach(**request["reach"])
    except OSError as exc:
        problem = f"{exc.filename or 'node'}: {exc.strerror or exc}"
    if problem:
        mine = request["claim"]["owner"]
        op_stop({**request, "owner": mine, "forget": True, "within_s": 5, "remove": request.get("fresh")})
    return {"problem": problem, "program": request["program"]}


def op_claim(request: Request) -> dict[str, t.Any]:
    """Take a run that lives over from another controller."""
    return {"problem": _claim(_run_dir(request), request["claim"])}


def op_start(request: Request) -> dict[str, t.Any]:
    """Start the agent's supervisor; a unit that runs already is left alone."""
    run = _run_dir(request)
    try:
        started = host_units.start(request["spec"], pathlib.Path(request["program"]))
    except OSError as exc:
        return {"problem": f"cannot start the unit: {exc.strerror or exc}"}
    return {"started": started, "units": host_log_follow.statuses(run)}


def op_watch(request: Request) -> dict[str, t.Any]:
    """Return what is new in the run (see watch.py)."""
    return host_log_follow.changes(_run_dir(request), request)


def op_stop(request: Request) -> dict[str, t.Any]:
    """Stop the run's units, the agent first; with ``forget`` the claim is given up too."""
    run = _run_dir(request)
    holder = files.read_json(run / "claim.json") or {}
    if request.get("owner") and holder and holder.get("owner") != request["owner"]:
        return {"problem": f"run {run.name} belongs to another controller ({holder.get('controller', 'unknown')})"}
    left: list[int] = []
    was_alive = False
    names = request.get("units") or ["agent", "store"]
    for name in names:
        folder = run / "units" / name
        if folder.is_dir():
            was_alive = was_alive or host_units.status(folder)["alive"]
            left += host_units.stop(folder, request.get("within_s", 60))
    shutil.rmtree(run / "secrets", ignore_errors=True)
    if request.get("forget"):
        (run / "claim.json").unlink(missing_ok=True)
    if request.get("remove") and not left:
        shutil.rmtree(run, ignore_errors=True)
    return {"stopped": was_alive, "left": left, "units": host_log_follow.statuses(run)}


def op_kill(request: Request) -> dict[str, t.Any]:
    """Kill with SIGKILL what a drill names: ``worker`` (one rank), ``agent``, or ``host`` (all of the run here)."""
    run = _run_dir(request)
    state = files.read_json(run / "units" / "agent" / "state.json") or {}
    target = request["target"]
    if target == "worker":
        victims = _rank_process(run, request.get("rank"))
    elif target == "agent":
        victims = [pid for pid in [processes.alive(state.get("child"))] if pid]
    else:
        victims = [pid for pid in [processes.alive(_supervisor(run, unit)) for unit in ("agent", "store")] if pid]
    at = time.time()
    processes.kill_all(victims, signal.SIGKILL)
    left: list[int] = []
    for unit in {"agent": ("agent",), "host": ("agent", "store")}.get(target, ()):
        spec = files.read_json(run / "units" / unit / "spec.json") or {}
        left += processes.kill_now(spec.get("marker", "-"))
    return {"at": at, "killed": victims, "left": left}


def op_remove(request: Request) -> dict[str, t.Any]:
    """Remove a run's folder; one that runs is left alone."""
    run = _run_dir(request)
    if any(unit["alive"] for unit in host_log_follow.statuses(run).values()):
        return {"problem": f"run {run.name} is running"}
    existed = run.exists()
    shutil.rmtree(run, ignore_errors=True)
    return {"removed": existed}


def op_examine(request: Request) -> dict[str, t.Any]:
    """Return what the ranks of a run are doing here right now (see examine.py); reads only."""
    from . import diag_ranks

    return diag_ranks.examine(_run_dir(request), request)


def op_reach(request: Request) -> dict[str, t.Any]:
    """Return which addresses of other nodes answer from here (see reach.py), and how tailscale gets to the mesh's."""
    from . import host_reachability

    found = host_reachability.probe(request["targets"], float(request["seconds"]))
    return {"answers": found, "mesh": host_reachability.tailscale_paths(request.get("mesh", []))}


def op_read(request: Request) -> dict[str, t.Any]:
    """Return files below the run's folder that match ``pattern``: their last ``limit`` bytes, whatever their size.

    ``{files: [{path, size, modified_at, text}]}``.
    """
    run = _run_dir(request)
    found = []
    for path in sorted(run.glob(request["pattern"])):
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as handle:
                state = os.fstat(handle.fileno())
                handle.seek(max(0, state.st_size - int(request["limit"])))
                text = handle.read(int(request["limit"])).decode(errors="replace")
            name = str(path.relative_to(run))
            found.append({"path": name, "size": state.st_size, "modified_at": state.st_mtime, "text": text})
    return {"files": found}


def _claim(run: pathlib.Path, claim: t.Mapping[str, t.Any]) -> str | None:
    """Take the run for one controller; return who holds it when it is another's."""
    place = run / "claim.json"
    text = json.dumps({key: value for key, value in claim.items() if key != "take_over"}).encode()
    temporary = run / f".claim.{os.getpid()}"
    files.write_atomic(temporary, text)
    try:
        # A hard link is the one atomic "create unless it exists" that also shows the full content at once.
        os.link(temporary, place)
    except FileExistsError:
        holder = files.read_json(place) or {}
        if holder.get("owner") != claim["owner"] and not claim.get("take_over"):
            return f"run {run.name} belongs to another controller ({holder.get('controller', 'unknown')})"
        os.replace(temporary, place)
        return None
    finally:
        temporary.unlink(missing_ok=True)
    return None


def _place(run: pathlib.Path, request: Request) -> str | None:
    state = _state(request)
    for tree in request.get("trees", []):
        target = run / tree["target"]
        host_blobs.materialise(state, tree["manifest"], target, tree["link"])
    for name, text in request.get("files", {}).items():
        place = run / name
        place.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(place, text.encode())
    secrets = request.get("secrets") or {}
    if secrets:
        folder = files.private_dir(run / "secrets")
        files.write_json(folder / "env.json", secrets.get("env", {}))
        for name, data in secrets.get("files", {}).items():
            files.write_atomic(folder / name, base64.b64decode(data))
    for path in request.get("write", []):
        problem = host_preflight.try_write(pathlib.Path(path).expanduser())
        if problem:
            return f"{path} {problem}"
    return None


def _wait_for_store(spec: t.Mapping[str, t.Any]) -> str | None:
    end = time.monotonic() + 10
    status = host_units.status(pathlib.Path(spec["folder"]))
    while (not status["alive"] or status["state"] is None) and status["exit"] is None and time.monotonic() < end:
        time.sleep(0.01)
        status = host_units.status(pathlib.Path(spec["folder"]))
    if status["exit"] is not None or status["state"] != "running" or not status["alive"]:
        return status["detail"] or "the rendezvous store did not start"
    return None


def _reach(host: str, port: int, seconds: float) -> str | None:
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=2).close()
            return None
        except OSError as exc:
            if time.monotonic() > end:
                return f"cannot reach the first node at {host}:{port} ({exc.strerror or exc})"
        time.sleep(0.02)


def _meet(host: str, port: int, peers: int, seconds: float) -> str | None:
    """Stand in for a first node that has no store: listen until every other node has connected once."""
    busy = host_preflight.port(host, port)
    if busy:
        return f"cannot listen on {host}:{port}: {busy}"
    end = time.monotonic() + seconds
    with socket.create_server((host, port), backlog=1024, reuse_port=False) as server:
        for met in range(peers):
            server.settimeout(max(0.01, end - time.monotonic()))
            try:
                server.accept()[0].close()
            except TimeoutError:
                return f"only {met} of {peers} other nodes could reach {host}:{port}"
    return None


def _rank_process(run: pathlib.Path, rank: int | None) -> list[int]:
    """Return the newest living process of ``rank`` (any rank when None) that this node's events name."""
    found: dict[int, int] = {}
    try:
        lines = (run / "events.jsonl").read_bytes().splitlines()
    except OSError:
        return []
    for raw in lines:
        try:
            line = json.loads(raw)
        except ValueError:
            continue
        if line.get("kind") == "worker_started" and (rank is None or line.get("rank") == rank):
            found[int(line["rank"] or 0)] = int(line["pid"])
    wanted = (files.read_json(run / "units" / "agent" / "spec.json") or {}).get("marker")
    living = [pid for pid in found.values() if processes.environment_of(pid).get(processes.MARKER) == wanted]
    return living[-1:]


def _supervisor(run: pathlib.Path, unit: str) -> str | None:
    state = files.read_json(run / "units" / unit / "state.json") or {}
    return t.cast("str | None", state.get("supervisor"))


def _state(request: Request) -> pathlib.Path:
    return files.state_root(request["node"], request.get("state_root"))


def _run_dir(request: Request) -> pathlib.Path:
    return _state(request) / "runs" / str(request["run_id"])


def _tool_path() -> str:
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


_OPS: dict[str, t.Callable[[Request], dict[str, t.Any]]] = {
    "info": op_info,
    "put": op_put,
    "install": op_install,
    "prepare": op_prepare,
    "claim": op_claim,
    "start": op_start,
    "watch": op_watch,
    "stop": op_stop,
    "kill": op_kill,
    "examine": op_examine,
    "reach": op_reach,
    "read": op_read,
    "remove": op_remove,
}


def answer(request: Request) -> dict[str, t.Any]:
    """Carry out one request; what fails for a reason of this node comes back as ``problem``, never as a traceback."""
    os.umask(0o077)
    try:
        return _OPS[request["op"]](request)
    except OSError as exc:
        return {"problem": f"{exc.filename or 'node'}: {exc.strerror or exc}"}


def main(argv: list[str]) -> int:
    """Entry of the installed copy: ``run.py`` answers standard input, ``run.py supervise SPEC`` supervises."""
    if argv[1:2] == ["supervise"]:
        from . import host_supervisor

        return host_supervisor.main(argv[2])
    print(MARK + json.dumps(answer(json.load(sys.stdin))))
    return 0
