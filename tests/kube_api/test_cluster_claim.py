# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two controllers and one run on a cluster: one of them follows it."""

from __future__ import annotations

import pathlib
import threading
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import RUN_LABEL
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    leader_lease as subject,
)
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.run_world import Said

LEASE = "coordination.k8s.io/v1/Lease"


class Desk:
    """Controllers of one run; each has a state home of its own."""

    def __init__(self, client: Client, namespace: str, root: pathlib.Path) -> None:
        self.client, self.namespace, self.root, self.said = client, namespace, root, Said()
        self.made: t.Any = types.SimpleNamespace(name="r", run_id="r", namespace=namespace, labels={RUN_LABEL: "r"})

    def held(self, who: str, *, take_over: bool = False, client: Client | None = None) -> t.Any:
        home = StateHome({"path": str(self.root / who)}, "default")
        return subject.hold_lease(client or self.client, self.made, home, t.cast(t.Any, self.said), take_over)

    @property
    def holder(self) -> str:
        live = self.client.get(LEASE, "r", self.namespace)
        return str(live["spec"]["holderIdentity"]) if live else ""


@pytest.fixture
def desk(client: Client, namespace: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(subject, "DURATION_S", 2)
    monkeypatch.setattr(subject, "RENEW_S", 0.3)
    monkeypatch.setattr(subject, "_POLL_S", 0.05)
    return Desk(client, namespace, tmp_path)


def test_a_second_controller_is_told_who_follows(desk: Desk) -> None:
    with desk.held("first"):
        assert f"{desk.root}/first (" in desk.holder
        followed = r"run r is followed by another controller: .*/first \("
        with pytest.raises(RefusedError, match=followed) as caught, desk.held("second"):
            pytest.fail("two follow it")
        assert "muster_take_over" in caught.value.fix
        with desk.held("first"):
            assert "/first (" in desk.holder, "the same controller goes on"
    assert desk.holder == "", "given back: nothing is left"
    began = time.monotonic()
    with desk.held("second"):
        assert "/second (" in desk.holder and time.monotonic() - began < 1


def test_a_namespace_that_is_not_there_is_named(desk: Desk) -> None:
    desk.made.namespace = "typo-ns"
    before = desk.client.requests
    with pytest.raises(RefusedError, match="namespace typo-ns does not exist") as caught, desk.held("first"):
        pytest.fail("nothing can be held there")
    assert "placement.namespace" in caught.value.fix and desk.client.requests - before <= 3


def test_whoever_takes_over_ends_the_other_ones_following(desk: Desk) -> None:
    with desk.held("first") as first:
        first.check()
        with desk.held("second", take_over=True):
            end = time.monotonic() + 10
            while not first.lost_to and time.monotonic() < end:
                time.sleep(0.05)
            with pytest.raises(MusterError, match=r"run r was taken over by .*/second \("):
                first.check()
            first.release()
            assert "/second (" in desk.holder, "the lease of the other one stays"


def test_a_controller_that_is_gone_holds_nobody_up_for_long(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk.held("first") as first:
        # It was killed: nobody renews and nobody gives back.
        first._over.set()
        first._renewer.join()
        with desk.held("second"):
            assert "/second (" in desk.holder
            assert any("/first (" in line and "checking for renewals" in line for line in desk.said.lines)
            monkeypatch.undo()


def test_of_two_at_once_one_has_it(desk: Desk) -> None:
    got: list[str] = []
    refused: list[str] = []
    gate, done = threading.Barrier(4), threading.Event()

    def work(who: str) -> None:
        gate.wait()
        try:
            with desk.held(who):
                got.append(who)
                done.wait(20)
        except RefusedError as error:
            refused.append(str(error))
            if len(refused) == 3:
                done.set()

    threads = [threading.Thread(target=work, args=(f"c{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1 and len(refused) == 3


def test_who_may_not_use_leases_is_warned(desk: Desk, api: ApiServer) -> None:
    limited = connect({"kubeconfig": api.config({"token": "nobody-token-0123456789"})})
    with desk.held("first", client=limited) as claim:
        claim.check()
    assert any("no permission to use Leases" in line for line in desk.said.lines)


def killed(desk: Desk, name: str, renewed: str, **labels: str) -> None:
    """Leave the Lease of a controller that was killed."""
    spec = {"holderIdentity": "killed", "leaseDurationSeconds": 60, "renewTime": renewed}
    meta = {"name": name, "namespace": desk.namespace, "labels": labels}
    desk.client.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})


def test_leases_of_killed_controllers_end_by_their_duration(desk: Desk) -> None:
    """The next controller of the namespace deletes them: that of a run which nobody follows or cancels, too."""
    mine = {RUN_LABEL: "other"}
    killed(desk, "expired", "2026-01-01T00:00:00.000000Z", **mine)
    killed(desk, "renewed", "2999-01-01T00:00:00.000000Z", **mine)
    killed(desk, "of-another-program", "2026-01-01T00:00:00.000000Z")
    with desk.held("first"):
        subject.delete_expired(desk.client, desk.namespace)
        assert desk.holder, "it is followed"
        assert desk.client.get(LEASE, "expired", desk.namespace) is None
        killed(desk, "expired", "2026-01-01T00:00:00.000000Z", **mine)
    left = [item["metadata"]["name"] for item in desk.client.list(LEASE, desk.namespace).items]
    assert sorted(left) == ["of-another-program", "renewed"]


def test_a_controller_whose_clock_is_wrong_keeps_its_lease(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it writes is the API server's time."""
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    with desk.held("first"):
        subject.delete_expired(desk.client, desk.namespace)
        assert desk.holder
