# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: F401, F811  # fixtures are imported
"""The ledger's copy on the reaper's machine."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import types
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import (
    LedgerWriter,
    read_ledger,
)
from ansible_collections.muster.training.plugins.plugin_utils._provision.run_exit_ssh import NodeEnd
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import ledger_replica, run_leases
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import present as node_pool_present
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.lease_renewal import LeaseRenewal
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.support.rented_runs import PRICE, World, job
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.node_pool.run_world import world


def test_the_copy_arrives_whole_over_a_shell(world: World, tmp_path: pathlib.Path) -> None:
    def shell(command: str, data: bytes) -> tuple[int, str, str]:
        done = subprocess.run(["sh", "-c", command], input=data, capture_output=True, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    world.rent()
    events = read_ledger(world.home.folder).events
    state = tmp_path / "it's there"
    push = ledger_replica.replica_sender(NodeClient("keeper-1", shell), "lab", str(state))
    with pytest.raises(MusterError, match="keeper-1: the ledger could not be copied to it .no reaper is installed"):
        push(events)
    (state / "lab").mkdir(parents=True)
    push(events)
    push(events)
    found = sorted((state / "lab" / "incoming").iterdir())
    assert [path.suffix for path in found] == [".jsonl", ".jsonl"]
    assert found[0].read_bytes() == (world.home.folder / "ledger.jsonl").read_bytes()
    assert found[0].stat().st_mode & 0o777 == 0o600
