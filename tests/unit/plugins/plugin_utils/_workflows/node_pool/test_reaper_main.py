# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reaper as its unit runs it: without Ansible, from a settings file, with exit statuses."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import (
    LedgerWriter,
    read_ledger,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import reaper_main
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.accounts import Externals
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.present import Context
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.virtual import InlineScheduler, VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN, FakeWire

NAME = "lab-h100-0-1f2e3d4c"
PLUGINS = pathlib.Path(reaper_main.__file__).resolve().parents[3]
PACK = PLUGINS.parent / "roles" / "teardown" / "files" / "pack_reaper.py"


def ledger(folder: pathlib.Path, clock: VirtualClock, ident: str, lease_s: float) -> None:
    line = {
        "schema": 1,
        "at": format_time(clock.time()),
        "cluster": "lab",
        "token": "1f2e3d4c",
        "event": "intent",
        "resource": "instance",
        "provider": "lambda",
        "account": "ours",
        "pool": "h100",
        "name": NAME,
        "deadline": format_time(clock.time() + lease_s),
        "price_usd_per_hour": 2.99,
    }
    with LedgerWriter(folder / "lab") as writer:
        writer.append(LedgerEvent.from_dict(line))
        writer.append(LedgerEvent.from_dict({**line, "event": "created", "id": ident}))


def test_a_lease_ends_at_its_deadline_without_a_controller(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = VirtualClock()
    api = FakeLambda(clock)
    thing = api.make(NAME, ssh_key_names=["k"], tags=[], end="active")
    ledger(tmp_path, clock, thing.id, 600)
    (tmp_path / "key").write_text(TOKEN + "\n")
    with api.loopback() as url:
        provider = {"name": "lambda", "account": "ours", "api_token_file": str(tmp_path / "key"), "api_url": url}
        place = tmp_path / "reaper.json"
        settings = {"cluster": "lab", "state_home": {"path": str(tmp_path)}, "providers": [provider]}
        place.write_text(json.dumps({**settings, "metrics_file": str(tmp_path / "leases.prom")}))
        context = Context(tmp_path, externals=Externals(clock, FakeWire(clock), {}), scheduler=InlineScheduler(clock))
        assert reaper_main.main([str(place)], context) == 0
        assert len(api.alive()) == 1
        assert f'muster_lease_usd_per_hour{{node="{NAME}"' in (tmp_path / "leases.prom").read_text()
        clock.sleep(601)
        assert reaper_main.main([str(place)], context) == 0
        assert api.alive() == []
        api.make("lab-h100-1-0badcafe", ssh_key_names=["k"], tags=[], end="active")
        assert reaper_main.main([str(place)], context) == 1
    shown = capsys.readouterr()
    assert "muster_lease" not in (tmp_path / "leases.prom").read_text()
    assert "0badcafe" in shown.err and TOKEN not in shown.out + shown.err
    assert "deadline" in shown.out
    assert {lease.state for lease in read_ledger(tmp_path / "lab").leases.values()} == {"verified"}


@pytest.mark.parametrize(
    ("text", "word"),
    [("{", "JSON"), ("[]", "mapping"), ("{}", "cluster"), ('{"cluster": "lab", "provider": []}', "providers")],
)
def test_settings_that_make_no_sense(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], text: str, word: str
) -> None:
    (tmp_path / "reaper.json").write_text(text)
    assert reaper_main.main([str(tmp_path / "reaper.json")]) == 2
    assert word in capsys.readouterr().err


def test_the_packed_program_needs_no_ansible_and_nothing_beside_it(tmp_path: pathlib.Path) -> None:
    archive = packed(tmp_path)
    code = (
        "import sys\n"
        "import ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.reaper_main as reap\n"
        "assert not [name for name in sys.modules if name == 'ansible' or name.startswith('ansible.')]\n"
        "files = [str(getattr(module, '__file__', '')) for name, module in sys.modules.items() if 'muster' in name]\n"
        f"assert all(name.startswith({str(archive)!r}) for name in files if name != 'None'), files\n"
        "sys.exit(reap.main([]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive)},
    )
    assert done.returncode == 2 and "usage" in done.stderr, done.stderr


def test_packing_twice_changes_nothing(tmp_path: pathlib.Path) -> None:
    archive = packed(tmp_path)
    before = archive.read_bytes()
    assert packed(tmp_path, "same").read_bytes() == before
    archive.write_bytes(before + b"x")
    assert packed(tmp_path).read_bytes() == before


def packed(folder: pathlib.Path, said: str = "packed") -> pathlib.Path:
    place = folder / "reaper.zip"
    argv = [sys.executable, str(PACK), str(PLUGINS), str(place)]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip() == said
    return place


def test_settings_have_defaults(tmp_path: pathlib.Path) -> None:
    (tmp_path / "reaper.json").write_text('{"cluster": "lab"}')
    found: dict[str, t.Any] = reaper_main.read_settings(tmp_path / "reaper.json")
    assert found["due_only"] is True and found["orphans"] == "report"
