# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starting and stopping supervisors, detached and through a systemd that is a script here."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import typing as t
import uuid

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import files, host_units
from ansible_collections.muster.training.tests.support.node_lab import NodeLab, eventually

Dict = dict[str, t.Any]
# Supervisors end what carries the mark of their run, whoever started it: no two sessions share one.
RUN = f"r-{uuid.uuid4().hex[:8]}"
# Stands for a supervisor: says that it runs, then waits; its process is the one in state.json.
SUPERVISOR = """import json, os, pathlib, sys, time
spec = json.loads(pathlib.Path(sys.argv[2]).read_text())
fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
state = {"state": "running", "supervisor": f"{os.getpid()}@{fields[19]}", "generation": spec["generation"]}
place = pathlib.Path(spec["folder"], "state.json")
place.with_suffix(".tmp").write_text(json.dumps(state))
place.with_suffix(".tmp").replace(place)
time.sleep(60)
"""


@pytest.fixture
def lab(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[NodeLab]:
    lab = NodeLab(tmp_path)
    monkeypatch.setattr(host_units, "unit_manager", lambda: "detached")
    for name, value in lab.env.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "run.py").write_text(SUPERVISOR)
    yield lab
    lab.close()


def spec(lab: NodeLab, **changes: t.Any) -> Dict:
    return lab.spec("a", RUN, ["true"], **changes)


def test_a_unit_is_started_once_and_forgets_an_earlier_generation(lab: NodeLab) -> None:
    wanted = spec(lab)
    folder = files.private_dir(pathlib.Path(wanted["folder"]))
    files.write_json(folder / "exit.json", {"exit_code": 1})
    files.write_json(folder / "state.json", {"generation": 0, "crashes": 3, "supervisor": "1@1"})
    assert host_units.start_unit(wanted, lab.root) is True
    status = host_units.unit_status(folder)
    assert (status["alive"], status["exit"], status["crashes"], status["generation"]) == (True, None, 0, 1)
    assert files.read_json(folder / "spec.json") == {**wanted, "manager": "detached"}
    assert host_units.start_unit(wanted, lab.root) is False
    assert host_units.stop_unit(folder, 30) == [] and host_units.unit_status(folder)["alive"] is False


def test_a_supervisor_that_does_not_begin_is_an_error_with_the_place_of_its_log(
    lab: NodeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lab.root / "run.py").write_text("import sys\nsys.exit('broken')")
    real = host_units._wait_until
    monkeypatch.setattr(host_units, "_wait_until", lambda true, within_s: real(true, 0.05))
    with pytest.raises(OSError, match="the supervisor did not start, see .*/units/agent/supervisor.log"):
        host_units.start_unit(spec(lab), lab.root)
    log = pathlib.Path(spec(lab)["folder"]) / "supervisor.log"
    eventually(lambda: "broken" in log.read_text(), "the reason in the log")


def test_a_supervisor_that_ended_at_once_has_been_started(lab: NodeLab) -> None:
    folder = "pathlib.Path(json.load(open(sys.argv[2]))['folder'])"
    ended = f"import json, pathlib, sys\n({folder} / 'exit.json').write_text('{{}}')"
    (lab.root / "run.py").write_text(ended)
    assert host_units.start_unit(spec(lab), lab.root) is True


def test_stopping_ends_what_is_marked_and_removes_the_secrets(lab: NodeLab, tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "env.json"
    secret.write_text("{}")
    wanted = spec(lab, secrets=str(secret), secret_files=[str(tmp_path / "gone")])
    assert host_units.start_unit(wanted, lab.root) is True
    eventually(lambda: host_units.unit_status(pathlib.Path(wanted["folder"]))["alive"], "the supervisor")
    assert host_units.stop_unit(pathlib.Path(wanted["folder"]), 0.0) == []
    assert not secret.exists()
    # The kernel takes a moment to end what was killed.
    eventually(lambda: lab.left() == {}, "nothing of it is left")
    assert host_units.stop_unit(tmp_path / "no" / "unit", 0.0) == []


def test_a_unit_is_found_by_the_mark_that_the_controller_gave_it(lab: NodeLab) -> None:
    """The node makes it from the folder's path alone: what names it may have been deleted."""
    run = lab.run("a", RUN)
    marks = [host_units.run_marker(run, unit) for unit in host_units.UNITS]
    assert marks == [spec(lab, unit=unit)["marker"] for unit in ("agent", "store")]
    assert host_units.find_left(run) == [] and host_units.end_left(run) == [] and not host_units.is_left(run)


def test_the_status_of_a_unit_that_never_was_is_all_unknown(tmp_path: pathlib.Path) -> None:
    assert host_units.unit_status(tmp_path) == {
        "alive": False,
        "state": None,
        "detail": "",
        "exit": None,
        "heartbeat_age_s": None,
        "crashes": 0,
        "lost": 0,
        "child": None,
        "generation": None,
        "stopping": False,
    }


def test_a_supervisor_that_ends_while_its_status_is_read_is_not_lost(
    lab: NodeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lab.root / "unit"
    folder.mkdir()

    def end(_identity: object) -> None:
        (folder / "exit.json").write_text('{"exit_code": 143, "cause": "cancelled"}')

    monkeypatch.setattr(host_units.processes, "living_pid", end)
    status = host_units.unit_status(folder)
    assert (status["alive"], status["exit"]["cause"]) == (False, "cancelled")


def test_a_unit_whose_supervisor_is_gone_is_marked_as_stopped_and_one_that_has_ended_is_not(lab: NodeLab) -> None:
    gone, ended = lab.root / "gone", lab.root / "ended"
    for folder in (gone, ended):
        folder.mkdir()
    (ended / "exit.json").write_text('{"exit_code": 0}')
    for folder in (gone, ended):
        assert host_units.stop_unit(folder, 0.0) == []
    assert host_units.unit_status(gone)["stopping"] and not host_units.unit_status(ended)["stopping"]


def test_a_heartbeat_from_the_future_is_not_negative(tmp_path: pathlib.Path) -> None:
    (tmp_path / "heartbeat").touch()
    os.utime(tmp_path / "heartbeat", (4e9, 4e9))
    assert host_units.unit_status(tmp_path)["heartbeat_age_s"] == 0.0


def properties(command: list[str]) -> dict[str, str]:
    given = [item.removeprefix("--property=") for item in command if item.startswith("--property=")]
    pairs = [(key, value) for key, _, value in (item.partition("=") for item in given)]
    return dict(pairs)


def test_a_system_unit_has_the_limits_that_rdma_and_many_peers_need(lab: NodeLab) -> None:
    wanted = {**spec(lab, memory=8 << 30, timeout_s=100, grace_s=30), "node": "gpu 1/a"}
    command = host_units._systemd_command(wanted, "system")
    assert command[:2] == ["systemd-run", "--quiet"] and f"--unit=muster-{RUN}-gpu-1-a-agent" in command
    assert properties(command) == {
        "Restart": "on-failure",
        "RestartSec": "200ms",
        "KillMode": "mixed",
        "OOMPolicy": "continue",
        "TimeoutStopSec": "45",
        "UMask": "0077",
        "TasksMax": "infinity",
        "LimitMEMLOCK": "infinity",
        "LimitNOFILE": "1048576",
        "MemoryMax": str(8 << 30),
        "RuntimeMaxSec": "190",
    }


def test_a_users_unit_asks_for_no_limit_that_only_root_may_raise(lab: NodeLab) -> None:
    command = host_units._systemd_command(spec(lab), "user")
    assert command[:2] == ["systemd-run", "--user"]
    assert not {"LimitMEMLOCK", "LimitNOFILE", "MemoryMax", "RuntimeMaxSec"} & set(properties(command))


FAKE_SYSTEMD = """#!/bin/sh
for item; do case "$item" in --*) shift;; *) break;; esac; done
"$@" > /dev/null 2>&1 & exit 0
"""


def test_a_unit_is_started_through_systemd_where_it_runs(lab: NodeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = lab.root / "bin" / "systemd-run"
    tool.write_text(FAKE_SYSTEMD)
    tool.chmod(0o700)
    monkeypatch.setattr(host_units, "unit_manager", lambda: "system")
    assert host_units.start_unit(spec(lab), lab.root) is True
    assert host_units.stop_unit(pathlib.Path(spec(lab)["folder"]), 30) == []


def test_what_systemd_refuses_is_told(lab: NodeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = lab.root / "bin" / "systemd-run"
    tool.write_text("#!/bin/sh\necho 'Failed to start transient unit: Access denied' >&2\nexit 1\n")
    tool.chmod(0o700)
    monkeypatch.setattr(host_units, "unit_manager", lambda: "user")
    with pytest.raises(OSError, match="systemd-run answered 1: Failed to start transient unit: Access denied"):
        host_units.start_unit(spec(lab), lab.root)


@pytest.mark.parametrize(
    ("present", "uid", "manager"),
    [
        ((), 0, "detached"),
        (("/run/systemd/system",), 0, "system"),
        (("/run/systemd/system",), 1000, "detached"),
        (("/run/systemd/system", "/var/lib/systemd/linger/me"), 1000, "detached"),
        (("/run/systemd/system", "/var/lib/systemd/linger/me", "/run/user/1000/systemd/private"), 1000, "user"),
    ],
)
def test_how_a_process_can_outlive_the_connection(
    monkeypatch: pytest.MonkeyPatch, present: tuple[str, ...], uid: int, manager: str
) -> None:
    monkeypatch.setattr(pathlib.Path, "is_dir", lambda path: str(path) in present)
    monkeypatch.setattr(pathlib.Path, "exists", lambda path: str(path) in present)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setattr(host_units, "_user_name", lambda: "me")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert host_units.unit_manager() == manager
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert host_units.unit_manager() == "detached"


def test_the_user_of_a_lingering_session_is_found_by_number() -> None:
    assert host_units._user_name() == pwd.getpwuid(os.getuid()).pw_name


def test_a_systemd_that_hangs_is_told(lab: NodeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = lab.root / "bin" / "systemd-run"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o700)
    monkeypatch.setattr(host_units, "unit_manager", lambda: "system")
    monkeypatch.setattr(host_units, "_RUN_S", 0.05)
    with pytest.raises(OSError, match="systemd-run"):
        host_units.start_unit(spec(lab), lab.root)
