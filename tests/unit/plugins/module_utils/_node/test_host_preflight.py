# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a preflight asks a node: nothing here writes, and every problem is words, not a traceback."""

from __future__ import annotations

import os
import pathlib
import socket
import sys

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import facts_net, files, host_preflight, processes
from ansible_collections.muster.training.tests.support.node_lab import fingerprint


def script(folder: pathlib.Path, body: str) -> str:
    place = folder / "python"
    place.write_text(f"#!/bin/sh\n{body}\n")
    place.chmod(0o700)
    return str(place)


def test_the_jobs_interpreter_tells_its_versions() -> None:
    found = host_preflight.inspect_python(sys.executable, ["pytest", "no-such-package"], {})
    assert found["executable"] == sys.executable and found["problem"] is None
    assert found["version"] == ".".join(map(str, sys.version_info[:3]))
    assert found["packages"] == {"pytest": pytest.__version__, "no-such-package": None}


def test_the_jobs_environment_counts(tmp_path: pathlib.Path) -> None:
    (tmp_path / "mine-1.5.dist-info").mkdir()
    (tmp_path / "mine-1.5.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.5\n")
    assert host_preflight.inspect_python(sys.executable, ["mine"], {"PYTHONPATH": str(tmp_path)})["packages"] == {
        "mine": "1.5"
    }


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("echo noise >&2; echo 'bad magic' >&2; exit 3", "does not run: bad magic"),
        ("exit 3", "does not run: no output"),
        ("echo hello", "does not run: "),
        (f"printf '%0500d' 0 >&2; exit 1 # {'x' * 10}", "does not run: " + "0" * 200),
    ],
)
def test_an_interpreter_that_does_not_run_is_a_problem(tmp_path: pathlib.Path, body: str, problem: str) -> None:
    found = host_preflight.inspect_python(script(tmp_path, body), ["torch"], {})
    assert problem in found["problem"] and len(found["problem"]) < 400
    assert (found["version"], found["packages"]) == (None, {})


def test_an_interpreter_that_is_not_there_is_named_as_the_user_wrote_it() -> None:
    assert host_preflight.inspect_python("~/no/python", [], {})["problem"] == "~/no/python does not exist"


def test_a_taken_port_and_a_foreign_address_are_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        taken = {"address": "127.0.0.1", "reason": "Address already in use", "cause": "port"}
        assert host_preflight.port_problem("127.0.0.1", number) == taken
        assert host_preflight.port_problem("127.0.0.2", number) is None
    assert host_preflight.port_problem("127.0.0.1", number) is None
    foreign = {"address": "192.0.2.1", "reason": "Cannot assign requested address", "cause": "address"}
    assert host_preflight.port_problem("192.0.2.1", number) == foreign
    unknown = host_preflight.port_problem("no such host", number)
    assert unknown and (unknown["address"], unknown["cause"]) == ("no such host", "name")


def test_own_addresses_are_those_of_interfaces_that_reach_other_nodes() -> None:
    found = host_preflight.read_own_addresses()
    assert set(found) == {"mesh", "lan", "public"}
    for entry in (item for entries in found.values() for item in entries):
        assert host_preflight.find_interface(entry["address"]) == entry["interface"] != "lo"


def test_writable_asks_the_nearest_folder_that_exists(tmp_path: pathlib.Path) -> None:
    before = fingerprint(tmp_path)
    found = host_preflight.check_writable(tmp_path / "a" / "b")
    assert (found["exists"], found["problem"]) == (False, None) and found["free_bytes"] > 0
    assert host_preflight.check_writable(tmp_path)["exists"] is True
    assert fingerprint(tmp_path) == before


def test_a_file_in_the_way_is_a_problem(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    assert (
        host_preflight.check_writable(tmp_path / "file" / "below")["problem"]
        == f"cannot be created, {tmp_path}/file is not a folder"
    )
    assert host_preflight.try_write(tmp_path / "file" / "below") == "cannot be written: Not a directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_somebody_else_is_a_problem() -> None:
    assert host_preflight.check_writable(pathlib.Path("/"))["problem"] == f"is not writable for uid {os.getuid()}"


def test_try_write_leaves_the_folder_and_nothing_in_it(tmp_path: pathlib.Path) -> None:
    assert host_preflight.try_write(tmp_path / "ckpt" / "run") is None
    assert list((tmp_path / "ckpt" / "run").iterdir()) == []


def test_live_runs_are_those_whose_supervisor_lives(tmp_path: pathlib.Path) -> None:
    for name, supervisor in (("live", processes.identity(os.getpid())), ("dead", "1@1"), ("new", None)):
        folder = files.private_dir(tmp_path / "runs" / name / "units" / "agent")
        files.write_json(folder / "state.json", {"supervisor": supervisor})
    files.write_json(tmp_path / "runs" / "live" / "claim.json", {"owner": "o", "gpus": 8})
    assert host_preflight.list_live_runs(tmp_path) == [{"run_id": "live", "gpus": 8}]
    assert host_preflight.list_live_runs(tmp_path / "none") == []


def test_the_interface_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    owned = [("lo", "127.0.0.1", 8), ("eth0", "192.0.2.1", 24), ("ib0", "192.0.2.12", 24)]
    monkeypatch.setattr(facts_net, "query_kernel_addresses", lambda: owned)
    found = [
        host_preflight.find_interface(address)
        for address in ("192.0.2.1", "192.0.2.12", "192.0.2.2", "127.0.0.9", "localhost")
    ]
    assert found == ["eth0", "ib0", None, "lo", "lo"]


def test_an_address_that_nobody_knows_has_no_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_preflight.find_interface("127.0.0.1") == "lo"

    def unknown(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert host_preflight.find_interface("no-such-host") is None


def test_basics_are_json_of_this_machine() -> None:
    found = host_preflight.read_basics()
    assert found["python"] == ".".join(map(str, sys.version_info[:3])) and found["cpus"] >= 1
    assert found["user"] == f"uid {os.getuid()}" and found["manager"] in ("system", "user", "detached")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("print(1)\n", None),
        ("x = 1\nprint(1\n", "train.py, line 2: SyntaxError: '(' was never closed"),
        ("if True:\nprint(1)\n", "train.py, line 2: IndentationError: expected an indented block"),
        ("x = '\udcff'\n", "train.py"),
    ],
)
def test_a_script_is_compiled_by_the_interpreter_of_the_job(source: str, problem: str | None) -> None:
    found = host_preflight.inspect_python(sys.executable, ["pytest"], {}, ("train.py", source))
    syntax = found["syntax"]
    assert syntax is None if problem is None else (syntax or "").startswith(problem), syntax
    assert found["packages"] == {"pytest": pytest.__version__} and found["problem"] is None


@pytest.mark.parametrize(
    ("python", "source"), [("/nowhere/python", "("), ("/bin/false", "("), (sys.executable, "-" * 200_000)]
)
def test_a_script_that_nothing_can_compile_is_not_refused(python: str, source: str) -> None:
    assert host_preflight.inspect_python(python, [], {}, ("t.py", source))["syntax"] is None
