# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image for another architecture ends the wait for a probe at its first word; on real nodes it is in tests/lab."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import wait
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    network_preflight,
)

NO_MATCH = 'failed to pull and unpack image "i:1": no match for platform in manifest: not found'
REFUSED = r"job\.image: i:1 is not made for the architecture of its node: .*"
PLAN: t.Any = types.SimpleNamespace(namespace="n", job=types.SimpleNamespace(image="i:1", nodes=2))
FACTS: t.Any = types.SimpleNamespace(policies=[], eligible=lambda _job: {"uid-a", "uid-b"})
MAIN: dict[str, t.Any] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "r-probe", "namespace": "n"}}


class Client:
    """A cluster without warnings whose pods said one line."""

    def __init__(self, line: bytes) -> None:
        self.said = line
        self.line: t.Any = types.SimpleNamespace(recovering=lambda: False)

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
        return types.SimpleNamespace(end=end, outages=0, line=lambda: "its Job failed")

    monkeypatch.setattr(network_preflight._StartProblems, "_listen", lambda _self: None)
    monkeypatch.setattr(wait, "wait", waited)
    monkeypatch.setattr(wait, "WaitTarget", lambda *_args, **_more: types.SimpleNamespace(name="r-probe"))
    monkeypatch.setattr(network_preflight, "_delete_leftover", lambda _client, _plan, _main: done.append("swept"))
    monkeypatch.setattr(network_preflight.network_test_job, "build", lambda _plan: [MAIN])
    monkeypatch.setattr(network_preflight, "apply", lambda *_args: types.SimpleNamespace(objects=lambda: [MAIN]))
    monkeypatch.setattr(network_preflight, "delete_objects", lambda _client, made: done.append(f"cleared {len(made)}"))
    monkeypatch.setattr(network_preflight, "_network_key", lambda _client, _plan, _policies: "key")
    client: t.Any = Client(line)
    client.line = types.SimpleNamespace(recovering=lambda: left.pop(0) if left else False)
    return client, done


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"exec /usr/bin/python3: exec format error", REFUSED + "exec format error"),
        (b"node rank 1 (b) did not connect within 60 s", "pods of the namespace n do not reach each other"),
    ],
)
def test_a_program_that_linux_cannot_run_is_no_network(
    line: bytes, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    client, done = failing(monkeypatch, line)
    with pytest.raises(RefusedError, match=expected):
        network_preflight.run_preflight(client, PLAN, home(tmp_path), said(), FACTS)
    assert done == ["swept", "probed", "cleared 1"]
    assert not (tmp_path / "pod_network.json").exists()


def test_pods_that_never_start_say_nothing_of_the_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    client, done = failing(monkeypatch, b"")
    late = types.SimpleNamespace(end="timeout", outages=0, line=lambda: "Pod n/r-probe-0: is not scheduled")
    monkeypatch.setattr(wait, "wait", lambda *_args, **_more: late)
    with pytest.raises(RefusedError, match=r"probe n/r-probe did not end within 600 s: Pod n/r-probe-0: is not sched"):
        network_preflight.run_preflight(client, PLAN, home(tmp_path), said(), FACTS)
    assert done == ["swept", "cleared 1"]


def test_names_that_an_outage_took_are_probed_for_as_long_as_it_is_fresh(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    line = b"r-probe-0.r-probe:4242: Name or service not known"
    client, done = failing(monkeypatch, line, fresh=[True, True, True])
    network_preflight.run_preflight(client, PLAN, home(tmp_path), said(), FACTS)
    assert done == ["swept", "probed", "cleared 1"] * 4
    noted = json.loads((tmp_path / "pod_network.json").read_text())["key"]
    assert noted["nodes"] == ["uid-a", "uid-b"]
    # Believed of these nodes and of fewer, and of none that came later.
    for nodes, probes in (({"uid-b"}, 0), ({"uid-b", "uid-c"}, 1)):
        done.clear()
        now: t.Any = types.SimpleNamespace(policies=[], eligible=lambda _job, nodes=nodes: nodes)
        network_preflight.run_preflight(client, PLAN, home(tmp_path), said(), now)
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
    client: t.Any = types.SimpleNamespace(server="https://x")
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
        network_preflight.run_preflight(client, PLAN, home(tmp_path), said(), FACTS)
    assert done == ["swept", "probed", "cleared 1"] * 2


def test_an_outage_excuses_no_image_of_another_architecture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    client, done = failing(monkeypatch, b"exec /usr/bin/python3: exec format error", fresh=[True, True])
    with pytest.raises(RefusedError, match=REFUSED):
        network_preflight.run_preflight(client, PLAN, home(tmp_path), said(), FACTS)
    assert done == ["swept", "probed", "cleared 1"]
