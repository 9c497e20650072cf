# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a run from starting, and when that is its end: told events, no cluster. The real one is in tests/lab."""

from __future__ import annotations

import json
import pathlib
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.watch import WatchEvent
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    follower,
    pending,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.follower import (
    ClusterFollower,
)
from ansible_collections.muster.training.tests.support.told_cluster import MAIN, Told, follow, follower_of, warning

Dict = dict[str, t.Any]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setattr(follower, "_IDLE_S", 0.01)
    return Told()


@pytest.mark.parametrize(
    ("reason", "message", "ends"),
    [
        ("ImagePullBackOff", 'Back-off pulling image "i": ErrImagePull: i: not found', "image"),
        ("ImagePullBackOff", 'Back-off pulling image "i": ErrImagePull: 401 Unauthorized', "image"),
        ("ImagePullBackOff", 'Back-off pulling image "i": ErrImagePull: 429: toomanyrequests', ""),
        ("ImagePullBackOff", 'Back-off pulling image "i": dial tcp 10.0.0.1:443: i/o timeout', ""),
        ("ErrImagePull", "i: not found", ""),
        ("CreateContainerError", "exec format error", "container"),
        ("RunContainerError", 'exec: "python3": executable file not found in $PATH', "container"),
    ],
)
def test_what_no_waiting_mends_ends_a_run_that_never_started(
    tmp_path: pathlib.Path, told: Told, reason: str, message: str, ends: str
) -> None:
    waits = {"name": "node", "state": {"waiting": {"reason": reason, "message": message}}}
    told.tell_pod("a", "waiting", containerStatuses=[waits], phase="Pending")
    if not ends:
        threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    outcome, _, _ = follow(tmp_path, told)
    assert outcome.cause == (ends or "succeeded") and (message in outcome.detail) == bool(ends)


def test_a_registry_that_stays_away_is_an_end(tmp_path: pathlib.Path, told: Told) -> None:
    """At the end of its time, without another word of its kubelet, which pauses for minutes between two tries."""
    waits = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "dial tcp: no such host"}}}
    told.tell_pod("a", "waiting", containerStatuses=[waits], phase="Pending")
    told.tell_pod("b")
    follower, progress = follower_of(tmp_path, told)
    patient(follower, 0.3)
    outcome = follower.run()
    assert (outcome.outcome, outcome.cause) == ("failed", "image")
    assert outcome.detail == (
        "Pod n/r-a: its image cannot be pulled: ImagePullBackOff: dial tcp: no such host; "
        "it lasted for more than placement.start_wait_s (0.3 s)"
    )
    assert [line for line in progress.lines if "dial tcp" in line], "said at once"


def patient(follower: ClusterFollower, seconds: float) -> None:
    """Let a follower wait for so long; less than a job may ask for."""
    assert follower.hindrances.wait_s == 180.0
    follower.hindrances.wait_s = seconds


def test_a_registry_that_comes_back_is_none(tmp_path: pathlib.Path, told: Told) -> None:
    """Nor is one that keeps a pod of a run that trains: it may be a single worker of it."""
    waits = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "dial tcp: no such host"}}}
    news: Dict = {"containerStatuses": [waits], "phase": "Pending"}
    told.tell_pod("a", "waiting", **news)
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    told.tell_pod("b", "waiting", **news)
    threading.Timer(0.6, lambda: told.tell_main("Completed")).start()
    follower, _ = follower_of(tmp_path, told)
    patient(follower, 0.2)
    assert follower.run().outcome == "succeeded"


def test_a_later_start_that_is_refused_for_long_is_an_end(tmp_path: pathlib.Path, told: Told) -> None:
    """A rule of the cluster has changed since the first one: no pod comes, and the run holds its place."""
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    told.tell_pod("a", kind="DELETED")
    denied = "pods \"r-a\" is forbidden: ValidatingAdmissionPolicy 'x' denied request: no pods"
    told.heard.put(("event", WatchEvent("ADDED", warning("r-node-0", "FailedCreate", denied, "Job"))))
    follower, _ = follower_of(tmp_path, told)
    patient(follower, 0.3)
    began = time.monotonic()
    outcome = follower.run()
    assert (outcome.outcome, outcome.cause) == ("failed", "admission") and time.monotonic() - began >= 0.3
    assert "denied request: no pods; it lasted for more than placement.start_wait_s" in outcome.detail


def test_what_kept_an_earlier_start_back_is_no_cause_while_it_is_queued(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_main("Suspended")
    waits = {"name": "node", "state": {"waiting": {"reason": "ErrImagePull", "message": "dial tcp: refused"}}}
    told.tell_pod("a", "waiting", containerStatuses=[waits], phase="Pending")
    threading.Timer(0.6, lambda: told.tell_main("Completed")).start()
    follower, _ = follower_of(tmp_path, told)
    patient(follower, 0.1)
    assert follower.run().outcome == "succeeded"


_EARLY = (
    'Error creating: pods "r-a" is forbidden: status unknown for quota: team, resources: pods',
    'Error creating: pods "r-a" is forbidden: error looking up service account n/default: "default" not found',
)


@pytest.mark.parametrize("message", _EARLY)
def test_what_was_asked_too_early_is_told_and_ends_a_run_only_if_it_goes_on(
    tmp_path: pathlib.Path, told: Told, message: str
) -> None:
    """A quota that nobody has counted yet, a service account that is about to be made."""
    for _ in range(2):
        told.heard.put(("event", WatchEvent("ADDED", warning("r-node-0", "FailedCreate", message, "Job"))))
    told.tell_main("Completed")
    outcome, _, progress = follow(tmp_path, told)
    assert outcome.outcome == "succeeded" and sum(message in line for line in progress.lines) == 1
    told.heard.put(("event", WatchEvent("ADDED", warning("r-node-0", "FailedCreate", message, "Job"))))
    follower, _ = follower_of(tmp_path, told)
    patient(follower, -1.0)
    assert follower.run().cause == "admission"


def test_what_was_said_of_a_run_of_this_name_before_is_old_news(tmp_path: pathlib.Path, told: Told) -> None:
    told.main = {**MAIN, "metadata": {**MAIN["metadata"], "creationTimestamp": "2026-11-21T10:00:00Z"}}
    said = warning("r-node-0", "FailedCreate", 'violates PodSecurity "restricted:latest"', "Job")
    told.heard.put(("event", WatchEvent("ADDED", {**said, "lastTimestamp": "2026-11-21T09:59:00Z"})))
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    outcome, _, progress = follow(tmp_path, told)
    assert outcome.outcome == "succeeded" and not any("PodSecurity" in line for line in progress.lines)


def test_what_is_refused_just_after_an_outage_is_no_end(tmp_path: pathlib.Path, told: Told) -> None:
    told.outage = True
    waits = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "i: not found"}}}
    told.tell_pod("a", "waiting", containerStatuses=[waits], phase="Pending")
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    outcome, _, progress = follow(tmp_path, told)
    assert outcome.cause == "succeeded" and any("i: not found" in line for line in progress.lines)


def test_a_claim_that_gets_no_volume_says_why(tmp_path: pathlib.Path, told: Told) -> None:
    """By events of its own, of which those of other claims are none of the run's."""
    for name in ("data", "foreign"):
        about = {"kind": "PersistentVolumeClaim", "namespace": "n", "name": name, "uid": name}
        value = {"type": "Warning", "reason": "ProvisioningFailed", "message": "no such class", "involvedObject": about}
        told.heard.put(("event", WatchEvent("ADDED", {"metadata": {"uid": name}, **value})))
    told.tell_main("Completed")
    _, _, progress = follow(tmp_path, told, mounts=[{"name": "d", "path": "/d", "pvc": "data"}])
    assert [line for line in progress.lines if "no such class" in line] == [
        "PersistentVolumeClaim n/data: a volume is missing: ProvisioningFailed: no such class"
    ]


def test_an_image_that_is_gone_does_not_end_a_run_that_has_worked(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    waits = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}
    told.tell_pod("b", "waiting", containerStatuses=[waits], phase="Pending")
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    assert follow(tmp_path, told)[0].outcome == "succeeded"


def test_what_keeps_it_from_starting_is_said_once(tmp_path: pathlib.Path, told: Told) -> None:
    """Once for each thing, whether its event or the pod itself says it, and nothing of other runs or of the probe."""
    pull = warning("r-a", "Failed", "Failed to pull image")
    told.heard.put(("event", WatchEvent("ADDED", pull)))
    told.heard.put(("event", WatchEvent("ADDED", warning("r-a", "BackOff", "Back-off pulling image"))))
    told.heard.put(("event", WatchEvent("ADDED", warning("r-node-0", "FailedCreate", "exceeded quota: q", "Job"))))
    for name in ("other", "r2-node-0", "r-probe-0"):
        told.heard.put(("event", WatchEvent("ADDED", warning(name, "FailedMount", "not ours"))))
    told.heard.put(("event", WatchEvent("ADDED", warning("r-a", "Unhealthy", "in every run"))))
    waits = [{"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "again"}}}]
    told.tell_pod("a", "waiting", phase="Pending", containerStatuses=waits)
    told.tell_pod("b", "waiting", phase="Pending", containerStatuses=[], conditions=[])
    owner = {
        "kind": "Workload",
        "metadata": {"name": "jobset-r", "namespace": "n", "ownerReferences": [{"uid": "main"}]},
    }
    pending = {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "no room"}]}
    value = {"apiVersion": "kueue.x-k8s.io/v1beta2", **owner, "status": pending}
    told.heard.put(("workload", WatchEvent("ADDED", value)))
    told.tell_main("Completed")
    _, follower, progress = follow(tmp_path, told)
    causes = [line for line in progress.lines if not line.startswith("ranks")]
    assert causes == [
        "Job n/r-node-0: the namespace's quota is used up: FailedCreate: exceeded quota: q",
        "Pod n/r-a: its image cannot be pulled: Failed: Failed to pull image",
        "Workload n/jobset-r: waiting in its queue: is queued: Pending: no room",
    ]
    kept = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["detail"] for line in kept if line["kind"] == "cluster"] == causes
    assert follower.run_id == "r"


def test_a_job_that_is_suspended_without_a_queue_is_named(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "_UNQUEUED_S", -1.0)
    told.tell_main("Suspended")
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    _, _, progress = follow(tmp_path, told)
    found = [line for line in progress.lines if "is suspended" in line]
    assert len(found) == 1 and found[0].startswith("JobSet r: stopped by a user or another program: is suspended")


FATAL = 'Error creating: pods "x" is forbidden: violates PodSecurity "restricted:latest"'


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("r-b-node-0-0-x7k2p", "Pod"),
        ("r-b-probe-0-x7k2p", "Pod"),
        ("r-b-node-0", "Job"),
        ("r-b", "JobSet"),
        ("r-b-x7k2p", "RayCluster"),
    ],
)
def test_what_is_said_of_a_run_whose_name_begins_with_this_ones_is_none_of_its_own(
    tmp_path: pathlib.Path, told: Told, name: str, kind: str
) -> None:
    told.heard.put(("event", WatchEvent("ADDED", warning(name, "FailedCreate", FATAL, kind))))
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    outcome, _, progress = follow(tmp_path, told)
    assert outcome.outcome == "succeeded" and not any("PodSecurity" in line for line in progress.lines)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("r", "JobSet"), ("r", "MPIJob"), ("r-node-0", "Job"), ("r-node", "Job"), ("r-x7k2p", "RayCluster")],
)
def test_what_is_said_of_an_object_that_was_made_for_the_run_counts(
    tmp_path: pathlib.Path, told: Told, name: str, kind: str
) -> None:
    told.heard.put(("event", WatchEvent("ADDED", warning(name, "FailedCreate", FATAL, kind))))
    outcome, _, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.cause) == ("failed", "admission")


def _workload(told: Told, active: bool = False, **status: t.Any) -> None:
    owner = {"kind": "Workload", "metadata": {"name": "w", "namespace": "n", "ownerReferences": [{"uid": "main"}]}}
    conditions = [{"type": key, "status": "True", **value} for key, value in status.items()]
    spec = {"active": active}
    value = {"apiVersion": "kueue.x-k8s.io/v1beta2", **owner, "spec": spec, "status": {"conditions": conditions}}
    told.heard.put(("workload", WatchEvent("MODIFIED", value)))


@pytest.mark.parametrize("worked", [False, True])
def test_a_run_that_its_queue_gave_up_is_an_end(tmp_path: pathlib.Path, told: Told, worked: bool) -> None:
    """Kueue suspends its job for good: no pod will come, and the engine never says that it ended."""
    if worked:
        told.tell_pod("a")
        told.tell_rank("a", 1, 0, world_size=2)
    told.tell_main("Suspended")
    _workload(told, Evicted={"reason": "DeactivatedDueToMaximumExecutionTimeExceeded", "message": "exceeding it"})
    outcome, _, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.cause) == ("failed", "queue") and "exceeding it" in outcome.detail


def test_a_run_that_somebody_set_aside_waits_and_says_so(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_main("Suspended")
    _workload(told, True, QuotaReserved={"status": "False", "reason": "Pending", "message": "no room"})
    _workload(told, Evicted={"reason": "Deactivated", "message": "The workload is deactivated"})
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    outcome, _, progress = follow(tmp_path, told)
    assert outcome.outcome == "succeeded"
    assert any("set its spec.active to true to continue" in line for line in progress.lines)


def test_a_run_that_was_given_up_and_activated_again_waits(tmp_path: pathlib.Path, told: Told) -> None:
    """Kueue takes its word back only when there is quota again."""
    told.tell_main("Suspended")
    evicted = {"reason": "DeactivatedDueToRequeuingLimitExceeded", "message": "exceeding it"}
    _workload(told, True, Evicted=evicted, QuotaReserved={"status": "False", "reason": "Pending", "message": "no room"})
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    assert follow(tmp_path, told)[0].outcome == "succeeded"


def test_what_was_told_of_a_pod_before_it_counts_with_all_its_words(tmp_path: pathlib.Path, told: Told) -> None:
    """The first words of a failed pull are no end, the later ones are."""
    for reason, message in (
        ("Failed", 'Failed to pull image "i": not found'),
        ("BackOff", 'Back-off pulling image "i"'),
    ):
        told.heard.put(("event", WatchEvent("ADDED", warning("r-a", reason, message))))
    told.tell_pod("a", "waiting", phase="Pending", containerStatuses=[])
    outcome, _, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.cause) == ("failed", "image")


def mount_failed(told: Told, message: str) -> None:
    told.heard.put(
        ("event", WatchEvent("ADDED", warning("r-a", "FailedMount", f"MountVolume.SetUp failed: {message}")))
    )


def test_what_passes_by_itself_within_seconds_is_said_only_if_it_lasts(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load and after the loss of a node kubelets and Kueue are behind: that is no defect of the job."""
    behind = 'admission webhook "mjob.kb.io" denied the request: JobSet "r" not found'
    for lasts in (False, True):
        if lasts:
            monkeypatch.setattr(pending, "_EARLY_S", -1.0)
        told.tell_pod("a", "waiting", phase="Pending", containerStatuses=[])
        mount_failed(told, "failed to sync configmap cache: timed out waiting for the condition")
        told.heard.put(("event", WatchEvent("ADDED", warning("r", "JobCreationFailed", behind, "JobSet"))))
        threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
        outcome, _, progress = follow(tmp_path, told)
        assert outcome.outcome == "succeeded"
        said = [line for line in progress.lines if "configmap cache" in line or "not found" in line]
        assert len(said) == (2 if lasts else 0), said


def test_what_a_gangs_pods_have_in_common_is_said_once(tmp_path: pathlib.Path, told: Told) -> None:
    for uid in "ab":
        waits = {"name": "node", "state": {"waiting": {"reason": "ErrImagePull", "message": "dial tcp: refused"}}}
        told.tell_pod(uid, "waiting", containerStatuses=[waits], phase="Pending")
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    _, _, progress = follow(tmp_path, told)
    assert [line for line in progress.lines if "dial tcp" in line] == [
        "Pod n/r-a: its image cannot be pulled: ErrImagePull: dial tcp: refused"
    ]


@pytest.mark.parametrize("begun", [False, True])
def test_what_a_pod_mounts_and_is_gone_is_put_back_and_ends_a_run_only_if_it_stays_away(
    tmp_path: pathlib.Path, told: Told, begun: bool
) -> None:
    """Also of a run that has worked: none of its next attempts would start."""
    restored: list[float] = []
    for lasts in (False, True):
        follower, progress = follower_of(tmp_path / str(lasts), told)
        if lasts:
            patient(follower, -1.0)
        follower.restore = lambda: restored.append(1.0)
        (tmp_path / str(lasts)).mkdir()
        if begun:
            told.tell_pod("a")
            told.tell_rank("a", 1, 0, world_size=2)
        told.tell_pod("a", "waiting", phase="Pending")
        for _time in range(3):
            mount_failed(told, 'configmap "r-program-1" not found')
        timer = threading.Timer(0.3, lambda: told.tell_main("Completed"))
        timer.start()
        outcome = follower.run()
        timer.join()
        told.heard.queue.clear()
        assert (outcome.outcome, outcome.cause) == (("failed", "volume") if lasts else ("succeeded", "succeeded"))
        assert any(
            'a volume is missing: FailedMount: MountVolume.SetUp failed: configmap "r-pro' in x for x in progress.lines
        )
    assert len(restored) == 2, "looked for every ten seconds at most"


TOO_LARGE = (
    "couldn't assign flavors to pod set node: insufficient quota for cpu in flavor main, previously considered podsets "
    "requests (0) + current podset request (7500m) > maximum capacity (6)"
)


@pytest.mark.parametrize("worked", [False, True])
def test_a_run_that_never_fits_its_queue_ends_unless_it_once_did(
    tmp_path: pathlib.Path, told: Told, worked: bool
) -> None:
    """A quota that is made smaller under a run may grow again."""
    if worked:
        told.tell_pod("a")
        told.tell_rank("a", 1, 0, world_size=2)
    told.tell_main("Suspended")
    _workload(told, True, QuotaReserved={"status": "False", "reason": "Pending", "message": TOO_LARGE})
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    outcome, _, progress = follow(tmp_path, told)
    assert outcome.cause == ("succeeded" if worked else "queue")
    assert any("will never fit: 7.5 CPU asked, the queue has 6" in line for line in progress.lines)


def test_the_last_word_names_what_kept_containers_from_starting(tmp_path: pathlib.Path, told: Told) -> None:
    """The engine says only that it was restarted often enough."""
    told.tell_pod("a", "waiting", phase="Pending", containerStatuses=[])
    told.heard.put(("event", WatchEvent("ADDED", warning("r-a", "Failed", "Error: error mounting /x: no such device"))))
    told.tell_main("Failed")
    outcome, _, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.cause) == ("failed", "container") and "error mounting /x" in outcome.detail
