# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The short gang before the first job: do pods of this namespace find and reach each other at all?

What was proven is noted in the state home and believed for a day, of the nodes that the gang could lie on then. The
policies of the namespace and how pods are attached belong to what was proven.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import typing as t

from .....module_utils._model.errors import MusterError, RefusedError
from .....module_utils._node import files
from .....module_utils._node.pod_log import MARK
from ...._kube.api.client import Client
from ...._kube.api.kinds import KubeObject
from ...._kube.jobs import network_test_job
from ...._kube.jobs.spec import CONTAINER, RUN_LABEL, KubePlan, set_owner
from ...._kube.objects import events, status, wait
from ...._kube.objects.apply import apply
from ...shared.progress import Progress
from ...shared.state_dir import StateHome
from ..fabric_file import NETWORK_TEST
from .pending import Hindrances, PendingCauses, SlowPulls

_VALID_S = 24 * 3600.0
_LIMIT_S = 600.0
# Lines of a pod's log that are read for its error.
_TAIL = 40
# What runs in the test's pods has nothing to save.
_DELETION_S = 90.0
_ADVICE: t.Final[t.Mapping[str, str]] = {
    "image": "Check the image's name and the rights to pull it",
    "admission": "Change the job, or the quotas and admission policies of the namespace",
    "container": "Use an image with that program in its PATH; pods need Python 3.10 or newer as python3",
    "volume": "Create what it mounts in the namespace",
    "queue": "Ask for less, or have the quota of its queue raised",
    "quota": "Ask for less, or have the namespace's quota raised",
    "unschedulable": "Ask for less, or add nodes",
    "pull": "Check that the nodes reach its registry",
}


def run_preflight(
    client: Client,
    plan: KubePlan,
    home: StateHome,
    progress: Progress,
    node_uids: t.Collection[str],
    policies: t.Sequence[KubeObject],
) -> None:
    """Run the network test unless the same was proven within the last day.

    :param node_uids: the nodes that the gang may run on.
    :param policies: the namespace's network policies.
    :raises RefusedError: with what a pod said, when the pods do not reach each other.
    """
    if plan.job.nodes < 2:
        return
    place = home.folder / NETWORK_TEST
    known = files.read_json(place) or {}
    key, nodes = _network_key(client, plan, policies), sorted(node_uids)
    if _is_proven(known.get(key), nodes, time.time()):
        return
    progress.say("network test: checking whether the pods of a gang reach each other")
    *supporting, main = network_test_job.build(plan)
    # One that a killed controller left has a verdict of its own.
    _delete_leftover(client, plan, main)
    while True:
        try:
            apply(client, supporting)
            live = apply(client, [main]).objects()[0]
            if live is not None:
                # What a killed controller leaves goes with the Job, which the cluster deletes.
                apply(client, set_owner(supporting, live))
            said = _wait_for_pods(client, plan, live or main, progress)
        finally:
            delete_objects(client, [main, *supporting])
        if not said:
            break
        if not client.transport.is_recovering():
            raise RefusedError(
                f"pods of the namespace {plan.namespace} do not reach each other: {said}",
                "Check the network policies of the namespace, the pod network and cluster DNS",
            )
        progress.say("the API server was unavailable a moment ago: repeating the network test")
        _delete_leftover(client, plan, main)
    files.write_json(place, {**known, key: {"at": time.time(), "nodes": nodes}})


def _is_proven(entry: t.Any, nodes: t.Sequence[str], now: float) -> bool:
    """Return whether what was noted covers these nodes (their uids) and is young enough."""
    if not isinstance(entry, dict) or not isinstance(entry.get("at"), (int, float)):
        return False
    return 0 <= now - entry["at"] < _VALID_S and set(nodes) <= set(entry.get("nodes") or ())


def _wait_for_pods(client: Client, plan: KubePlan, main: KubeObject, progress: Progress) -> str:
    """Return why the pods do not reach each other, empty when they do.

    :raises RefusedError: when one of them cannot run at all.
    """
    resource = client.resource(main)
    wish = wait.WaitTarget(resource, plan.namespace, main["metadata"]["name"])
    pods = wait.WaitTarget(client.resource("v1/Pod"), plan.namespace, labels=_pod_selector(main), count=plan.job.nodes)
    seen = _StartProblems(client, plan, main, progress)
    try:
        outcome = wait.wait(client, [wish, pods], rule=seen.rule, timeout_s=_LIMIT_S)
    finally:
        seen.close()
    if outcome.end == "timeout":
        raise RefusedError(
            f"the network test {plan.namespace}/{wish.name} did not end within {_LIMIT_S:.0f} s: {outcome.summary()}",
            f"Check what its pods wait for: kubectl -n {plan.namespace} describe pods",
        )
    if outcome.end != "done":
        # A pod that waits for one that never ran says that the network does not let it through.
        first = seen.find_absence(plan.job.nodes)
        if first is not None:
            raise first
        said = _read_errors(client, plan, main) or outcome.summary() or outcome.end
        if events.is_wrong_architecture(said):
            raise _wrong_architecture(plan.job.image, said)
        return said
    return ""


class _StartProblems:
    """What keeps the test's pods from starting: reported once each; what no waiting mends ends the wait."""

    def __init__(self, client: Client, plan: KubePlan, main: KubeObject, progress: Progress) -> None:
        self._image, self._main, self._progress = plan.job.image, main, progress
        self._hindrances = Hindrances(plan.job.placement.start_wait_s)
        self._pulls = SlowPulls(client, plan.namespace)
        self._running: set[str] = set()
        self._first: events.StartProblem | None = None
        self._news = PendingCauses(False, client.transport.is_recovering)
        self._final: RefusedError | None = None
        self._warnings = client.watch("v1/Event", plan.namespace, fields="type=Warning")
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._warnings.close()

    def rule(self, value: KubeObject) -> status.State:
        """Return how far the test's Job or one of its pods is. It is asked again and again while one waits.

        :raises RefusedError: when one of them will not start, or has not for too long.
        """
        now = status.read_state(value)
        if value.get("kind") == "Pod" and now.phase != "done":
            if (value.get("status") or {}).get("phase") in ("Running", "Failed"):
                self._running.add(str(value["metadata"].get("uid")))
            self._take(events.find_pod_problem(value))
            self._take(self._pulls.find(value))
        if self._final is not None:
            raise self._final
        late = self._hindrances.overdue(lambda cause: cause.uid not in self._running)
        if late is not None:
            advice = "Check that the nodes reach its registry" if late.code == "image" else _ADVICE[late.code]
            raise RefusedError(self._hindrances.describe(late), advice)
        return now

    def find_absence(self, count: int) -> RefusedError | None:
        """Return why pods of the test never ran, None where all ``count`` of them did or nothing is known of it."""
        if len(self._running) >= count or self._first is None:
            return None
        fix = _ADVICE.get(self._first.code, "Look at the events of the namespace")
        return RefusedError(f"{self._first.text}; so {len(self._running)} of {count} pods of the network test ran", fix)

    def _listen(self) -> None:
        try:
            for event in self._warnings:
                if event.type in ("DELETED", "SYNCED"):
                    continue
                about = str((event.object.get("involvedObject") or {}).get("name"))
                # The Job itself, and the pods of an indexed one: another run's name may begin with this one's.
                mine = re.fullmatch(rf"{re.escape(self._main['metadata']['name'])}(-[0-9]+-[a-z0-9]{{5}})?", about)
                if mine and not events.is_stale(event.object, self._main):
                    self._take(events.parse_event(event.object))
        except MusterError:
            # Only an explanation is missing then.
            return

    def _take(self, cause: events.StartProblem | None) -> None:
        if cause is None:
            return
        if cause.uid not in self._running:
            self._first = self._first or cause
        if self._news.is_new(cause):
            self._progress.say(f"network test: {cause.text}")
        self._hindrances.take(cause)
        if not self._news.is_final(cause):
            return
        if events.is_wrong_architecture(cause.line):
            self._final = _wrong_architecture(self._image, cause.line)
        else:
            words = {"image": "cannot be pulled", "container": "lacks the program that is to start"}.get(cause.code)
            what = f"job.image: {self._image} {words}" if words else cause.object
            self._final = RefusedError(f"{what}: {cause.line}", _ADVICE[cause.code])


def _wrong_architecture(image: str | None, said: str) -> RefusedError:
    what = f"job.image: {image} is not made for the architecture of its node: {said}"
    return RefusedError(what, "Build it for that architecture, or place the job on nodes with the image's architecture")


def _pod_selector(main: KubeObject) -> str:
    """Return the label selector of a Job's pods: of this very one when it is live, else of all of its name."""
    uid = main["metadata"].get("uid")
    name = f"batch.kubernetes.io/job-name={main['metadata']['name']}"
    return f"{name},batch.kubernetes.io/controller-uid={uid}" if uid else name


def _delete_leftover(client: Client, plan: KubePlan, main: KubeObject) -> None:
    """Remove a test of this name and wait until its pods are gone: names would still lead to them."""
    name, labels = main["metadata"]["name"], _pod_selector(main)
    existed = client.delete(main, name, plan.namespace)
    if existed or client.list("v1/Pod", plan.namespace, labels=labels).items:
        gone = [wait.WaitTarget(client.resource(main), plan.namespace, name)]
        gone.append(wait.WaitTarget(client.resource("v1/Pod"), plan.namespace, labels=labels))
        wait.wait(client, gone, until="absent", timeout_s=_DELETION_S)


def _read_errors(client: Client, plan: KubePlan, main: KubeObject) -> str:
    """Return the last line for people of each pod of a failed test."""
    found: list[str] = []
    try:
        pods = client.list("v1/Pod", plan.namespace, labels=_pod_selector(main)).items
        for pod in pods:
            lines = client.stream_log(
                plan.namespace, pod["metadata"]["name"], CONTAINER, follow=False, tail=_TAIL, timeout_s=20
            )
            texts = [line.decode(errors="replace") for line in lines]
            found += [text for text in texts if text and not text.startswith(MARK)][-1:]
    except MusterError:
        pass
    return "; ".join(dict.fromkeys(found))


def delete_objects(client: Client, made: t.Sequence[KubeObject]) -> None:
    """Remove what was made for a test, or for a job that could not be submitted; what is gone already is passed over.

    A job has a policy of the same name and content as its test: making it again costs one request.
    """
    for item in made:
        try:
            client.delete(item, item["metadata"]["name"], item["metadata"].get("namespace"))
        except MusterError:
            continue


def _network_key(client: Client, plan: KubePlan, policies: t.Sequence[KubeObject]) -> str:
    # Those of runs come and go with them.
    standing = [item for item in policies if RUN_LABEL not in (item["metadata"].get("labels") or {})]
    about: list[t.Any] = [
        client.cluster_id(),
        client.server,
        plan.namespace,
        plan.host_network,
        plan.job.placement.island,
        sorted(json.dumps([item["metadata"]["name"], item.get("spec")], sort_keys=True) for item in standing),
    ]
    if plan.queue is not None and plan.queue.node_labels:
        about.append(sorted(plan.queue.node_labels.items()))
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
