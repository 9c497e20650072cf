# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of every request: one JSON value in, one JSON value out.

The controller sends these sources with its first request (a request that only reads installs nothing), and calls the
installed copy afterwards; this folder is flat because it travels as one package. Each operation is a function from the
request to the answer; a refusal is ``{"problem": text}``, with ``fix`` where there is one.

Every request has ``op`` and ``node`` (the inventory name); ``run_id`` names a run, and ``state_root`` another state
folder. The docstring of an operation lists its other keys.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import pathlib
import shutil
import sys
import time
import typing as t

from . import (
    files,
    host_blobs,
    host_log_follow,
    host_preflight,
    host_rendezvous,
    host_units,
    mount_marker,
    secret_mask,
    shared_folder,
)

NodeRequest = t.Mapping[str, t.Any]
MARK = "\x1emuster\x1e"
_UNREAD_BYTES = 1 << 20


def op_info(request: NodeRequest) -> dict[str, t.Any]:
    """Return what the controller's plan depends on. Reads only, but for ``reserve`` and ``end_left``.

    Always: the node's basics (host_preflight.py), its live runs, free bytes, and the installed program of ``version``.
    What a key of the request asks for, each optional:

    - ``run_id``: who owns the run, its units, and of ``blobs`` (SHA-256) the bytes that are here of those not whole.
      With ``reserve`` (an owner) the run is taken, or a problem says by whom it was.
    - ``address``: the interface that has it, and all addresses of this node.
    - ``python``: the interpreter, with the versions of ``packages`` under ``env`` and the syntax of ``script``.
    - ``tools`` (names): their paths. ``ports`` ([host, port]): what keeps each from being opened; not what is left of
      the run itself, which ``end_left`` (an owner) ends where it keeps one.
    - ``mounts`` ([path, marker]): why a shared file system is not there; then no file is looked at, which could hang.
    - ``paths``: what keeps each from being written. ``files``: whether each can be read.
    - ``checkpoints`` (options of the job): whether one is here. ``facts``: all facts of the node, as facts.py has them.
    """
    state = _state_dir(request)
    answer: dict[str, t.Any] = {"state_dir": str(state), "home": str(files.home_dir()), **host_preflight.read_basics()}
    answer["live_runs"] = host_preflight.list_live_runs(state)
    answer["free_bytes"] = host_blobs.free_bytes(state)
    answer["state"] = host_preflight.check_writable(state)
    program = state / "agent" / str(request.get("version"))
    answer["program"] = str(program) if (program / "run.py").exists() else None
    if request.get("run_id"):
        run = _run_dir(request)
        answer["claim"] = files.read_json(run / "claim.json")
        answer["units"] = host_log_follow.unit_statuses(run)
        answer["missing"] = host_blobs.missing_offsets(state, request.get("blobs", []))
        if request.get("reserve"):
            # The first host decides between two controllers that start one run at the same moment.
            answer["reserved"] = _take_ownership(files.private_dir(run), request["reserve"])
    if request.get("address"):
        answer["interface"] = host_preflight.find_interface(request["address"])
        answer["addresses"] = host_preflight.read_own_addresses()
    if request.get("python"):
        script = tuple(request["script"]) if request.get("script") else None
        found = host_preflight.inspect_python(
            request["python"], request.get("packages", []), request.get("env", {}), script
        )
        syntax = found.pop("syntax", None)
        answer.update({"training": found, **({"syntax": syntax} if script else {})})
    answer["tools"] = {name: shutil.which(name, path=_tool_path()) for name in request.get("tools", [])}
    answer["ports"] = _check_ports(request)
    answer["mounts"] = {path: mount_marker.find_problem(path, marker) for path, marker in request.get("mounts", [])}
    if any(answer["mounts"].values()):
        request = {**request, "paths": [], "files": [], "checkpoints": None}
    answer["paths"] = {
        path: host_preflight.check_writable(pathlib.Path(path).expanduser()) for path in request.get("paths", [])
    }
    answer["files"] = {path: os.access(os.path.expanduser(path), os.R_OK) for path in request.get("files", [])}
    if request.get("checkpoints"):
        answer["checkpoint"] = host_preflight.find_checkpoint(request["checkpoints"], _run_dir(request))
    if request.get("facts"):
        from . import facts

        answer["facts"] = facts.gather_facts(request["facts"] if isinstance(request["facts"], dict) else {})
    return answer


def _check_ports(request: NodeRequest) -> dict[str, t.Any]:
    """Return by port what keeps it from being opened, None for one that is free or that the run itself left busy."""

    def test_ports() -> dict[str, t.Any]:
        return {str(port): host_preflight.port_problem(host, port) for host, port in request.get("ports", [])}

    found = test_ports()
    busy = [port for port, problem in found.items() if problem and problem["cause"] == "port"]
    run = _run_dir(request) if busy and request.get("run_id") else None
    if run is None or not host_units.is_left(run):
        return found
    owner, holder = request.get("end_left"), files.read_json(run / "claim.json") or {}
    if not owner:
        return {port: None if port in busy else problem for port, problem in found.items()}
    if holder.get("owner", owner) == owner:
        host_units.end_left(run)
    end = time.monotonic() + host_units.PORT_S
    while any((found := test_ports())[port] for port in busy) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def op_put(request: NodeRequest) -> dict[str, t.Any]:
    """Store pieces of blobs: ``pieces`` [{sha256, offset, data, last}]; return those ``refused`` (SHA-256)."""
    return {"refused": host_blobs.store_pieces(files.private_dir(_state_dir(request)), request["pieces"])}


def op_install(request: NodeRequest) -> dict[str, t.Any]:
    """Install these sources, from where later requests and the supervisors run."""
    program = files.private_dir(_state_dir(request)) / "agent" / str(request["version"])
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


def op_prepare(request: NodeRequest) -> dict[str, t.Any]:
    """Take ownership of the run, place its files and, on the first node, start the rendezvous store.

    Ends with a connection to the first node's port, so that a prepared gang can reach its rendezvous.

    The request (built in ``_hosts/gang.py``) has ``claim`` (the owner), ``trees``, ``files``, ``secrets``, ``write``
    (folders to test), ``store`` (a UnitSpec, on the first node), ``meet`` or ``reach`` (host_rendezvous.py), ``shared``
    (shared_folder.py), and ``fresh``: the run has never run, and its folder goes when this fails. ``again``: it was
    started here before, and what runs of it stays when this fails. Where not even the agent's program is left, the
    answer is ``emptied``, where it was stopped meanwhile ``stopped``, and nothing was written.
    """
    if request.get("again") and not pathlib.Path(request["program"], "run.py").exists():
        return {"program": request["program"], "emptied": True}
    if _is_stopped_again(request):
        return {"stopped": True}
    run = files.private_dir(_run_dir(request))
    host_log_follow.name_folder(run)
    refusal = _take_ownership(run, request["claim"])
    if refusal:
        return {"problem": refusal}
    problem, fix = _prepare_steps(run, request)
    if problem and not request.get("again"):
        mine = request["claim"]["owner"]
        op_stop({**request, "owner": mine, "forget": True, "within_s": 5, "remove": request.get("fresh")})
    return {"problem": problem, "program": request["program"], **({"fix": fix} if fix else {})}


def _is_stopped_again(request: NodeRequest) -> bool:
    """Return whether a node of a running gang is to be started again on which it was stopped meanwhile."""
    return bool(request.get("again")) and (_run_dir(request) / "units" / "agent" / "stop").exists()


def _prepare_steps(run: pathlib.Path, request: NodeRequest) -> tuple[str | None, str]:
    """Prepare a node that owns the run; return what failed and how to solve it."""
    shared = request.get("shared") or {}
    problem: str | None = None
    try:
        if shared.get("writes"):
            # Before the port opens: the nodes that have reached it look for what was written.
            problem = shared_folder.take_part(run, shared)
        if not problem and request.get("store"):
            # Early: it imports torch while the files are placed.
            host_units.start_unit(request["store"], pathlib.Path(request["program"]), wait=False)
        problem = problem or _place_files(run, request) or host_rendezvous.reach_gang(request)
        if not problem and shared and not shared.get("writes"):
            problem = shared_folder.take_part(run, shared)
            return problem, shared_folder.ADVICE if problem else ""
    except OSError as exc:
        problem = f"{exc.filename or 'node'}: {exc.strerror or exc}"
    return problem, ""


def op_take_over(request: NodeRequest) -> dict[str, t.Any]:
    """Take a running run over from another controller; ``claim``: the new owner."""
    return {"problem": _take_ownership(_run_dir(request), request["claim"])}


def op_start(request: NodeRequest) -> dict[str, t.Any]:
    """Start the supervisor of ``spec`` (a UnitSpec), unless the unit is running, or (``again``) was stopped."""
    run = _run_dir(request)
    if _is_stopped_again(request):
        return {"stopped": True}
    shared_folder.forget(run)
    try:
        started = host_units.start_unit(request["spec"], pathlib.Path(request["program"]))
    except OSError as exc:
        return {"problem": f"cannot start the unit: {exc.strerror or exc}"}
    return {"started": started, "units": host_log_follow.unit_statuses(run)}


def op_watch(request: NodeRequest) -> dict[str, t.Any]:
    """Return the new lines and states of the run (see host_log_follow.py)."""
    return host_log_follow.wait_for_changes(_run_dir(request), request)


def op_stop(request: NodeRequest) -> dict[str, t.Any]:
    """Stop the run's units, the agent first; return the pids that could not be ended as ``left``.

    ``owner``: refuse when the run is another's. ``within_s``: how long programs may save. ``forget``: the ownership is
    given up, too. ``remove``: so is the run's folder.
    """
    run = _run_dir(request)
    holder = files.read_json(run / "claim.json") or {}
    if request.get("owner") and holder and holder.get("owner") != request["owner"]:
        problem = f"run {run.name} belongs to another controller ({holder.get('controller', 'unknown')})"
        return {"problem": problem, "fix": "Cancel it there, or here with muster_take_over: true"}
    left: list[int] = []
    names = request.get("units") or host_units.UNITS
    was_alive = bool(host_units.find_left(run, names))
    for name in names:
        folder = run / "units" / name
        if folder.is_dir():
            was_alive = was_alive or host_units.unit_status(folder)["alive"]
            left += host_units.stop_unit(folder, request.get("within_s", 60))
    # Also where the folder that names them was deleted.
    left = sorted({*left, *host_units.end_left(run, names)})
    with contextlib.suppress(OSError):
        secret_mask.end_masks(run)
    shutil.rmtree(run / "secrets", ignore_errors=True)
    shared_folder.forget(run)
    if request.get("forget"):
        (run / "claim.json").unlink(missing_ok=True)
    if request.get("remove") and not left:
        shutil.rmtree(run, ignore_errors=True)
    return {"stopped": was_alive, "left": left, "units": host_log_follow.unit_statuses(run)}


def op_kill(request: NodeRequest) -> dict[str, t.Any]:
    """Kill the target of a drill: ``worker`` (one rank), ``agent``, or ``host`` (all of the run here)."""
    from . import host_faults

    return host_faults.kill_target(_run_dir(request), str(request["target"]), request.get("rank"))


def op_cut(request: NodeRequest) -> dict[str, t.Any]:
    """Cut this node off its network for ``seconds`` (see host_faults.py); ``check``: only whether that is possible."""
    from . import host_faults

    return host_faults.cut_link(float(request["seconds"]), bool(request.get("check")))


def op_remove(request: NodeRequest) -> dict[str, t.Any]:
    """Remove a run's folder, unless the run is running."""
    run = _run_dir(request)
    if any(unit["alive"] for unit in host_log_follow.unit_statuses(run).values()):
        return {"problem": f"run {run.name} is running"}
    existed = run.exists()
    shutil.rmtree(run, ignore_errors=True)
    return {"removed": existed}


def op_examine(request: NodeRequest) -> dict[str, t.Any]:
    """Return what the ranks of a run are doing here right now (see diag_ranks.py); reads only."""
    from . import diag_ranks

    return diag_ranks.examine(_run_dir(request), request)


def op_stacks(request: NodeRequest) -> dict[str, t.Any]:
    """Return where the ranks of a run stand here (see diag_stacks.py); ``signals``: they will be stopped anyway."""
    from . import diag_ranks, diag_stacks

    ranks = diag_ranks.find_live_ranks(_run_dir(request))
    return diag_stacks.take_stacks(ranks, signals=bool(request.get("signals")))


def op_attach(request: NodeRequest) -> dict[str, t.Any]:
    """Return what ranks of jobs that others have started do here (see foreign_ranks.py); reads only."""
    from . import foreign_ranks

    return {"at": time.time(), "ranks": foreign_ranks.observe_ranks(float(request.get("window_s", 6.0)))}


def op_reach(request: NodeRequest) -> dict[str, t.Any]:
    """Return which addresses of other nodes answer, and tailscale's path to each (see host_reachability.py)."""
    from . import host_reachability

    results = host_reachability.check_addresses(request["targets"], float(request["seconds"]))
    return {"answers": results, "mesh": host_reachability.read_tailscale_paths(request.get("mesh", []))}


def op_read(request: NodeRequest) -> dict[str, t.Any]:
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


def op_environment(request: NodeRequest) -> dict[str, t.Any]:
    """Make the environment of a job's requirements (see host_environment.py)."""
    from . import host_environment

    return host_environment.answer(_state_dir(request), request)


def op_results(request: NodeRequest) -> dict[str, t.Any]:
    """List, read and remove what runs leave (see host_results.py)."""
    from . import host_results

    return host_results.answer(_state_dir(request), request)


def op_s3(request: NodeRequest) -> dict[str, t.Any]:
    """Carry out a step with an object store (see host_s3.py)."""
    from . import host_s3

    return host_s3.answer(request, _state_dir(request))


def _take_ownership(run: pathlib.Path, claim: t.Mapping[str, t.Any]) -> str | None:
    """Record the owner of the run; return a problem that names the owner when it is another controller."""
    owner_file = run / "claim.json"
    text = json.dumps({key: value for key, value in claim.items() if key != "take_over"}).encode()
    temporary = run / f".claim.{os.getpid()}"
    files.write_atomic(temporary, text)
    try:
        # A hard link is the only atomic "create unless it exists" that shows the full content at once.
        os.link(temporary, owner_file)
    except FileExistsError:
        holder = files.read_json(owner_file) or {}
        if holder.get("owner") != claim["owner"] and not claim.get("take_over"):
            return f"run {run.name} belongs to another controller ({holder.get('controller', 'unknown')})"
        os.replace(temporary, owner_file)
        return None
    finally:
        temporary.unlink(missing_ok=True)
    return None


def _place_files(run: pathlib.Path, request: NodeRequest) -> str | None:
    state = _state_dir(request)
    for tree in request.get("trees", []):
        target = run / tree["target"]
        host_blobs.place_tree(state, tree["manifest"], target, tree["link"])
    for name, text in request.get("files", {}).items():
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(path, text.encode())
    secrets = request.get("secrets") or {}
    if secrets:
        folder = files.private_dir(run / "secrets")
        files.write_json(folder / "env.json", secrets.get("env", {}))
        files.write_json(run / secret_mask.FILE, secrets.get("masks", []))
        for name, data in secrets.get("files", {}).items():
            files.write_atomic(folder / name, base64.b64decode(data))
    for folder_name in request.get("write", []):
        problem = host_preflight.try_write(pathlib.Path(folder_name).expanduser())
        if problem:
            return f"{folder_name} {problem}"
    return None


def _state_dir(request: NodeRequest) -> pathlib.Path:
    return files.state_root(request["node"], request.get("state_root"))


def _run_dir(request: NodeRequest) -> pathlib.Path:
    return _state_dir(request) / "runs" / str(request["run_id"])


def _tool_path() -> str:
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


_OPS: dict[str, t.Callable[[NodeRequest], dict[str, t.Any]]] = {
    "info": op_info,
    "put": op_put,
    "install": op_install,
    "prepare": op_prepare,
    "claim": op_take_over,
    "start": op_start,
    "watch": op_watch,
    "stop": op_stop,
    "kill": op_kill,
    "stacks": op_stacks,
    "attach": op_attach,
    "cut": op_cut,
    "examine": op_examine,
    "reach": op_reach,
    "read": op_read,
    "environment": op_environment,
    "results": op_results,
    "s3": op_s3,
    "remove": op_remove,
}
# Operations on the machine itself: each has a module of its own, with a function ``answer``.
_MODULES = {
    "k3s": ".host_k3s",
    "firewall": ".host_firewall",
    "mesh": ".host_mesh",
    "vxlan": ".host_vxlan",
    "notice": ".host_notice",
    "service": ".host_service",
    "volume": ".host_volume",
    "devices": ".facts_devices",
}

# Those whose answers have what programs printed.
_TELLING = frozenset(("watch", "read", "examine", "stacks"))
# EACCES, EPERM, EROFS
_UNWRITABLE = (13, 1, 30)
_STATE_ADVICE = (
    "The node keeps a run's state there: set muster_node_state to a folder of this node that this user may write, on a "
    "local disk"
)


def answer_request(request: NodeRequest) -> dict[str, t.Any]:
    """Carry out one request; an error of this node is returned as ``problem``, never as a traceback."""
    os.umask(0o077)
    try:
        if request["op"] in _MODULES:
            answer: dict[str, t.Any] = importlib.import_module(_MODULES[request["op"]], __package__).answer(request)
            return answer
        answer = _OPS[request["op"]](request)
        return secret_mask.mask_answer(_run_dir(request), answer) if request["op"] in _TELLING else answer
    except OSError as exc:
        problem = f"{exc.filename or 'node'}: {exc.strerror or exc}"
        return {"problem": f"{problem}. {_STATE_ADVICE}" if exc.errno in _UNWRITABLE else problem}


def main(argv: list[str]) -> int:
    """Entry of the installed copy: ``run.py`` answers standard input, ``run.py supervise SPEC`` supervises."""
    if argv[1:2] == ["supervise"]:
        from . import host_supervisor

        return host_supervisor.main(argv[2])
    request = json.loads(sys.stdin.buffer.readline())
    if request.get("body"):
        request["body"] = sys.stdin.buffer
    answer = answer_request(request)
    # The controller reads the answer when all is sent: what a failed operation has left is read to its end.
    while sys.stdin.buffer.read(_UNREAD_BYTES):
        pass
    print(MARK + json.dumps(answer))
    return 0
