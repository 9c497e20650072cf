# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests of an acceptance: each runs what it needs through the workflows of users' jobs, and judges it."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import pathlib
import typing as t

from ....module_utils._model import acceptance
from ....module_utils._model.acceptance import AcceptancePart
from ....module_utils._model.errors import InputError, MusterError, RefusedError
from ....module_utils._model.job import Job, parse_job
from ....module_utils._model.job_backends import ENGINE_LAUNCHERS, choose_backend
from ....module_utils._model.job_templates import PRESETS
from ....module_utils._model.verdict import OUTCOMES, worst_outcome
from ....module_utils._node import files
from ..._fabric.bench import scaling as rules
from ..._fabric.verdict.scaling import judge_scaling
from ..._hosts.node_client import most_telling_error, on_each_node
from ..._kube.api.client import Client
from .. import gpu_verify
from ..fabric_verify import run as fabric_verify
from ..fabric_verify.bench_group import SilentProgress
from ..shared import kube_connection
from ..shared.request import RunRequest
from ..shared.state_dir import StateHome, read_record
from ..training_job import run as training_job
from ..training_job.hosts import plan as hosts_plan

ROOT = pathlib.Path(__file__).parents[4]
FILES = ROOT / "roles" / "fleet_acceptance" / "files"
# The cluster name under which the runs of acceptances are stored as evidence.
CLUSTER = "acceptance"
# What the tests take from the user's job: its image, placement and resources.
_SHARED_KEYS = (
    "image",
    "placement",
    "python",
    "env",
    "mounts",
    "resources",
    "gpu",
    "gpus_per_node",
    "processes_per_node",
)
_STEPS, _INTERVAL, _KILL_AT = 160, 20, 50
_GANG_S = 15
# With the time in which the image is pulled.
_GPU_S = 600
_ENGINES_WITHOUT_TORCHRUN = tuple(
    engine for engine, launchers in ENGINE_LAUNCHERS.items() if "torchrun" not in launchers
)
_NO_RESTART = {"max_crashes": 0, "max_lost_nodes": 0, "on_lost_node": "fail"}


@dataclasses.dataclass
class FleetUnderTest:
    """The fleet to accept: the request, the shared keys of the job, the hosts, the measurements so far."""

    request: RunRequest
    home: StateHome
    identity: str
    backend: str
    job: dict[str, t.Any]
    hosts: list[str]
    nodes: int
    loopback: bool = False
    changed: bool = False
    points: list[rules.ScalingPoint] = dataclasses.field(default_factory=list)

    @property
    def sizes(self) -> list[int]:
        """Return the numbers of nodes to measure."""
        return rules.node_counts(self.nodes)

    @property
    def on_kubernetes(self) -> bool:
        """Return whether the fleet is a cluster."""
        return self.backend == "kubernetes"


def build_fleet(request: RunRequest, home: StateHome, identity: str) -> FleetUnderTest:
    """Return the fleet of the options.

    :raises InputError: when a cluster's number of nodes is not given.
    """
    given = request.options.get("job") or {}
    placement = given.get("placement") or {}
    if not isinstance(given, dict) or not isinstance(placement, dict):
        raise InputError("job", "must be a mapping")
    if (placement.get("backend") or "auto") == "auto":
        choice = choose_backend(bool(given.get("image")), request.surroundings)
        placement = {**placement, "backend": choice.backend}
        given = {**given, "placement": placement}
    nodes = request.options.get("nodes")
    if nodes is not None and nodes < 1:
        raise InputError("nodes", f"must be at least 1, not {nodes}")
    _validate_job(given, request.options.get("resume_job") or {}, nodes or 1)
    # The verdict on the network is the fabric test's; a slow network must not prevent the other tests.
    job = _select_shared_keys(given) | {"placement": {**placement, "allow_slow_network": True}}
    if placement.get("backend") == "kubernetes":
        return _build_cluster_fleet(FleetUnderTest(request, home, identity, "kubernetes", job, [], 0), nodes)
    return _build_hosts_fleet(FleetUnderTest(request, home, identity, "hosts", job, [], 0), nodes)


def _select_shared_keys(given: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return what the tests take from the user's job; of its secrets only the registry's, for pulling images."""
    registry = [ref for ref in given.get("secret_refs") or [] if isinstance(ref, dict) and ref.get("as") == "registry"]
    shared = {key: given[key] for key in _SHARED_KEYS if given.get(key) is not None}
    return shared | ({"secret_refs": registry} if registry else {})


def _build_cluster_fleet(fleet: FleetUnderTest, nodes: int | None) -> FleetUnderTest:
    nodes = nodes or fleet.request.options["job"].get("nodes")
    if not nodes:
        raise InputError("nodes", "is required on Kubernetes", "Say how many nodes the fleet has")
    if fleet.job["placement"].get("engine") in _ENGINES_WITHOUT_TORCHRUN:
        # The tests run torchrun and plain commands, whichever launcher the user's job has.
        del fleet.job["placement"]["engine"]
    fleet.nodes = int(nodes)
    return fleet


def _build_hosts_fleet(fleet: FleetUnderTest, nodes: int | None) -> FleetUnderTest:
    request = fleet.request
    names = list(request.hosts)[:nodes]
    if not names:
        raise RefusedError("the play has no hosts to accept", "Name an inventory with -i, or other hosts")
    hosts = hosts_plan.select_hosts(names, request.hostvars, Job(name="acceptance", nodes=len(names)))
    fleet.hosts, fleet.nodes = names, len(names)
    fleet.loopback = len(names) > 1 and hosts_plan.network_lane(hosts) == "loopback"
    fleet.job.setdefault("gpus_per_node", 0 if request.check else _count_gpus(request, names))
    return fleet


def _validate_job(user_job: dict[str, t.Any], resume_job: dict[str, t.Any], nodes: int) -> None:
    """Refuse unknown keys and invalid values of a job: the fleet would be accepted for another job.

    :raises InputError: naming them.
    """
    job = {key: value for key, value in user_job.items() if key != "template" or value in PRESETS}
    if not any(job.get(key) for key in ("script", "module", "command", "template")):
        # The user's program is not run here, but the launcher decides which other keys are valid.
        job |= {"command": ["true"]} if job.get("launcher") == "command" else {"script": "/train.py"}
        engine = (job.get("placement") or {}).get("engine")
        if engine in _ENGINES_WITHOUT_TORCHRUN:
            job.setdefault("launcher", ENGINE_LAUNCHERS[engine][0])
    parse_job({"name": "acceptance", "nodes": nodes, **job}, PRESETS)
    if resume_job:
        shared = {key: value for key, value in user_job.items() if key in _SHARED_KEYS}
        parse_job({"nodes": nodes, **shared, **resume_job, "name": "acceptance"}, PRESETS)


def verify_gpus(fleet: FleetUnderTest) -> AcceptancePart:
    """Have a short pod on every node of a cluster list the GPUs that it got."""
    if not fleet.on_kubernetes or not fleet.job.get("gpus_per_node"):
        return AcceptancePart("gpus", "not_applicable", "no job of it gets GPUs from a cluster")
    options = {
        **{key: fleet.request.options.get(key) for key in ("kubeconfig", "context", "state_home", "cluster")},
        "image": fleet.job.get("image"),
        "namespace": fleet.job["placement"].get("namespace") or "kube-system",
        "timeout_s": _GPU_S,
        "allow_unproven": True,
    }
    result = gpu_verify.run(options, fleet.request.base, False, fleet.request.progress.say)
    entries = result["nodes"]
    proven = sum(item["outcome"] == "pass" for item in entries)
    lines = [line for line, item in zip(result["table"], entries, strict=True) if item["outcome"] != "pass"]
    outcome = worst_outcome([item["outcome"] for item in entries])
    summary = f"pods got the devices of {proven} of {len(entries)} nodes"
    return AcceptancePart("gpus", outcome, summary, tuple(lines), {"nodes": entries})


def verify_fabric(fleet: FleetUnderTest) -> AcceptancePart:
    """Verify the fabric; the verdicts are those of ``fabric_verify``."""
    options = {
        **fleet.request.options,
        "backend": None,
        "collective": "all_reduce",
        "seconds": 0.6,
        "timeout_s": 60.0,
        "bench": "torch",
        "nccl_tests": None,
        "idle_only": False,
        "allow_unproven": True,
        "python": None,
        "job": {**fleet.job, "nodes": fleet.nodes} if fleet.on_kubernetes else None,
    }
    result = fabric_verify.run(dataclasses.replace(fleet.request, options=options, hosts=fleet.hosts))
    islands = [item for item in result["fabric"]["islands"] if _belongs_to(item, fleet)]
    outcomes = [item["outcome"] for item in islands if item.get("outcome") in OUTCOMES]
    if not result["fabric"]["islands"] and result["exit_code"] == 0:
        # One node with one rank.
        outcomes = ["pass"]
    _choose_island(fleet, islands)
    # On a cluster the verdicts become labels of the nodes.
    fleet.changed = bool(result.get("changed"))
    lines = [str(line) for line in result["table"]]
    values = {"islands": islands, "file": result.get("file")}
    return AcceptancePart(
        "fabric", worst_outcome(outcomes), "; ".join(lines) or "no island was found", tuple(lines[1:]), values
    )


def _belongs_to(entry: t.Mapping[str, t.Any], fleet: FleetUnderTest) -> bool:
    return fleet.on_kubernetes or bool(set(entry.get("nodes") or []) & set(fleet.hosts))


def _choose_island(fleet: FleetUnderTest, islands: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Let the other tests run on the largest island: a synchronous job does not cross two."""
    largest = max((list(item.get("nodes") or []) for item in islands), key=len, default=[])
    if fleet.on_kubernetes or not largest or len(islands) < 2:
        return
    fleet.request.progress.say(f"  the other tests run on the largest island ({len(largest)} nodes)")
    fleet.hosts = [name for name in fleet.hosts if name in largest]
    fleet.nodes = len(fleet.hosts)


def measure_scaling(fleet: FleetUnderTest) -> AcceptancePart:
    """Measure training steps at a fixed batch per rank on 1, 2, 4, 8 … nodes."""
    problems, shared = [], []
    for nodes in fleet.sizes:
        try:
            point = _measure_size(fleet, nodes)
        except MusterError as exc:
            problems.append(f"{nodes} nodes: {exc}")
            continue
        fleet.points.append(point)
        if point.nodes != nodes:
            shared.append(f"{nodes} pods ran on {point.nodes} nodes: request so much that only one pod fits on a node")
        milliseconds = point.step_s * 1e3
        fleet.request.progress.say(
            f"  {nodes} nodes: {point.samples_per_s:.4g} samples/s, {milliseconds:.3g} ms a step"
        )
    options = fleet.request.options
    judgement = judge_scaling(fleet.points, options["efficiency_pass"], options["efficiency_fail"])
    values = {"points": list(judgement.rows), "device": fleet.points[0].device if fleet.points else None}
    if problems:
        return AcceptancePart(
            "scaling", "fail", "a size could not be measured", (*problems, *judgement.reasons), values
        )
    if shared:
        summary = "pods shared nodes: the network between nodes was not measured"
        return AcceptancePart("scaling", "unproven", summary, (*shared, *judgement.reasons), values)
    if fleet.nodes == 1:
        return AcceptancePart("scaling", "not_applicable", judgement.summary, (), values)
    if fleet.loopback:
        # Several "nodes" on one machine show nothing about a network.
        reason = "all nodes are on the loopback of one machine: no network was measured"
        return AcceptancePart("scaling", "unproven", judgement.summary, (reason, *judgement.reasons), values)
    return AcceptancePart("scaling", judgement.outcome, judgement.summary, judgement.reasons, values)


def _measure_size(
    fleet: FleetUnderTest, nodes: int, placement: dict[str, t.Any] | None = None, **options: t.Any
) -> rules.ScalingPoint:
    seconds = float(fleet.request.options["seconds"])
    job = {
        **fleet.job,
        **({"placement": placement} if placement else {}),
        "name": "accept-scaling",
        "nodes": nodes,
        "code": {"from": "path", "ref": str(FILES)},
        "script": "scaling_bench.py",
        "args": ["--seconds", str(seconds), *fleet.request.options["bench_args"]],
        "restart": _NO_RESTART,
        "checkpoints": {"grace_s": 1},
        "timeout_s": int(20 * seconds) + 300,
    }
    suffix = f"user-n{nodes}" if options else f"n{nodes}"
    folder, _unused = _run_job(fleet, job, suffix, **options)
    document = None
    for line in files.parse_json_lines((folder / "metrics.jsonl").read_text(errors="replace")):
        document = line.get("acceptance") or document
    if document is None:
        raise MusterError("the benchmark did not write a result", f"See the logs in {folder}")
    return rules.read_point(document)


def _run_job(
    fleet: FleetUnderTest, job: dict[str, t.Any], suffix: str, **options: t.Any
) -> tuple[pathlib.Path, dict[str, t.Any]]:
    """Run a job to its end and return its folder and record.

    :raises MusterError: when it did not succeed.
    """
    request = fleet.request
    identity = f"{fleet.identity}-{suffix}"
    inner = {
        **{key: request.options.get(key) for key in ("kubeconfig", "context", "state_home")},
        "cluster": CLUSTER,
        "job": job,
        "run_id": identity,
        "state": "present",
        "wait": True,
        "take_over": False,
        "drill": None,
        "template_paths": [],
        **options,
    }
    run_request = dataclasses.replace(request, options=inner, hosts=fleet.hosts, progress=SilentProgress())
    result = training_job.run(run_request)
    folder = StateHome(request.options["state_home"], CLUSTER).run_folder(identity)
    if result.get("failed"):
        raise MusterError(str(result.get("msg")))
    return folder, read_record(folder) or {}


def check_queue(fleet: FleetUnderTest) -> AcceptancePart:
    """Submit two gangs where one fits (Kueue)."""
    if not fleet.on_kubernetes:
        return AcceptancePart(
            "queue", "not_applicable", "plain hosts have no queue: a run gets its hosts or is refused"
        )
    nodes = int(fleet.request.options.get("queue_nodes") or fleet.nodes)
    sleep = ["sh", "-c", f"sleep {_GANG_S}"]
    job = {**fleet.job, "name": "accept-queue", "nodes": nodes, "launcher": "command", "command": sleep}
    job |= {"restart": _NO_RESTART, "processes_per_node": 1, "timeout_s": 600}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(_run_job, fleet, job, f"gang-{name}") for name in "ab"]
        records = [future.result()[1] for future in futures]
    return acceptance.judge_queue(*records)


def check_user_rights(fleet: FleetUnderTest) -> AcceptancePart:
    """Launch a job with the rights of a plain user."""
    if not fleet.on_kubernetes:
        points = fleet.points or [_measure_size(fleet, 1)]
        return acceptance.judge_user_ids((rank.node, rank.uid) for item in points for rank in item.per_rank)
    kubeconfig = fleet.request.options.get("user_kubeconfig")
    if not kubeconfig:
        fix = "Set user_kubeconfig; the role team creates one"
        return AcceptancePart("user", "unproven", "user_kubeconfig is not set", (fix,))
    own = {"kubeconfig": kubeconfig, "context": None}
    rights = find_excess_rights(kube_connection.open_client(own, fleet.request.base))
    if rights:
        reason = f"it may {', '.join(rights)}"
        return AcceptancePart("user", "fail", "user_kubeconfig has more rights than a plain user", (reason,))
    # The context is the one of the plain user's kubeconfig.
    placement = {key: value for key, value in fleet.job["placement"].items() if key != "cluster"}
    point = _measure_size(fleet, 1, placement, **own)
    return AcceptancePart("user", "pass", f"a job of {point.ranks} ranks ran with the rights of a plain user")


_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
# What a plain user may not do on any cluster: (verb, group, resource), in all namespaces.
_NOT_PLAIN = (
    ("*", "*", "*"),
    ("list", "", "secrets"),
    ("create", "", "namespaces"),
    ("patch", "kueue.x-k8s.io", "clusterqueues"),
)


def find_excess_rights(client: Client) -> list[str]:
    """Return what the client may do that a plain user may not, by the API server's answer."""
    excess = []
    for verb, group, resource in _NOT_PLAIN:
        attributes = {"verb": verb, "group": group, "resource": resource}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = kube_connection.post_review(
            client, "rights of the plain user", _REVIEWS, {**review, "spec": {"resourceAttributes": attributes}}
        )
        if (answer.get("status") or {}).get("allowed"):
            excess.append(f"{verb} {resource} everywhere")
    return excess


def check_resume(fleet: FleetUnderTest) -> AcceptancePart:
    """Kill an agent with its ranks in a training run and see it resume."""
    options = fleet.request.options
    user_job = options.get("resume_job") or {}
    own: dict[str, t.Any] = {
        "template": "pytorch_ddp",
        "code": {"from": "path", "ref": str(ROOT / "examples" / "char_lm")},
        "script": "train.py",
        "args": [
            *("--steps", str(_STEPS), "--checkpoint-every", str(_INTERVAL), "--batch-size", "8"),
            *("--step-time-min", "0.05", "--data", "{run_dir}/data/text/LICENSE"),
        ],
        "datasets": [{"name": "text", "path": str(ROOT / "LICENSE")}],
        "checkpoints": {"interval_steps": _INTERVAL, "grace_s": 10, **_checkpoint_path(options)},
        "nodes": fleet.nodes,
    }
    job = {**fleet.job, **(user_job or own), "name": "accept-resume"}
    drill = {"target": "agent", "at_step": int(options["kill_at_step"] or _KILL_AT)}
    _unused, record = _run_job(fleet, job, "resume", drill=drill)
    return acceptance.judge_resume(record)


def _checkpoint_path(options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    checkpoints = (options.get("job") or {}).get("checkpoints") or {}
    return {"path": checkpoints["path"]} if checkpoints.get("path") else {}


def _count_gpus(request: RunRequest, names: t.Sequence[str]) -> int:
    """Return the smallest number of GPUs of a host."""
    remotes = request.connect(names)
    answers, errors = on_each_node(remotes, lambda remote: remote.call("info", facts=True)["facts"])
    if errors:
        raise most_telling_error(errors)
    return min(int((facts.get("gpu") or {}).get("count") or 0) for facts in answers.values())
