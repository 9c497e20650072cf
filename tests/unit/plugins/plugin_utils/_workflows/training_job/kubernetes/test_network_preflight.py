# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which causes end the wait for a probe at once, and which are only told; the probe itself is in tests/lab."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.watch import WatchEvent
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import wait
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    network_preflight,
    pending,
)

Dict = dict[str, t.Any]
MADE: Dict = {"metadata": {"name": "r-probe", "creationTimestamp": "2026-11-21T10:00:00Z"}}
JOB: Dict = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "r-probe", "namespace": "n"}}


class Warnings:
    """A watch that has these warnings."""

    at = "2026-11-21T10:00:00Z"

    def __init__(self, *told: tuple[str, str, str]) -> None:
        self.events = [
            WatchEvent(
                "ADDED",
                {
                    "type": "Warning",
                    "involvedObject": about,
                    "reason": reason,
                    "message": message,
                    "lastTimestamp": self.at,
                },
            )
            for name, reason, message in told
            for about in [{"kind": "Job", "name": name, "namespace": "n"}]
        ]

    def __iter__(self) -> t.Iterator[WatchEvent]:
        return iter([*self.events, WatchEvent("SYNCED", {})])

    def close(self) -> None:
        return


def causes(*told: tuple[str, str, str], outage: bool = False) -> tuple[network_preflight._StartProblems, list[str]]:
    said: list[str] = []
    transport = types.SimpleNamespace(is_recovering=lambda: outage)
    client = types.SimpleNamespace(watch=lambda *_a, **_k: Warnings(*told), transport=transport)
    job = types.SimpleNamespace(image="i:1", placement=types.SimpleNamespace(start_wait_s=180))
    plan = types.SimpleNamespace(namespace="n", job=job)
    made = network_preflight._StartProblems(t.cast(t.Any, client), t.cast(t.Any, plan), MADE, t.cast(t.Any, Said(said)))
    for _ in range(200):
        if len(said) >= len({item for item in told if item[0].startswith("r-probe")}):
            break
        network_preflight.time.sleep(0.01)
    return made, said


class Said:
    """Keeps lines."""

    def __init__(self, lines: list[str]) -> None:
        self.say = lines.append


def pulling(reason: str) -> Dict:
    waits = [{"name": "node", "state": {"waiting": {"reason": reason, "message": "no such image"}}}]
    meta = {"name": "r-probe-0-x", "namespace": "n"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {"containerStatuses": waits}}


def test_an_image_is_given_another_try_and_then_refused() -> None:
    made, said = causes()
    assert made.rule(pulling("ErrImagePull")).phase == "waiting"
    with pytest.raises(RefusedError, match=r"job\.image: i:1 cannot be pulled: ImagePullBackOff: no such image"):
        made.rule(pulling("ImagePullBackOff"))
    assert said == ["network test: Pod n/r-probe-0-x: its image cannot be pulled: ErrImagePull: no such image"]


def test_an_image_without_the_program_is_named() -> None:
    """The pods' program is started by the image's own Python."""
    missing = 'failed to create containerd task: exec: "python3": executable file not found in $PATH'
    made, said = causes(("r-probe-0-abcde", "Failed", f"Error: {missing}"))
    with pytest.raises(RefusedError, match=r"job\.image: i:1 lacks the program that is to start: .*python3") as caught:
        made.rule(JOB)
    assert "Python 3.10 or newer" in str(caught.value) and len(said) == 1


def test_a_pod_that_never_ran_is_no_network_that_refuses_it() -> None:
    """The other pod waits for it in vain and says so; the quota's own words are the cause."""
    words = 'pods "r-probe-1-abcde" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1'
    made, said = causes(("r-probe", "FailedCreate", words))
    ran = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "r-probe-0-x", "namespace": "n", "uid": "u"}}
    made.rule(t.cast(t.Any, {**ran, "status": {"phase": "Running"}}))
    found = made.find_absence(2)
    assert (
        found is not None and "the namespace's quota is used up" in found.message and "exceeded quota" in found.message
    )
    assert "so 1 of 2 pods of the network test ran" in found.message and "quota raised" in str(found.fix)
    assert made.find_absence(1) is None and len(said) == 1
    assert causes()[0].find_absence(2) is None, "nothing is known of it: what the pods say is all there is"


def test_a_registry_that_is_away_is_waited_for_as_long_as_the_job_says() -> None:
    made, said = causes()
    waits = [{"name": "node", "state": {"waiting": {"reason": "ErrImagePull", "message": "dial tcp: refused"}}}]
    pod = {**pulling("ErrImagePull"), "status": {"phase": "Pending", "containerStatuses": waits}}
    pod["metadata"] = {**pod["metadata"], "uid": "u"}
    assert made.rule(pod).phase == "waiting" and "dial tcp: refused" in said[0]
    made._hindrances.wait_s = -1.0
    with pytest.raises(
        RefusedError, match=r"dial tcp: refused; it lasted for more than placement\.start_wait_s"
    ) as end:
        made.rule(pod)
    assert "Check that the nodes reach its registry" in str(end.value)
    # Once it runs, the registry has answered.
    running = {**pod, "status": {"phase": "Running", "containerStatuses": []}}
    assert made.rule(running).phase == "waiting"


def test_what_the_namespace_forbids_ends_the_wait() -> None:
    made, said = causes(("r-probe", "FailedCreate", 'violates PodSecurity "restricted:latest"'))
    with pytest.raises(RefusedError, match=r"Job n/r-probe: FailedCreate: violates PodSecurity"):
        made.rule(JOB)
    assert len(said) == 1


def test_what_was_said_of_a_probe_before_is_old_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names repeat, and events stay for an hour: what was refused then may be allowed now."""
    monkeypatch.setattr(Warnings, "at", "2026-11-21T09:59:59Z")
    made, said = causes(("r-probe", "FailedCreate", 'violates PodSecurity "restricted:latest"'))
    assert made.rule(JOB).phase == "waiting" and said == []


def test_what_is_refused_just_after_an_outage_is_told_and_waited_for() -> None:
    made, said = causes(("r-probe", "FailedCreate", 'violates PodSecurity "restricted:latest"'), outage=True)
    assert made.rule(JOB).phase == "waiting" and len(said) == 1


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("FailedCreate", 'admission webhook "mpod.kb.io" denied the request: Job.batch "r-probe" not found'),
        ("FailedMount", 'MountVolume.SetUp failed for volume "spec": failed to sync configmap cache: timed out'),
    ],
)
def test_what_passes_within_seconds_is_said_only_if_it_lasts(
    monkeypatch: pytest.MonkeyPatch, reason: str, words: str
) -> None:
    """Under load Kueue and kubelets are behind: that is no defect of the job."""
    for lasts in (False, True):
        if lasts:
            monkeypatch.setattr(pending, "_EARLY_S", -1.0)
        made, said = causes(("r-probe", reason, words))
        assert made.rule(JOB).phase == "waiting" and len(said) == lasts


def test_what_the_pods_have_in_common_is_said_once() -> None:
    made, said = causes()
    for name in ("a", "b"):
        pod = pulling("ErrImagePull")
        pod["metadata"] = {"name": f"r-probe-0-{name}", "namespace": "n", "uid": name}
        assert made.rule(pod).phase == "waiting"
    assert len(said) == 1


def test_what_may_pass_is_told_and_waited_for() -> None:
    made, said = causes(
        ("r-probe", "FailedCreate", "failed calling webhook x"), ("other", "FailedMount", "not of the probe")
    )
    assert made.rule(JOB).phase == "waiting"
    assert said == [
        "network test: Job n/r-probe: an admission webhook of the cluster does not answer: FailedCreate: failed calling webhook x"
    ]


NO_MATCH = 'failed to pull and unpack image "i:1": no match for platform in manifest: not found'
REFUSED = r"job\.image: i:1 is not made for the architecture of its node: .*"
PLACE = types.SimpleNamespace(start_wait_s=180)
PLAN: t.Any = types.SimpleNamespace(namespace="n", job=types.SimpleNamespace(image="i:1", nodes=2, placement=PLACE))
NODES = {"uid-a", "uid-b"}
MAIN: dict[str, t.Any] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "r-probe", "namespace": "n"}}


class Client:
    """A cluster without warnings whose pods said one line."""

    def __init__(self, line: bytes) -> None:
        self.said = line
        self.transport: t.Any = types.SimpleNamespace(is_recovering=lambda: False)

    def watch(self, *_args: t.Any, **_more: t.Any) -> t.Any:
        return types.SimpleNamespace(__iter__=lambda: iter(()), close=lambda: None)

    def resource(self, about: t.Any) -> t.Any:
        return about

    def list(self, *_args: t.Any, **_more: t.Any) -> t.Any:
        return types.SimpleNamespace(items=[{"metadata": {"name": "r-probe-0-x"}}])

    def stream_log(self, *_args: t.Any, **_more: t.Any) -> t.Iterator[bytes]:
        return iter([self.said])


def home(folder: pathlib.Path) -> t.Any:
    return types.SimpleNamespace(folder=folder)


def said() -> t.Any:
    return types.SimpleNamespace(say=lambda _line: None)


def test_the_first_word_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another name is looked up again in a moment; another architecture is not waited for."""
    monkeypatch.setattr(network_preflight._StartProblems, "_listen", lambda _self: None)
    seen = network_preflight._StartProblems(t.cast(t.Any, Client(b"")), PLAN, MAIN, said())
    waits = [{"name": "node", "state": {"waiting": {"reason": "ErrImagePull", "message": NO_MATCH}}}]
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": MAIN["metadata"], "status": {"containerStatuses": waits}}
    with pytest.raises(RefusedError, match=REFUSED + "no match for platform in manifest") as caught:
        seen.rule(pod)
    assert "Build it for that architecture" in str(caught.value)


def failing(monkeypatch: pytest.MonkeyPatch, line: bytes, *, fresh: t.Sequence[bool] = ()) -> tuple[t.Any, list[str]]:
    """Return a client whose probes fail with this line, and what is done; ``fresh``: is an outage just over, each time.

    After as many failures as ``fresh`` has, a probe finds that the pods reach each other.
    """
    done: list[str] = []
    left = list(fresh)

    def waited(*_args: t.Any, **_more: t.Any) -> t.Any:
        done.append("probed")
        end = "done" if fresh and not left else "failed"
        return types.SimpleNamespace(end=end, outages=0, summary=lambda: "its Job failed")

    monkeypatch.setattr(network_preflight._StartProblems, "_listen", lambda _self: None)
    monkeypatch.setattr(wait, "wait", waited)
    monkeypatch.setattr(wait, "WaitTarget", lambda *_args, **_more: types.SimpleNamespace(name="r-probe"))
    monkeypatch.setattr(network_preflight, "_delete_leftover", lambda _client, _plan, _main: done.append("swept"))
    monkeypatch.setattr(network_preflight.network_test_job, "build", lambda _plan: [MAIN])
    monkeypatch.setattr(network_preflight, "apply", lambda *_args: types.SimpleNamespace(objects=lambda: [MAIN]))
    monkeypatch.setattr(network_preflight, "set_owner", lambda made, _live: made)
    monkeypatch.setattr(network_preflight, "delete_objects", lambda _client, made: done.append(f"cleared {len(made)}"))
    monkeypatch.setattr(network_preflight, "_network_key", lambda _client, _plan, _policies: "key")
    client: t.Any = Client(line)
    client.transport = types.SimpleNamespace(is_recovering=lambda: left.pop(0) if left else False)
    return client, done


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"exec /usr/bin/python3: exec format error", REFUSED + "exec format error"),
        (b"node rank 1 (b) did not come within 60 s", "pods of the namespace n do not reach each other"),
    ],
)
def test_a_program_that_linux_cannot_run_is_no_network(
    line: bytes, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    client, done = failing(monkeypatch, line)
    with pytest.raises(RefusedError, match=expected):
        network_preflight.run_preflight(client, PLAN, home(tmp_path), said(), NODES, [])
    assert done == ["swept", "probed", "cleared 1"]
    assert not (tmp_path / "pod_network.json").exists()
    # With another image, or a policy that lets the pods through, the next start goes on.
    mended = types.SimpleNamespace(end="done", outages=0, summary=lambda: "")
    monkeypatch.setattr(wait, "wait", lambda *_args, **_more: mended)
    network_preflight.run_preflight(client, PLAN, home(tmp_path), said(), NODES, [])
    assert (tmp_path / "pod_network.json").exists()


def test_pods_that_never_start_say_nothing_of_the_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    client, done = failing(monkeypatch, b"")
    late = types.SimpleNamespace(end="timeout", outages=0, summary=lambda: "Pod n/r-probe-0: is not scheduled")
    monkeypatch.setattr(wait, "wait", lambda *_args, **_more: late)
    with pytest.raises(
        RefusedError, match=r"network test n/r-probe did not end within 600 s: Pod n/r-probe-0: is not sched"
    ):
        network_preflight.run_preflight(client, PLAN, home(tmp_path), said(), NODES, [])
    assert done == ["swept", "cleared 1"]


def test_names_that_an_outage_took_are_probed_for_as_long_as_it_is_fresh(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    line = b"r-probe-0.r-probe:4242: Name or service not known"
    client, done = failing(monkeypatch, line, fresh=[True, True, True])
    network_preflight.run_preflight(client, PLAN, home(tmp_path), said(), NODES, [])
    assert done == ["swept", "probed", "cleared 1"] * 4
    noted = json.loads((tmp_path / "pod_network.json").read_text())["key"]
    assert noted["nodes"] == ["uid-a", "uid-b"]
    # Believed of these nodes and of fewer, and of none that came later.
    for nodes, probes in (({"uid-b"}, 0), ({"uid-b", "uid-c"}, 1)):
        done.clear()
        network_preflight.run_preflight(client, PLAN, home(tmp_path), said(), nodes, [])
        assert done.count("probed") == probes


@pytest.mark.parametrize(
    ("entry", "believed"),
    [
        ({"at": 1000.0, "nodes": ["a", "b"]}, True),
        ({"at": 1000.0 - 24 * 3600, "nodes": ["a", "b"]}, False),
        ({"at": 2000.0, "nodes": ["a", "b"]}, False),
        ({"at": 1000.0, "nodes": ["a"]}, False),
        ({"at": "x", "nodes": ["a", "b"]}, False),
        # As earlier versions wrote it.
        (1000.0, False),
        (None, False),
    ],
)
def test_what_was_proven_is_believed_for_a_day(entry: t.Any, believed: bool) -> None:
    assert network_preflight._is_proven(entry, ["a", "b"], 1001.0) is believed


def test_a_policy_that_changes_is_probed_again_and_those_of_runs_are_not() -> None:
    client: t.Any = types.SimpleNamespace(server="https://x", authority="", cluster_id=lambda: "u-1")
    job = types.SimpleNamespace(placement=types.SimpleNamespace(island=None))
    plan: t.Any = types.SimpleNamespace(namespace="n", host_network=False, job=job, queue=None)
    policy = {"metadata": {"name": "deny"}, "spec": {"policyTypes": ["Ingress"]}}
    of_run = {"metadata": {"name": "r", "labels": {"muster.training/run-id": "r"}}, "spec": {}}
    bare, standing = (
        network_preflight._network_key(client, plan, []),
        network_preflight._network_key(client, plan, [policy]),
    )
    other = network_preflight._network_key(client, plan, [{**policy, "spec": {"policyTypes": ["Egress"]}}])
    assert len({bare, standing, other}) == 3 and network_preflight._network_key(client, plan, [of_run]) == bare


def test_an_outage_of_long_ago_excuses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    line = b"r-probe-0.r-probe:4242: Name or service not known"
    client, done = failing(monkeypatch, line, fresh=[True, False])
    with pytest.raises(RefusedError, match="do not reach each other: r-probe-0.r-probe:4242: Name or service"):
        network_preflight.run_preflight(client, PLAN, home(tmp_path), said(), NODES, [])
    assert done == ["swept", "probed", "cleared 1"] * 2


def test_an_outage_excuses_no_image_of_another_architecture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    client, done = failing(monkeypatch, b"exec /usr/bin/python3: exec format error", fresh=[True, True])
    with pytest.raises(RefusedError, match=REFUSED):
        network_preflight.run_preflight(client, PLAN, home(tmp_path), said(), NODES, [])
    assert done == ["swept", "probed", "cleared 1"]
