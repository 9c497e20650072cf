# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller that rents two machines at a fake provider for its runs, and a reaper elsewhere."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.plugin_utils._provision.run_exit_ssh import NodeEnd
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import present as node_pool_present
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import reaper_main, run_leases
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.accounts import Externals
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.fakes.cycle import KEY
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProber
from ansible_collections.muster.training.tests.fakes.virtual import InlineScheduler, VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN, FakeWire

PRICE = 2.99


def job(**changes: t.Any) -> Job:
    return parse_job({"name": "x", "nodes": 2, "script": "/t.py", **changes})


class World:
    """A controller that rents two machines at a fake, and a reaper elsewhere."""

    def __init__(self, folder: pathlib.Path, url: str, api: FakeLambda, clock: VirtualClock) -> None:
        self.api, self.clock, self.folder = api, clock, folder
        self.home = StateHome({"path": str(folder / "state")}, "lab")
        self.outside = Externals(clock, FakeWire(clock), {})
        self.stage = InlineScheduler(clock)
        self.providers = [{"name": "lambda", "api_token": TOKEN, "api_url": url}]
        self.said: list[str] = []
        self.ends: dict[str, NodeEnd] = {}
        (folder / "key").write_text(TOKEN)
        account = {"name": "lambda", "api_token_file": str(folder / "key"), "api_url": url}
        self.settings = folder / "settings.json"
        reaper = {"cluster": "lab", "state_home": {"path": str(folder / "reaper")}, "providers": [account]}
        self.settings.write_text(json.dumps(reaper))

    def rent(self, **options: t.Any) -> list[run_leases.RunHost]:
        values: dict[str, t.Any] = {
            "cluster": "lab",
            "pool": "h100",
            "count": 2,
            "providers": self.providers,
            "candidates": [{"provider": "lambda", "gpu_model": "H100"}],
            "ssh_public_key": KEY,
            "state_home": {"path": str(self.folder / "state")},
            "mixed": False,
            "readiness": {},
            "wait_timeout_s": 1800,
            "capacity_wait_s": 0,
            "max_replacements": 3,
            "release_timeout_s": 900,
            **options,
        }
        context = node_pool_present.Context(self.folder, False, self.outside, self.stage, SimProber())
        result = node_pool_present.ensure_present(values, context)
        assert not result.get("failed"), result
        return [run_leases.RunHost(item["name"], item, f"/state/{item['id']}/runs/r1") for item in result["nodes"]]

    def begin(self, given: Job, places: t.Sequence[run_leases.RunHost], run_id: str = "r1", **more: t.Any) -> t.Any:
        return run_leases.bind_leases(self.home, given, run_id, places, scheduler=self.stage, **more)

    def end(self, tenancy: run_leases.RunLeases, outcome: str, **more: t.Any) -> dict[str, t.Any]:
        more.setdefault("providers", self.providers)
        return tenancy.end(outcome, report=self.said.append, externals=self.outside, scheduler=self.stage, **more)

    def copy(self, events: t.Sequence[t.Any]) -> None:
        """Send the ledger to the reaper, as the mirror does over SSH."""
        place = self.folder / "reaper" / "lab" / "incoming"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{len(events):06d}.jsonl").write_text("".join(item.line() for item in events))

    def reap(self) -> int:
        def look(machine: t.Any, run_dir: str) -> NodeEnd:
            assert run_dir == f"/state/{machine.id}/runs/r1"
            return self.ends.get(machine.id, NodeEnd("running"))

        context = node_pool_present.Context(
            self.folder, externals=self.outside, scheduler=self.stage, read_run_end=look
        )
        return reaper_main.main([str(self.settings)], context)

    def alive(self) -> int:
        return len(self.api.alive())
