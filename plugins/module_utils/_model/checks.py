# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check results and the preflight of a job: pure rules on the answers of the nodes."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .errors import RefusedError
from .job import Job
from .job_checkpoints import OTHER_RANKS, RANKS_FIX, loads_universal
from .node_report import InterpreterReport, NodeReport, PortProblem, SeenCheckpoint
from .validators import VERSION_RULE

MAX_SKEW_S = 60.0
_CLOCK: t.Final = "clock"
# A desktop and the driver itself take less of a GPU's memory than this share.
USED_SHARE = 0.1
_MIN_FREE = 64 << 20
_MAX_NAMES = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked. ``problem`` and ``fix`` are empty when ``ok``."""

    name: str
    ok: bool
    node: str | None = None
    value: t.Any = None
    expected: t.Any = None
    problem: str = ""
    fix: str = ""


def build_result(checks: t.Sequence[Check]) -> dict[str, t.Any]:
    """Return the check result: ``ok``, ``exit_code``, all checks, and the names of those that failed."""
    failures = [check.name for check in checks if not check.ok]
    return {
        "ok": not failures,
        "exit_code": 1 if failures else 0,
        "checks": [dataclasses.asdict(check) for check in checks],
        "failures": failures,
    }


def raise_first_failure(checks: t.Sequence[Check]) -> None:
    """Raise RefusedError for the first failed check."""
    failures = [check for check in checks if not check.ok]
    if failures:
        first = failures[0]
        where = f"{first.node}: " if first.node else ""
        raise RefusedError(f"{where}{first.problem}{_describe_others(first, failures[1:])}", first.fix)


def _describe_others(first: Check, others: t.Sequence[Check]) -> str:
    """Return which checks failed beside the first one: the same on which nodes, and how many others."""
    same = [str(check.node) for check in others if check.name == first.name and check.node]
    different = [check for check in others if check.name != first.name]
    parts = [f"the same on {', '.join(same[:_MAX_NAMES])}{'…' if len(same) > _MAX_NAMES else ''}"] if same else []
    if different:
        where = f"{different[0].node}: " if different[0].node else ""
        more = f", and {len(different) - 1} more checks" if len(different) > 1 else ""
        parts.append(f"also {where}{different[0].problem}{more}")
    return f" ({'; '.join(parts)})" if parts else ""


def check_gang(
    job: Job, reports: t.Mapping[str, NodeReport], skews: t.Mapping[str, float], run_id: str, owner: str
) -> list[Check]:
    """Return every check of a job on its nodes.

    :param reports: node name -> what it reports.
    :param skews: node name -> seconds that the node's clock is ahead of the controller's.
    """
    checks: list[Check] = []
    for name, report in reports.items():
        checks += [
            _check_clock(name, skews[name]),
            _check_state_folder(name, report),
            *_check_mounts(name, report),
            *_check_paths(name, report),
            *_check_ports(name, report),
        ]
        checks += [
            _check_interpreter(name, report),
            *_check_syntax(name, report),
            *_check_packages(job, name, report),
            *_check_tools(name, report),
            *_check_files(name, report),
        ]
        checks += [
            _check_idle(job, name, report, run_id),
            _check_owner(name, report, run_id, owner),
            _check_gpus(job, name, report),
            *_check_memory(job, name, report),
        ]
    checks += _check_checkpoint(job, reports)
    checks += [_check_same_version(package, reports) for package in _shared_packages(reports)]
    return checks


def check_node(name: str, report: NodeReport, skew: float) -> list[Check]:
    """Return the checks that hold for any job on a node."""
    return [
        _check_clock(name, skew),
        _check_state_folder(name, report),
        _check_interpreter(name, report),
        *_check_installed_packages(name, report),
    ]


def _check_installed_packages(node: str, report: NodeReport) -> list[Check]:
    training = report.training or InterpreterReport()
    checks = []
    for package, version in training.packages.items():
        problem = f"package {package} is not installed for {training.executable}"
        fix = "Run the bootstrap playbook, or install it in the interpreter that muster_training_python names"
        checks.append(_build_check(f"package_{package}", node, version is not None, version, "any", problem, fix))
    return checks


def find_clock_spread(results: t.Iterable[Check]) -> float:
    """Return how many seconds the clocks of the checked nodes are apart at most, 0 where none was read."""
    skews = [float(check.value) for check in results if check.name == _CLOCK and check.value is not None]
    return max(skews) - min(skews) if skews else 0.0


def _check_clock(node: str, skew: float) -> Check:
    return _build_check(
        _CLOCK,
        node,
        abs(skew) <= MAX_SKEW_S,
        round(skew, 1),
        f"within {MAX_SKEW_S:.0f} s",
        f"the clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the controller's",
        "Start time synchronisation on the node (timedatectl set-ntp true)",
    )


def _check_state_folder(node: str, report: NodeReport) -> Check:
    state, problem = report.state, report.state.problem
    if not problem and state.free_bytes < _MIN_FREE:
        problem = f"has only {state.free_bytes >> 20} MiB free"
    message = f"the state folder {state.path} {problem}"
    return _build_check(
        "state_folder",
        node,
        not problem,
        state.free_bytes,
        _MIN_FREE,
        message,
        "Set muster_node_state to a writable disk",
    )


def _check_mounts(node: str, report: NodeReport) -> list[Check]:
    fix = "Then bind it again (playbook services) where another file system is meant"
    return [
        _build_check("mount", node, not problem, path, "the shared file system", problem, fix)
        for path, problem in report.mounts.items()
    ]


def _check_paths(node: str, report: NodeReport) -> list[Check]:
    fix = "Name a folder on a disk with room in checkpoints.path"
    return [
        _build_check("path", node, not folder.problem, path, "writable", f"{path} {folder.problem}", fix)
        for path, folder in report.paths.items()
    ]


def _check_ports(node: str, report: NodeReport) -> list[Check]:
    running = report.is_running
    return [
        _build_check("port", node, running or not problem, port, "free", *_explain_port(port, problem))
        for port, problem in report.ports.items()
    ]


def _explain_port(port: str, problem: PortProblem | None) -> tuple[str, str]:
    """Return what is wrong and what to do."""
    if problem is None:
        return "", ""
    if problem.cause == "name":
        fix = "Set muster_address to an address of the node, or add the name to DNS or /etc/hosts there"
        return f"its address {problem.address} cannot be resolved on the node ({problem.reason})", fix
    if problem.cause == "address":
        fix = "Set muster_address to an address of the node that the other nodes can reach"
        return f"no interface of the node has its address {problem.address}", fix
    fix = "Another program uses the port: stop it, or choose another run id (muster_run_id)"
    return f"port {port} cannot be used: {problem.reason}", fix


def _check_interpreter(node: str, report: NodeReport) -> Check:
    training = report.training or InterpreterReport()
    problem = training.problem or ""
    fix = "Install it, or name the job's interpreter in job.python or the host variable muster_training_python"
    return _build_check("python", node, not problem, training.version, "runs", problem, fix)


def _check_syntax(node: str, report: NodeReport) -> list[Check]:
    """Return whether the job's interpreter on a node takes the script; nothing where it was not sent along."""
    if report.syntax is None:
        return []
    problem = report.syntax
    fix = "Correct the line; the node's Python may be older than the script needs"
    return [_build_check("syntax", node, not problem, problem or None, "compiles", f"job.script: {problem}", fix)]


def _check_packages(job: Job, node: str, report: NodeReport) -> list[Check]:
    training = report.training or InterpreterReport()
    checks = []
    for package, version in training.packages.items():
        wanted = job.requires.get(package, "")
        missing = f"package {package} is not installed for {training.executable}"
        problem = missing if version is None else f"{package} {version} does not satisfy {wanted}"
        ok = version is not None and satisfies(version, wanted)
        python = str(training.executable)
        fix = (
            "Name the interpreter that has it (host variable muster_training_python, python3 where it is not set; the "
            "bootstrap playbook makes one)"
        )
        if not python.startswith("/usr/bin/"):
            # Debian's and Ubuntu's own Python refuses to install packages.
            fix += f", or install it: {python} -m pip install '{package}{wanted}'"
        checks.append(_build_check(f"package_{package}", node, ok, version, wanted or "any", problem, fix))
    return checks


def _shared_packages(reports: t.Mapping[str, NodeReport]) -> list[str]:
    names = {name: None for report in reports.values() for name in report.packages}
    return list(names)


def _check_same_version(package: str, reports: t.Mapping[str, NodeReport]) -> Check:
    by_node = {node: report.packages.get(package) for node, report in reports.items()}
    # A build suffix such as +cu128 or +cpu is another build of the same release.
    versions = {str(version).partition("+")[0] for version in by_node.values() if version is not None}
    listing = ", ".join(f"{node} has {version}" for node, version in by_node.items())
    message = f"the nodes have different versions of {package}: {listing}"
    return _build_check(
        f"same_{package}",
        None,
        len(versions) <= 1,
        by_node,
        "equal",
        message,
        f"Install one version of {package} on all nodes",
    )


def _check_tools(node: str, report: NodeReport) -> list[Check]:
    return [
        _build_check(
            f"tool_{name}",
            node,
            bool(path),
            path,
            "installed",
            f"{name} is not installed",
            f"Install {name} on the node",
        )
        for name, path in report.tools.items()
    ]


def _check_files(node: str, report: NodeReport) -> list[Check]:
    return [
        _build_check(
            "file",
            node,
            readable,
            path,
            "readable",
            f"cannot read {path}",
            "Place it on every node, or send it with job.code",
        )
        for path, readable in report.files.items()
    ]


def _check_idle(job: Job, node: str, report: NodeReport, run_id: str) -> Check:
    others = [run for run in report.live_runs if run.run_id != run_id]
    conflicts = [run.run_id for run in others if job.gpus_per_node and run.gpus]
    message = f"run {', '.join(conflicts)} is using this node's GPUs"
    return _build_check(
        "idle",
        node,
        not conflicts,
        [run.run_id for run in others],
        "no other GPU job",
        message,
        "Wait for it, or cancel it",
    )


def _check_owner(node: str, report: NodeReport, run_id: str, owner: str) -> Check:
    claim = report.claim
    foreign = claim is not None and claim.owner != owner
    controller = claim.controller if claim else None
    message = f"run {run_id} belongs to another controller ({controller})"
    fix = "Follow or cancel it there, or take it over with muster_take_over: true"
    return _build_check("owner", node, not foreign, controller, "this controller", message, fix)


def _check_memory(job: Job, node: str, report: NodeReport) -> list[Check]:
    """Without systemd a limit per process is all there is, and CUDA reserves more address space than it uses."""
    if job.resources.memory is None:
        return []
    problem = "resources.memory cannot be enforced for a job with GPUs: the node runs no systemd that would limit it"
    fix = "Leave resources.memory out, or let systemd run there (for a user without root: loginctl enable-linger)"
    is_limited = report.manager != "detached" or not job.gpus_per_node
    return [_build_check("memory", node, is_limited, report.manager, "systemd", problem, fix)]


def _check_checkpoint(job: Job, reports: t.Mapping[str, NodeReport]) -> list[Check]:
    """Of a shared folder one node must see a checkpoint; with a part per node each needs its own.

    Where none is required, one that is there has to be one that so many ranks can load.
    """
    if job.checkpoints.resume == "never" or job.checkpoints.binding:
        # With a binding it is looked for in the bucket too.
        return []
    found = {name: report.checkpoint for name, report in reports.items() if report.checkpoint}
    if any(report.is_running for report in reports.values()):
        return []
    if job.checkpoints.resume != "required":
        # In its own folder a node has a part, of which the number of ranks cannot be told.
        return _check_ranks_of_checkpoint(job, found) if job.checkpoints.shared else []
    if job.checkpoints.shared and any(item.name for item in found.values()):
        return _check_ranks_of_checkpoint(job, found)
    fix = "Set checkpoints.resume: auto to start from the beginning, or name the run (muster_run_id) that saved one"
    return [
        _build_check(
            "checkpoint",
            name,
            item.name is not None,
            item.name,
            "complete",
            f"checkpoints.resume is required, and {item.folder} has no complete checkpoint"
            + (f": {item.half_saved}" if item.half_saved else ""),
            fix,
        )
        for name, item in found.items()
    ]


def describe_torn(job: Job, reports: t.Mapping[str, NodeReport]) -> list[str]:
    """Return why the checkpoints that are there do not count, where a run therefore begins anew."""
    found = [report.checkpoint for report in reports.values() if report.checkpoint]
    if job.checkpoints.resume != "auto" or job.checkpoints.binding or any(item.name for item in found):
        return []
    torn = dict.fromkeys(
        f"{item.folder} has no complete checkpoint: {item.half_saved}" for item in found if item.half_saved
    )
    return [f"{text}. The program begins anew; checkpoints.resume: required refuses that" for text in torn]


def _check_ranks_of_checkpoint(job: Job, found: t.Mapping[str, SeenCheckpoint]) -> list[Check]:
    """Each rank loads a part of its own: a checkpoint of DeepSpeed's ZeRO is for as many ranks as saved it."""
    if loads_universal(job):
        return []
    fix = RANKS_FIX
    fix += "" if job.checkpoints.resume == "required" else "; to begin anew, set checkpoints.resume: never"
    return [
        _build_check(
            "checkpoint",
            name,
            item.world_size in job.world_sizes,
            item.world_size,
            job.world_size,
            OTHER_RANKS.format(name=item.name, folder=item.folder, saved_by=item.world_size, asked=job.world_size),
            fix,
        )
        for name, item in found.items()
        if item.name and item.world_size
    ]


def _check_gpus(job: Job, node: str, report: NodeReport) -> Check:
    if not job.gpus_per_node:
        return _build_check("gpus", node, True, None, 0, "", "")
    gpu = report.facts.get("gpu") or {}
    count = gpu.get("count") or 0
    # A driver that fails cannot run what the bus or the device files show.
    said = [str(item) for item in report.facts.get("problems") or ()]
    silent = not any(device.get("uuid") for device in gpu.get("devices") or ())
    problem = next(
        (item for item in said if silent and item.startswith(("nvidia-smi failed", "nvidia-smi did not"))), ""
    )
    if not problem and count < job.gpus_per_node:
        why = [item for item in said if item.startswith(("gpu: ", "gpu/")) and "PCIe runs at" not in item]
        reason = f" ({'; '.join(why)})" if why else ""
        problem = f"{count} GPUs were found, {job.gpus_per_node} are needed{reason}"
    model, memory = str(gpu.get("model") or ""), gpu.get("memory_gib") or 0
    if not problem and job.gpu.model and job.gpu.model.lower() not in model.lower():
        problem = f"the GPUs are {model or 'of unknown model'}, not {job.gpu.model}"
    if not problem and job.gpu.memory_gib_min and memory < job.gpu.memory_gib_min:
        problem = f"the GPUs have {memory} GiB, {job.gpu.memory_gib_min} are needed"
    return _build_check(
        "gpus",
        node,
        not problem,
        count,
        job.gpus_per_node,
        problem,
        "Check nvidia-smi on the node, or ask for fewer GPUs",
    )


def satisfies(version: str, wanted: str) -> bool:
    """Return whether ``version`` meets ``wanted``: comma-separated parts such as ``>=2.1``."""
    numbers = _parse_version(version)
    for part in filter(None, (item.strip() for item in wanted.split(","))):
        match = VERSION_RULE.match(part)
        if not match:
            return False
        operator, limit = match.group(1), _parse_version(match.group(2))
        width = max(len(numbers), len(limit))
        left, right = (item + (0,) * (width - len(item)) for item in (numbers, limit))
        outcome = {">=": left >= right, "==": left == right, "<=": left <= right, "<": left < right, ">": left > right}
        if not outcome.get(operator, left != right):
            return False
    return True


def _parse_version(version: str) -> tuple[int, ...]:
    match = re.match(r"[0-9]+(\.[0-9]+)*", version.split("+")[0])
    return tuple(int(number) for number in match.group(0).split(".")) if match else (0,)


def _build_check(name: str, node: str | None, ok: bool, value: t.Any, expected: t.Any, problem: str, fix: str) -> Check:
    return Check(name, ok, node, value, expected, "" if ok else problem, "" if ok else fix)


def describe_used_gpus(job: Job, reports: t.Mapping[str, NodeReport]) -> list[str]:
    """Return a warning for each node whose GPUs' memory others use before a job with GPUs starts there.

    It may be what a killed program left, which ends the job with "CUDA out of memory", or a program that may stay.
    """
    return [line for name, report in reports.items() if job.gpus_per_node and (line := _describe_used(name, report))]


def _describe_used(node: str, report: NodeReport) -> str:
    devices = (report.facts.get("gpu") or {}).get("devices") or []
    used = [
        f"GPU {number} ({device['memory_used_gib']} of {device['memory_gib']} GiB)"
        for number, device in enumerate(devices)
        if (device.get("memory_used_gib") or 0) > USED_SHARE * (device.get("memory_gib") or float("inf"))
    ]
    shown = f"{', '.join(used[:_MAX_NAMES])}{'…' if len(used) > _MAX_NAMES else ''}"
    return f"{node}: another program uses the memory of {shown}. nvidia-smi shows which" if used else ""
