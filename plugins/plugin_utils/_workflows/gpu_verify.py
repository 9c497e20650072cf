# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proves in a short pod on every node that pods get its GPUs and HCAs (``gpu_verify``)."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import secrets
import sys
import time
import typing as t
from collections.abc import Mapping, Sequence

from ...module_utils._model import gpu_proof, validators
from ...module_utils._model.checks import build_result
from ...module_utils._model.errors import MusterError, RefusedError
from ...module_utils._model.gpu_proof import PluginPod, ProvedNode
from ...module_utils._model.gpu_stack_plan import CLAIMED_API, GPU, describe_sharing
from ...module_utils._model.rdma_resources import FACTS, list_resources, needs_node_network, read_annotation
from ...module_utils._node import files
from .._kube.api.client import Client
from .._kube.api.kinds import KubeObject
from .._kube.jobs import visit_job
from .._kube.nodes import gpu_claims
from .._kube.nodes.capacity import takes_jobs
from .._kube.nodes.gpu_owners import is_gpu_driver
from .._kube.objects import events
from .._kube.placement.node_fit import gpu_count, gpu_requests, has_ended
from .device_stacks.gpu_stack_info import read_gpu_facts
from .shared.kube_connection import ReportLine, open_client
from .shared.pod_visits import list_ranges, read_log, run_jobs
from .shared.state_dir import StateHome

FILE: t.Final = "gpus.json"
_LOOK_S: t.Final = 2.0


def run(options: Mapping[str, t.Any], base: pathlib.Path, check: bool, tell: ReportLine) -> dict[str, t.Any]:
    """Return the result of ``gpu_verify``; a failed one where pods of a node do not get its devices."""
    client = open_client(options, base, tell)
    facts = {name: gpu.count for name, gpu in read_gpu_facts(options.get("records") or ()).items()}
    only = [str(name).lower() for name in options.get("nodes") or ()]
    if options.get("ready_s") and not check:
        wait_offered(client, {name: facts.get(name) or 1 for name in only}, float(options["ready_s"]))
    found = _read_nodes(client, facts, bool(options.get("cordoned")))
    # A node that is named and offers nothing is not proven.
    nodes = [node for node in found if (node.node in only if only else node.has_gpus or node.has_hcas)]
    _require_nodes(only, nodes)
    home = StateHome(options["state_home"], str(options["cluster"]))
    before = files.read_json(home.folder / FILE)
    proven = find_proven(before, nodes, int(options.get("max_age_s") or 0))
    nodes = [node for node in nodes if node.node not in proven]
    if proven:
        tell(f"{', '.join(sorted(proven))}: not tested again, proven lately (max_age_s)")
    if check:
        names = ", ".join(node.node for node in nodes)
        tell(
            f"a pod would be run on {names}; nothing was started"
            if names
            else "no pod would be run"
            if proven
            else "no node offers GPUs: nothing would be run"
        )
        return {
            "changed": False,
            "nodes": [{"node": node.node} for node in nodes],
            "checks": [],
            "ok": None,
            "file": None,
        }
    if nodes and not options.get("image"):
        raise RefusedError(
            "image: no image is named that a pod could run", "Name one with sh in it (muster_job.image, or image)"
        )
    proved = prove_nodes(client, nodes, options)
    result = build_verdict(proved)
    if proven:
        result = _keep_others(before, result, proven)
    place = files.private_dir(home.folder) / FILE
    files.write_json(place, _keep_others(before, result) if only else result)
    return {"changed": False, "file": str(place), **result, **_describe_failure(result, options)}


def wait_offered(client: Client, wanted: Mapping[str, int], limit_s: float) -> None:
    """Wait until nodes (name -> count) offer so many GPUs, for a limited time: a plugin registers after a boot."""
    up_s = client.transport.stats.up_s
    end, missing = up_s() + limit_s, dict(wanted)
    # What a driver of DRA offers is not on the Node, and comes without an event of it.
    claimed = client.catalog.serves(CLAIMED_API)
    with client.watch("v1/Node", None) as stream:
        while missing and (left := end - up_s()) > 0:
            event = stream.next(min(left, _LOOK_S) if claimed else left)
            nodes = [event.object] if event and event.object else client.list("v1/Node").items if claimed else []
            for node in gpu_claims.show_offered(client, nodes):
                name = str(node["metadata"]["name"])
                if gpu_count(node) >= missing.get(name, sys.maxsize) and _is_ready(node):
                    del missing[name]


def prove_nodes(client: Client, nodes: Sequence[ProvedNode], options: Mapping[str, t.Any]) -> list[ProvedNode]:
    """Run a pod on each node that can be tested; return the nodes with what it saw, or why it did not run."""
    able = [node for node in nodes if node.is_testable]
    if not able:
        return list(nodes)
    namespace, limit_s = str(options["namespace"]), int(options["timeout_s"])
    test = visit_job.DeviceTest(
        f"muster-gpus-{secrets.token_hex(3)}",
        namespace,
        str(options["image"]),
        gpu_proof.SCRIPT,
        # The cluster ends them too, should nothing wait for them any more.
        limit_s + 60,
        str(options.get("runtime_class") or ""),
        tuple(options.get("pull_secrets") or ()),
        list_ranges(client, namespace),
        bool(options.get("cordoned")),
        next((node.device_class for node in able if node.device_class), None),
    )
    counts = {node.node: {GPU: node.free, node.rdma: int(bool(node.rdma))} for node in able}
    devices = {name: {key: count for key, count in asked.items() if count} for name, asked in counts.items()}
    jobs = {node.node: test.job_name(index) for index, node in enumerate(able)}

    def read(_node: str, pod: KubeObject) -> dict[str, t.Any]:
        refused = (pod.get("status") or {}).get("message")
        if refused and not (pod.get("status") or {}).get("containerStatuses"):
            return {"problem": f"{(pod.get('status') or {}).get('reason')}: {refused}"}
        parts = {"seen": visit_job.WITH_DEVICES, "bare": visit_job.WITHOUT}
        seen = {
            key: gpu_proof.parse_seen(read_log(client, namespace, pod, container)) for key, container in parts.items()
        }
        cause = None if seen["seen"].complete else events.find_pod_problem(pod)
        return {**seen, **({"problem": cause.text} if cause else {})}

    # Of a network (SR-IOV) the test gets the device alone, without an interface.
    shared = {node.node for node in able if needs_node_network(node.rdma)}
    objects = visit_job.build_device_tests(test, devices, shared)
    answers, errors = run_jobs(client, namespace, objects, test.selector, jobs, read, limit_s)
    return [_add_answer(node, answers.get(node.node), errors.get(node.node)) for node in nodes]


def find_proven(before: t.Any, nodes: Sequence[ProvedNode], max_age_s: int) -> set[str]:
    """Return the nodes that a pod has proven no longer ago, and that are what they were then.

    :param before: what the file says.
    """
    known = before if isinstance(before, dict) else {}
    entries = {entry["node"]: entry for entry in known.get("nodes") or () if entry["outcome"] == "pass"}
    least = time.time() - max_age_s
    return {
        node.node
        for node in nodes
        if not node.closed
        and (entry := entries.get(node.node))
        and entry.get("tested_at", 0) > least
        and entry.get("basis") == node.basis
    }


def build_verdict(nodes: Sequence[ProvedNode]) -> dict[str, t.Any]:
    """Return the check result with one entry for each node; what is not proven does not pass."""
    entries = []
    for node in nodes:
        findings = gpu_proof.judge_node(node)
        entries.append(
            {
                "node": node.node,
                "outcome": gpu_proof.find_outcome(findings),
                "gpus": {"facts": node.expected, "offered": node.offered, "used": node.used, "tested": node.free},
                "rdma": {"resource": node.rdma or None, "hcas": node.hcas},
                "seen": validators.plain_value(node.seen) if node.seen else None,
                "basis": node.basis,
                "tested_at": int(time.time()),
                "problems": [dataclasses.asdict(item) for item in findings],
            }
        )
    return {
        "schema": 1,
        "nodes": entries,
        "table": [_describe_entry(entry) for entry in entries],
        "warnings_of_nodes": [line for node in nodes for line in gpu_proof.list_warnings(node)],
        **build_result(gpu_proof.build_checks(nodes)),
    }


def _describe_entry(entry: Mapping[str, t.Any]) -> str:
    parts = [f"{entry['gpus']['tested']} GPUs"] if entry["gpus"]["tested"] else []
    # Files of an earlier version have no such part.
    resource = (entry.get("rdma") or {}).get("resource")
    parts += [str(resource)] if resource else []
    said = "; ".join(item["problem"] for item in entry["problems"]) or f"a pod got {' and '.join(parts)}"
    return f"{entry['node']}: {str(entry['outcome']).upper()} · {said}"


def _describe_failure(result: Mapping[str, t.Any], options: Mapping[str, t.Any]) -> dict[str, t.Any]:
    wrong = [
        f"{entry['node']}: {item['problem']}. {item['fix']}"
        for entry in result["nodes"]
        for item in entry["problems"]
        if item["outcome"] == "fail" or not options["allow_unproven"]
    ]
    return {"failed": True, "msg": f"pods do not get their devices: {'; '.join(wrong)}"} if wrong else {}


def _keep_others(before: t.Any, result: Mapping[str, t.Any], only: t.Collection[str] | None = None) -> dict[str, t.Any]:
    """Return the result for some nodes with what the file says of others, or of ``only`` these."""
    tested = {entry["node"] for entry in result["nodes"]}
    known = before if isinstance(before, dict) and before.get("schema") == result["schema"] else {}

    def keep(part: str) -> list[t.Any]:
        old = [item for item in known.get(part) or () if item["node"] not in tested]
        return [*(item for item in old if only is None or item["node"] in only), *result[part]]

    nodes, checks = keep("nodes"), keep("checks")
    failures = [item["name"] for item in checks if not item["ok"]]
    return {
        **result,
        "nodes": nodes,
        "table": [_describe_entry(entry) for entry in nodes],
        "checks": checks,
        "failures": failures,
        "ok": not failures,
        "exit_code": 1 if failures else 0,
    }


def _require_nodes(names: Sequence[str], nodes: Sequence[ProvedNode]) -> None:
    missing = sorted(set(names) - {node.node for node in nodes})
    if missing:
        raise RefusedError(f"{missing[0]} is not a Node of the cluster", "Compare the names with kubectl get nodes")


def _add_answer(node: ProvedNode, answer: Mapping[str, t.Any] | None, error: MusterError | None) -> ProvedNode:
    if error is not None:
        return dataclasses.replace(node, problem=error.message)
    return dataclasses.replace(node, **answer) if answer else node


def _read_nodes(client: Client, facts: Mapping[str, int | None], cordoned: bool) -> list[ProvedNode]:
    """Return the nodes of the cluster as they are before a pod tests them."""
    nodes = gpu_claims.show_offered(client, client.list("v1/Node").items)
    pods = gpu_claims.show_held(client, nodes, client.list("v1/Pod").items)
    plugins = {
        str(item["metadata"].get("uid")) for item in client.list("apps/v1/DaemonSet").items if is_gpu_driver(item)
    }
    used: dict[str, int] = collections.Counter()
    running: dict[str, list[PluginPod]] = collections.defaultdict(list)
    for pod in pods:
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        if not has_ended(pod):
            used[node] += gpu_requests(pod)
        if plugins & {str(item.get("uid")) for item in pod["metadata"].get("ownerReferences") or ()}:
            running[node].append(_read_plugin(pod))
    return [_read_node(node, facts, used, running, cordoned) for node in nodes]


def _read_node(
    node: KubeObject,
    facts: Mapping[str, int | None],
    used: Mapping[str, int],
    running: Mapping[str, Sequence[PluginPod]],
    cordoned: bool,
) -> ProvedNode:
    name, status = str(node["metadata"]["name"]), node.get("status") or {}
    capacity = str((status.get("capacity") or {}).get(GPU) or "0")
    hcas = read_annotation(node["metadata"].get("annotations") or {})
    return ProvedNode(
        name,
        facts.get(name),
        int(capacity) if capacity.isdecimal() else 0,
        gpu_count(node),
        used.get(name, 0),
        "" if takes_jobs(node, cordoned) else "it is not ready, or cordoned",
        describe_sharing(node["metadata"].get("labels") or {}),
        tuple(running.get(name, ())),
        next(iter(list_resources(status.get("allocatable") or {})), ""),
        len(hcas.hcas) if hcas else 0,
        gpu_claims.read_device_class([node]),
        basis=_read_basis(node, facts.get(name), running.get(name, ())),
    )


def _read_basis(node: KubeObject, expected: int | None, plugins: Sequence[PluginPod]) -> dict[str, t.Any]:
    """Return what a proof of a node is of: another boot, kubelet, containerd, plugin or offer needs a new one."""
    status = node.get("status") or {}
    info, offer = status.get("nodeInfo") or {}, status.get("allocatable") or {}
    return {
        "uid": node["metadata"].get("uid"),
        **{key: info.get(key) for key in ("bootID", "kernelVersion", "kubeletVersion", "containerRuntimeVersion")},
        "gpus": expected,
        "offered": {GPU: gpu_count(node), **{key: offer[key] for key in list_resources(offer)}},
        "hcas": (node["metadata"].get("annotations") or {}).get(FACTS),
        "plugins": sorted(item.name for item in plugins if not item.problem),
    }


def _is_ready(node: KubeObject) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return {item["type"]: item["status"] for item in conditions}.get("Ready") == "True"


def _read_plugin(pod: KubeObject) -> PluginPod:
    cause = events.find_pod_problem(pod)
    ready = {item["type"]: item["status"] for item in (pod.get("status") or {}).get("conditions") or ()}.get("Ready")
    problem = cause.line if cause else "" if ready == "True" else "it is not ready"
    return PluginPod(str(pod["metadata"]["name"]), str(pod["metadata"].get("namespace")), problem)
