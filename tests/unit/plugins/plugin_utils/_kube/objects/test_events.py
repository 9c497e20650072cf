# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Warning events as causes; the messages are those of Kubernetes 1.34, Kueue and JobSet."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import one_line
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import events


def event(reason: str, message: str, kind: str = "Pod", **more: t.Any) -> dict[str, t.Any]:
    about = {"kind": kind, "namespace": "n", "name": "x", "uid": "u"}
    return {"type": "Warning", "reason": reason, "message": message, "involvedObject": about, **more}


@pytest.mark.parametrize(
    ("reason", "message", "code", "passing"),
    [
        ("FailedCreate", 'Error creating: pods "x" is forbidden: exceeded quota: q, requested: pods=1', "quota", False),
        (
            "FailedCreate",
            'pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces',
            "admission",
            False,
        ),
        ("FailedCreate", 'Internal error occurred: failed calling webhook "mpod.kb.io": EOF', "webhook", False),
        ("FailedScheduling", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", "unschedulable", True),
        ("FailedScheduling", '0/2 nodes are available: persistentvolumeclaim "data" not found.', "volume", True),
        ("FailedMount", 'MountVolume.SetUp failed for volume "s": secret "s" not found', "volume", True),
        ("Failed", 'Failed to pull image "x": 401 Unauthorized', "image", False),
        ("Failed", "Error: ImagePullBackOff", "image", False),
        ("BackOff", 'Back-off pulling image "x"', "image", False),
        ("BackOff", "Back-off restarting failed container c in pod x", "crash", False),
        ("Failed", "Error: failed to create containerd task: exec: no such file", "container", False),
        ("NodeNotReady", "Node is not ready", "node", True),
        ("Pending", "couldn't assign flavors to pod set node: insufficient quota for cpu", "queue", True),
        ("Strange", "never seen", "other", False),
        ("Unhealthy", "Readiness probe failed: bash: line 1: wget: command not found", "other", False),
    ],
)
def test_causes(reason: str, message: str, code: str, passing: bool) -> None:
    found = events.parse_event(event(reason, message))
    assert found is not None
    assert (found.code, found.transient, found.object) == (code, passing, "Pod n/x")
    assert found.line == f"{reason}: {message}"


@pytest.mark.parametrize(
    ("message", "final"),
    [
        ('pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces', True),
        ('pods "x" is forbidden: status unknown for quota: q, resources: pods', False),
        ('pods "x" is forbidden: error looking up service account n/d: serviceaccount "d" not found', False),
        ('admission webhook "v.kb.io" denied the request: jobset "r" not found', False),
        ('admission webhook "mjob.kb.io" denied the request: JobSet.jobset.x-k8s.io "r" not found', False),
    ],
)
def test_a_refusal_is_final_unless_it_only_came_too_early(message: str, final: bool) -> None:
    found = events.parse_event(event("FailedCreate", message))
    assert found is not None and (found.code, found.final, found.transient) == ("admission", final, not final)


def test_what_is_no_warning_is_none_and_repetitions_are_one() -> None:
    normal = {**event("Pulled", "x"), "type": "Normal"}
    twice = [event("FailedMount", "a", count=3), event("FailedMount", "a b"), normal, event("FailedMount", "a", "Job")]
    assert [found.object for found in events.parse_events(twice)] == ["Pod n/x", "Job n/x"]


def pod(**status: t.Any) -> dict[str, t.Any]:
    return {"kind": "Pod", "metadata": {"name": "x", "namespace": "n", "uid": "u"}, "status": status}


@pytest.mark.parametrize(
    ("reason", "code"),
    [("ErrImagePull", "image"), ("CreateContainerConfigError", "container"), ("CrashLoopBackOff", "crash")],
)
def test_a_pod_says_what_its_event_says(reason: str, code: str) -> None:
    waits = [{"name": "c", "state": {"waiting": {"reason": reason, "message": "why"}}}]
    found = events.find_pod_problem(pod(containerStatuses=waits))
    assert found is not None and (found.code, found.line) == (code, f"{reason}: why")
    told = events.parse_event(event(reason, "in other words"))
    assert told is not None and told.key == found.key


def test_a_pod_without_room_or_claim_says_so_and_one_on_its_way_nothing() -> None:
    placed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    room = events.find_pod_problem(pod(conditions=[{**placed, "message": "0/2 nodes are available"}]))
    claim = events.find_pod_problem(pod(conditions=[{**placed, "message": 'persistentvolumeclaim "d" not found'}]))
    assert room is not None and claim is not None and (room.code, claim.code) == ("unschedulable", "volume")
    assert room.text == "Pod n/x: no node has room for it: FailedScheduling: 0/2 nodes are available"
    gated = {**placed, "reason": "SchedulingGated"}
    creating = [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    for status in ({"conditions": [gated]}, {"containerStatuses": creating}, {}):
        assert events.find_pod_problem(pod(**status)) is None


def test_a_workload_waits_in_its_queue_until_it_is_admitted() -> None:
    value = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w", "namespace": "n"}}
    reserved = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "no quota"}
    found = events.find_workload_problem({**value, "status": {"conditions": [reserved]}})
    assert found is not None and found.text == "Workload n/w: waiting in its queue: is queued: Pending: no quota"
    assert (
        events.find_workload_problem({**value, "status": {"conditions": [{"type": "Admitted", "status": "True"}]}})
        is None
    )
    # Why it waits is told although that it waits was told before, and not again in other words.
    bare = events.find_workload_problem(value)
    other = events.find_workload_problem({**value, "status": {"conditions": [{**reserved, "message": "other words"}]}})
    assert bare is not None and found is not None and other is not None
    assert bare.key != found.key == other.key


@pytest.mark.parametrize(
    "reason", ["Unhealthy", "DNSConfigForming", "BackoffLimitExceeded", "RestartJobSetFailurePolicyAction"]
)
def test_what_comes_in_every_run_is_no_cause(reason: str) -> None:
    assert events.parse_event(event(reason, "x")) is None


@given(st.text(max_size=20), st.text(max_size=60))
def test_any_text_is_one_line(reason: str, message: str) -> None:
    found = events.parse_event(event(reason, message))
    assert found is not None and found.line == one_line(found.line)


# Images for another architecture, in the words of containerd 1.7, Docker, CRI-O and the kubelet 1.34.
WORDS = "its image is not made for the architecture of its node"
PULL = "rpc error: code = NotFound desc = failed to pull and unpack image"


def image_pod(reason: str, message: str) -> dict[str, object]:
    waits = [{"name": "c", "state": {"waiting": {"reason": reason, "message": message}}}]
    return {"kind": "Pod", "metadata": {"name": "x", "namespace": "n"}, "status": {"containerStatuses": waits}}


@pytest.mark.parametrize(
    "message",
    [
        f'{PULL} "r/x:1": no match for platform in manifest: not found',
        f'{PULL} "r/x:1": no match for platform in manifest sha256:0f: not found',
        "no matching manifest for linux/amd64 in the manifest list entries",
        'choosing an image from manifest list: no image found in image index for architecture "amd64", OS "linux"',
    ],
)
@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_an_image_without_the_nodes_architecture_says_so(reason: str, message: str) -> None:
    found = events.find_pod_problem(image_pod(reason, message))
    assert found is not None and found.code == "image"
    assert found.text == f"Pod n/x: {WORDS}: {reason}: {message}"
    about = {"kind": "Pod", "namespace": "n", "name": "x"}
    told = events.parse_event({"type": "Warning", "reason": "Failed", "message": message, "involvedObject": about})
    assert told is not None and told.text == f"Pod n/x: {WORDS}: Failed: {message}"


def test_other_causes_keep_their_words() -> None:
    found = events.find_pod_problem(image_pod("ErrImagePull", f'{PULL} "r/x:1": r/x:1: not found'))
    assert found is not None and found.text.startswith("Pod n/x: its image cannot be pulled: ")


def test_what_linux_says_of_a_foreign_program_is_known() -> None:
    assert events.is_wrong_architecture("exec /usr/bin/python3: exec format error")
    assert not events.is_wrong_architecture("exec /usr/bin/python3: no such file or directory")


RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: error during container init: "
)


@pytest.mark.parametrize(
    ("message", "final"),
    [
        (f'Error: {RUNC}exec: "python3": executable file not found in $PATH', True),
        (f'Error: {RUNC}exec: "/opt/py": stat /opt/py: no such file or directory', True),
        ("executable file `python3` not found in $PATH: No such file or directory", True),
        (f"Error: {RUNC}error mounting /x: no space left on device", False),
    ],
)
def test_an_image_without_the_program_is_final_at_once(message: str, final: bool) -> None:
    """Each pod of it ends in the same way; the pod's status keeps the words once the event has gone."""
    told = events.parse_event(event("Failed", message))
    ended = [{"name": "c", "state": {"terminated": {"exitCode": 128, "reason": "StartError", "message": message}}}]
    kept = events.find_pod_problem(pod(containerStatuses=ended))
    for found in (told, kept):
        assert found is not None and (found.code, found.final) == ("container", final)
        assert ("its image lacks the program that is to start" in found.text) is final
    over = [{"name": "c", "state": {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}}]
    assert events.find_pod_problem(pod(containerStatuses=over)) is None, "that is what a program said"


def waiting(message: str) -> events.StartProblem:
    value = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w", "namespace": "n"}}
    reserved = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}
    found = events.find_workload_problem({**value, "status": {"conditions": [reserved]}})
    assert found is not None
    return found


TOO_LARGE = (
    "couldn't assign flavors to pod set node: insufficient quota for {} in flavor main, previously considered podsets "
    "requests ({}) + current podset request ({}) > maximum capacity ({})"
)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("cpu", "0", "7500m", "6"), "will never fit: 7.5 CPU asked, the queue has 6"),
        (("cpu", "500m", "600m", "200m"), "will never fit: 0.5 + 0.6 CPU asked, the queue has 0.2"),
        (("nvidia.com/gpu", "0", "16", "8"), "will never fit: 16 nvidia.com/gpu asked, the queue has 8"),
        (("memory", "0", "64Gi", "32Gi"), "will never fit: 64Gi memory asked, the queue has 32Gi"),
    ],
)
def test_more_than_a_queue_has_never_fits(values: tuple[str, ...], said: str) -> None:
    found = waiting(TOO_LARGE.format(*values))
    assert found.final and found.never_fits and found.text.startswith(f"Workload n/w: {said}: is queued: Pending: ")


def test_what_the_namespace_never_allows_never_starts() -> None:
    """By Kueue's words for a job whose pods a LimitRange would refuse: nothing of the job will change."""
    line = "resources didn't satisfy LimitRange constraints: spec.podSets[0].template.spec.containers[0]: Invalid value"
    found = waiting(line)
    assert found.final and found.never_fits
    assert found.text.startswith("Workload n/w: will never start, its requests are refused: is queued: Pending: reso")


@pytest.mark.parametrize(
    "message",
    [
        "couldn't assign flavors to pod set node: insufficient unused quota for cpu in flavor main, 2 more needed",
        TOO_LARGE.format("cpu", "0", "8", "6") + "; insufficient unused quota for cpu in flavor spot, 2 more needed",
        "The workload has not all checks ready",
    ],
)
def test_what_fits_once_others_have_ended_waits(message: str) -> None:
    found = waiting(message)
    assert not found.final and not found.never_fits and ": waiting in its queue: " in found.text


@pytest.mark.parametrize(
    ("reason", "message", "early"),
    [
        (
            "FailedMount",
            'MountVolume.SetUp failed for volume "p": failed to sync configmap cache: timed out waiting',
            True,
        ),
        ("FailedMount", 'MountVolume.SetUp failed for volume "p": object "n"/"r-program" not registered', True),
        (
            "FailedMount",
            (
                'Unable to attach or mount volumes: error processing PVC n/c: persistentvolumeclaims "c" is forbidden: User '
                '"system:node:lab-1" cannot get resource "persistentvolumeclaims": no relationship found between node "lab-1"'
            ),
            True,
        ),
        ("FailedMount", 'MountVolume.SetUp failed for volume "p": configmap "r-program-1" not found', False),
        ("JobCreationFailed", 'admission webhook "mjob.kb.io" denied the request: JobSet "r" not found', True),
        ("FailedCreate", 'pods "x" is forbidden: violates PodSecurity "baseline:latest"', False),
    ],
)
def test_who_was_asked_too_early_is_told_from_what_lacks(reason: str, message: str, early: bool) -> None:
    found = events.parse_event(event(reason, message))
    assert found is not None and found.is_early is early
    assert found.misses_object is ("configmap" in message and not early)


def test_an_event_is_as_old_as_it_was_last_seen() -> None:
    owner = {"metadata": {"creationTimestamp": "2026-11-21T10:00:00Z"}}
    old = event("x", "y", firstTimestamp="2026-11-21T09:00:00Z", lastTimestamp="2026-11-21T09:59:59Z")
    assert events.is_stale(old, owner) and events.last_seen(old) == "2026-11-21T09:59:59Z"
    seen = {**old, "series": {"lastObservedTime": "2026-11-21T10:00:01.000000Z"}}
    assert not events.is_stale(seen, owner) and events.last_seen(seen).startswith("2026-11-21T10:00:01")
    assert events.last_seen(event("x", "y")) == "" and not events.is_stale(event("x", "y"), owner)


@pytest.mark.parametrize(
    ("labels", "spec", "searched", "code", "said"),
    [
        ({}, {"suspend": True}, True, "stopped", "is suspended"),
        ({}, {"parallelism": 0}, True, "stopped", "spec.parallelism is 0"),
        ({"kueue.x-k8s.io/queue-name": "q"}, {"suspend": True}, True, "queue", "Kueue has not created a Workload"),
        ({"kueue.x-k8s.io/queue-name": "q"}, {"suspend": True}, False, "queue", "cannot be read from here"),
        ({}, {"parallelism": 2}, True, None, ""),
    ],
)
def test_a_job_that_is_kept_from_starting_says_by_whom(
    labels: dict[str, str], spec: dict[str, object], searched: bool, code: str | None, said: str
) -> None:
    """Without a queue it waits in none: a user, or another program, has stopped it."""
    meta = {"name": "r", "namespace": "n", "uid": "u", "labels": labels}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    found = events.find_unqueued_problem(job, searched)
    assert (found and found.code) == code and said in (found.line if found else "")
    assert found is None or (found.object == "Job n/r" and not found.final)


def test_a_pod_that_has_no_machine_of_its_own_is_told_by_the_option() -> None:
    words = "0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 2 Insufficient cpu."
    event = {"type": "Warning", "reason": "FailedScheduling", "message": words, "involvedObject": {"kind": "Pod"}}
    found = events.parse_event(t.cast(t.Any, event))
    assert found is not None and found.transient
    assert "no machine is free of the job's other pods (job.placement.share_machines: false)" in found.text


def test_what_pods_wait_for_is_a_machine_before_all_else() -> None:
    waits = {"name": "node", "state": {"waiting": {"reason": "ErrImagePull", "message": "refused"}}}
    words = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No victims found."
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}

    def pod(phase: str, **status: t.Any) -> t.Any:
        return {"metadata": {"name": "r-0", "namespace": "n"}, "status": {"phase": phase, **status}}

    pulling, left = pod("Pending", containerStatuses=[waits]), pod("Pending", conditions=[unplaced])
    assert events.describe_wait([pulling, left]) == "waiting for a machine: 0/2 nodes are available: 2 Insufficient cpu"
    assert events.describe_wait([pod("Running"), pulling]) == "waiting: its image cannot be pulled"
    assert events.describe_wait([pod("Running", containerStatuses=[waits]), pod("Pending")]) == ""


@pytest.mark.parametrize(
    ("reason", "words", "said"),
    [
        ("FailedScheduling", "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. preemption: 0/2",
         "no node matches its node affinity, such as the island of job.placement.island"),
        ("FailedScheduling", "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector. p", "no node has room for it"),
        ("InvalidImageName", 'Failed to apply default image tag "A B": invalid reference format', "(job.image)"),
    ],
)  # fmt: skip
def test_words_are_those_of_the_reason(reason: str, words: str, said: str) -> None:
    event = {"type": "Warning", "reason": reason, "message": words, "involvedObject": {"kind": "Pod"}}
    found = events.parse_event(t.cast(t.Any, event))
    assert found is not None and said in found.text


def test_a_job_with_a_priority_that_kueue_may_not_know_says_so() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "hihg"}
    job: t.Any = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": True}}
    found = events.find_unqueued_problem({**job, "metadata": {"name": "r", "uid": "u", "labels": labels}})
    assert found and "WorkloadPriorityClass hihg (job.placement.priority) exists" in found.line
