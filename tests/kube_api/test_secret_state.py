# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state in a namespace of a real API server: conditions hold, whoever comes at once."""

from __future__ import annotations

import pathlib
import threading
import time

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.state_store import StateConflictError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.secret_state import LABEL, SecretState
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.open_ledger import StoredLedger
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_lock import (
    LockHeldError,
    StoreLock,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_sync import StateSync
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

EVENT = LedgerEvent(
    at="2026-01-01T00:00:00Z", event="intent", token="10000001", cluster="lab", pool="p", provider="runpod",
    account="a", resource="instance", name="n",
)  # fmt: skip


@pytest.fixture
def store(client: Client, namespace: str) -> SecretState:
    return SecretState(client, namespace, "lab")


def test_every_write_names_what_it_replaces(store: SecretState) -> None:
    first = store.write("index", b"1", None)
    with pytest.raises(StateConflictError):
        store.write("index", b"2", None)
    second = store.write("index", b"2", first)
    with pytest.raises(StateConflictError):
        store.write("index", b"3", first)
    found = store.read("index")
    assert found is not None and (found.data, found.version) == (b"2", second)
    store.delete("index", first)
    assert store.read("index") is not None
    store.delete("index", second)
    assert store.read("index") is None
    with pytest.raises(StateConflictError):
        store.write("index", b"4", second)


def test_of_eight_that_create_at_once_one_does(store: SecretState) -> None:
    for number in range(5):
        won, gate = [], threading.Barrier(8)

        def create(
            who: int, name: str = f"race-{number}", won: list[int] = won, gate: threading.Barrier = gate
        ) -> None:
            gate.wait()
            try:
                store.write(name, str(who).encode(), None)
                won.append(who)
            except StateConflictError:
                pass

        threads = [threading.Thread(target=create, args=(who,)) for who in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1


def test_a_lock_is_a_lease_that_kubectl_shows(store: SecretState, client: Client, namespace: str) -> None:
    with StoreLock(store, "ledger", "the ledger of lab") as lock:
        leases = client.list("coordination.k8s.io/v1/Lease", namespace, labels=f"{LABEL}=lab").items
        assert [item["spec"]["holderIdentity"][:8] for item in leases] == ["process "]  # type: ignore[index]
        with pytest.raises(LockHeldError, match="the ledger of lab is in use by process"):
            StoreLock(store, "ledger", "the ledger of lab").__enter__()
        lock.require_held()
    assert store.read("locks/ledger") is None


def test_a_ledger_and_files_reach_the_next_controller(store: SecretState, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").mkdir()
    with (
        StateSync(store, tmp_path / "a", is_read_only=False),
        StoredLedger(store, tmp_path / "a", for_deletion=False) as it,
    ):
        it.append(EVENT)
        (tmp_path / "a/fabric.json").write_text('{"islands": []}')
    with StateSync(store, tmp_path / "b", is_read_only=True):
        assert [event.token for event in read_ledger(tmp_path / "b").events] == ["10000001"]
        assert (tmp_path / "b/fabric.json").read_text() == '{"islands": []}'


@pytest.mark.parametrize("ahead_s", [-7200.0, 7200.0])
def test_a_controller_whose_clock_is_wrong_takes_no_living_lock(
    store: SecretState, namespace: str, monkeypatch: pytest.MonkeyPatch, api: ApiServer, ahead_s: float
) -> None:
    """Both ways: the holder's clock is wrong, and that of the one who comes."""
    real = time.time
    with StoreLock(store, "ledger", "the ledger of lab"):
        monkeypatch.setattr(time, "time", lambda: real() + ahead_s)
        other = SecretState(connect({"kubeconfig": str(api.kubeconfig)}), namespace, "lab")
        with pytest.raises(LockHeldError, match="is in use by"):
            StoreLock(other, "ledger", "the ledger of lab").__enter__()
    with StoreLock(other, "ledger", "the ledger of lab"):
        monkeypatch.setattr(time, "time", real)
        found = store.read("locks/ledger")
        assert found is not None and found.age_s < 5


def test_a_namespace_that_is_not_there_is_said(client: Client) -> None:
    with pytest.raises(MusterError, match='namespaces "nowhere" not found'):
        SecretState(client, "nowhere", "lab").write("index", b"1", None)
