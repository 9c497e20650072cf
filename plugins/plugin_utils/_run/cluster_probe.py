# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The short gang before the first job: do pods of this namespace find and reach each other at all?

What was proven is noted in the state home and believed for a day; the policies of the namespace and how pods are
attached belong to what was proven.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
import typing as t

from ...module_utils._model.errors import MusterError, RefusedError
from ...module_utils._node import paths
from ...module_utils._node.pod_output import MARK
from .._kube import predicates, wait
from .._kube.apply import apply
from .._kube.client import Client
from .._kube.jobs import probe
from .._kube.jobs.contract import CONTAINER, KubePlan, Object
from .._kube.watch import Watch
from .progress import Progress
from .state_home import StateHome

_BELIEVED_S = 24 * 3600.0
_LIMIT_S = 600.0
_TAIL = 40
_NO_IMAGE = ("ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")


def prove(client: Client, plan: KubePlan, home: StateHome, progress: Progress) -> None:
    """Run the probe unless the same was proven lately.

    :raises RefusedError: with what a pod said, when the pods do not reach each other.
    """
    if plan.job.nodes < 2:
        return
    place = home.folder / "pod_network.json"
    known = paths.read_json(place) or {}
    key = _key(client, plan)
    if time.time() - float(known.get(key) or 0.0) < _BELIEVED_S:
        return
    progress.say("probing whether the pods of a gang reach each other")
    *companions, main = probe.build(plan)
    try:
        apply(client, companions)
        live = apply(client, [main]).objects()[0]
        _judge(client, plan, live or main, progress)
    finally:
        clear(client, [main, *companions])
    paths.write_json(place, {**known, key: time.time()})


def _judge(client: Client, plan: KubePlan, main: Object, progress: Progress) -> None:
    told: set[str] = set()

    def tell(name: str, state: predicates.State) -> None:
        if any(word in state.reason for word in _NO_IMAGE):
            raise RefusedError(f"job.image: {plan.job.image} cannot be pulled: {state.reason}", "Check name and rights")
        line = f"probe: {name} {state.reason}"
        if state.phase == "waiting" and state.reason and line not in told:
            told.add(line)
            progress.say(line)

    resource = client.resource(main)
    wish = wait.Wish(resource, plan.namespace, main["metadata"]["name"])
    of_it = f"batch.kubernetes.io/job-name={wish.name}"
    pods = wait.Wish(client.resource("v1/Pod"), plan.namespace, labels=of_it, count=plan.job.nodes)
    warnings = client.watch("v1/Event", plan.namespace, fields="type=Warning")
    threading.Thread(target=_explain, args=(warnings, wish.name, progress), daemon=True).start()
    try:
        outcome = wait.wait(client, [wish, pods], timeout_s=_LIMIT_S, tell=tell)
    finally:
        warnings.close()
    if outcome.end != "done":
        said = _last_words(client, plan, main) or outcome.line() or outcome.end
        raise RefusedError(
            f"pods of the namespace {plan.namespace} do not reach each other: {said}",
            "Look at the network policies of the namespace, the pod network and cluster DNS",
        )


def _explain(warnings: Watch, name: str, progress: Progress) -> None:
    """Pass on what keeps the probe's pods from starting, each thing once."""
    told: set[str] = set()
    try:
        for event in warnings:
            about = event.object.get("involvedObject") or {}
            line = f"probe: {about.get('name')}: {event.object.get('reason')}: {event.object.get('message')}"
            if event.type != "DELETED" and str(about.get("name")).startswith(name) and line not in told:
                told.add(line)
                progress.say(line)
    except MusterError:
        # Only an explanation is missing then.
        return


def _last_words(client: Client, plan: KubePlan, main: Object) -> str:
    """Return what the pods of a failed probe said for people."""
    name = main["metadata"]["name"]
    found: list[str] = []
    try:
        pods = client.list("v1/Pod", plan.namespace, labels=f"batch.kubernetes.io/job-name={name}").items
        for pod in pods:
            lines = client.stream_log(
                plan.namespace, pod["metadata"]["name"], CONTAINER, follow=False, tail=_TAIL, timeout_s=20
            )
            texts = [line.decode(errors="replace") for line in lines]
            found += [text for text in texts if text and not text.startswith(MARK)][-1:]
    except MusterError:
        pass
    return "; ".join(dict.fromkeys(found))


def clear(client: Client, made: t.Sequence[Object]) -> None:
    """Remove what was made for a probe, or for a job that could not be submitted; what is gone already is passed over.

    A job has a policy of the same name and content as its probe: making it again costs one request.
    """
    for item in made:
        try:
            client.delete(item, item["metadata"]["name"], item["metadata"].get("namespace"))
        except MusterError:
            continue


def _key(client: Client, plan: KubePlan) -> str:
    about = [client.server, plan.namespace, plan.host_network, plan.egress_denied, plan.job.placement.island]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
