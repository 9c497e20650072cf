# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes to a node and what comes back: a real interpreter runs it, and every answer is an answer or one error."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import NodeError
from ansible_collections.muster.training.plugins.plugin_utils._hosts import agent_package
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.tests.support.carried import pack

ANSWER = {"a": [1, "\u2028\x1e"], "problem": None}
TEXT = agent_package.MARK + json.dumps(ANSWER) + "\n"


def test_an_answer_is_found_among_what_a_login_prints() -> None:
    assert (
        agent_package.parse_answer("n", 0, "Welcome!\nLast login: today\n" + TEXT + "bye\n", "warning: x\n") == ANSWER
    )


@pytest.mark.parametrize(
    ("rc", "err", "message"),
    [
        (127, "sh: 1: exec: python3: not found\n", "n: python3 is not installed. Install Python 3.10 or newer, or set"),
        (1, "bash: line 1: /opt/py: command not found", "n: python3 is not installed"),
        (
            1,
            "muster: Python 3.8 is too old\n",
            "n: Python 3.8 is too old. Install Python 3.10 or newer, or set ansible_python_interpreter",
        ),
        (
            1,
            "bash: module: command not found\nmuster: Python 3.8 is too old\n",
            "n: Python 3.8 is too old. Install Python 3.10",
        ),
        (1, "bash: module: command not found\nValueError: x\n", "n: the node agent did not answer (exit code 1: Value"),
        (1, "Traceback\nValueError: x\n", "n: the node agent did not answer (exit code 1: ValueError: x)"),
        (0, "", "n: the node agent did not answer (exit code 0: no output)"),
    ],
)
def test_no_answer_is_one_line_that_says_why(rc: int, err: str, message: str) -> None:
    with pytest.raises(NodeError) as caught:
        agent_package.parse_answer("n", rc, "no mark here", err)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@given(rc=st.integers(0, 255), out=st.text(max_size=30), err=st.text(max_size=30))
def test_any_output_without_the_mark_is_a_problem_of_the_node(rc: int, out: str, err: str) -> None:
    with pytest.raises(NodeError, match="^n: "):
        agent_package.parse_answer("n", rc, out.replace("\x1e", ""), err)


@pytest.mark.parametrize("length", [len(agent_package.MARK), len(agent_package.MARK) + 5, len(TEXT) - 3])
def test_an_answer_that_was_cut_is_a_problem_of_the_node(length: int) -> None:
    with pytest.raises(NodeError):
        agent_package.parse_answer("n", 137, TEXT[:length], "")


def run(python: str, request: dict[str, object]) -> subprocess.CompletedProcess[bytes]:
    argv = ["/bin/sh", "-c", agent_package.boot_command(python)]
    return subprocess.run(
        argv, input=agent_package.boot_input(request), capture_output=True, check=False, env={"PATH": "/bin"}
    )


def test_the_sources_run_from_memory(tmp_path: pathlib.Path) -> None:
    done = run(sys.executable, {"op": "info", "node": "n", "state_root": str(tmp_path / "state")})
    answer = agent_package.parse_answer("n", done.returncode, done.stdout.decode(), done.stderr.decode())
    assert answer["state_dir"] == str(tmp_path / "state" / "n") and list(tmp_path.iterdir()) == []


def answer_with_body(root: pathlib.Path, body: bytes) -> dict[str, object]:
    asked = {"op": "k3s", "step": "bring", "node": "n", "root": str(root)}
    shell = ["/bin/sh", "-c"]

    def run_here(command: str, data: bytes) -> tuple[int, str, str]:
        done = subprocess.run([*shell, command], input=data, capture_output=True, check=False, env={"PATH": "/bin"})
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return NodeClient("n", run_here, python=sys.executable).ask(**asked, body=[body[:9], body[9:]])  # type: ignore[arg-type]


def test_files_follow_a_request_and_are_read_whole_even_when_they_are_not_wanted(tmp_path: pathlib.Path) -> None:
    content = random.Random(0).randbytes(3 << 20)
    assert answer_with_body(tmp_path, pack("/opt/a", content) + b"\n") == {"digests": {}}
    assert (tmp_path / "opt/.a.part").read_bytes() == content
    (tmp_path / "file").touch()
    # The answer comes although most of the body is still to be read when the agent has failed.
    found = answer_with_body(tmp_path, pack("/file/below", content) + b"\n")
    assert "Not a directory" in str(found["problem"]) or "File exists" in str(found["problem"])


def test_an_interpreter_with_a_blank_in_its_path_is_one_word(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "my python"
    place.symlink_to(sys.executable)
    assert b"state_dir" in run(str(place), {"op": "info", "node": "n", "state_root": str(tmp_path)}).stdout


def test_no_interpreter_is_told() -> None:
    done = run("/no/python", {"op": "info"})
    with pytest.raises(NodeError, match="python3 is not installed"):
        agent_package.parse_answer("n", done.returncode, done.stdout.decode(), done.stderr.decode())


def old_python() -> str | None:
    for minor in (9, 8, 7, 6):
        place = shutil.which(f"python3.{minor}")
        if place and subprocess.run([place, "-c", ""], capture_output=True, check=False).returncode == 0:
            return place
    return None


@pytest.mark.skipif(old_python() is None, reason="no Python below 3.10 is at hand")
def test_an_old_interpreter_says_that_it_is_old() -> None:
    done = run(str(old_python()), {"op": "info"})
    with pytest.raises(NodeError, match=r"n: Python 3\.[6-9] is too old\. Install Python 3\.10 or newer"):
        agent_package.parse_answer("n", done.returncode, done.stdout.decode(), done.stderr.decode())


def test_the_version_is_that_of_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    before = agent_package.agent_version()
    assert len(before) == 16 and before == agent_package.install_request()["version"]
    agent_package.agent_version.cache_clear()
    monkeypatch.setattr(agent_package, "read_sources", lambda: {"agent.py": "changed"})
    try:
        assert agent_package.agent_version() != before
    finally:
        agent_package.agent_version.cache_clear()


def test_a_request_to_the_installed_copy_carries_no_sources() -> None:
    data = agent_package.encode_request({"op": "watch"})
    assert json.loads(data) == {"op": "watch"} and len(agent_package.boot_input({"op": "watch"})) > 10_000
    command = agent_package.installed_command(None, "/home/me/my state/agent/1")
    assert (
        shlex.split(shlex.split(command)[-1])[-1] == "/home/me/my state/agent/1/run.py"
        and "command -v python3" in command
        and " -I " in command
    )


@pytest.mark.parametrize("python", [None, sys.executable, "/opt/my python/bin/python3"])
def test_a_command_is_one_line_that_csh_takes_too(python: str | None) -> None:
    for command in (agent_package.boot_command(python), agent_package.installed_command(python, "/srv/a b", True)):
        # csh ends a quoted text at a line break, reads "!" even in single quotes, and has no "$(...)" outside them.
        assert "\n" not in command and "!" not in command and command.startswith("exec ")
        assert "$" not in re.sub(r"'[^']*'", "", command)


@pytest.mark.parametrize("shell", [name for name in ("tcsh", "csh", "fish", "zsh", "sh", "bash") if shutil.which(name)])
def test_each_login_shell_of_this_machine_starts_the_agent(shell: str, tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [shell, "-c", agent_package.boot_command(sys.executable)],
        input=agent_package.boot_input({"op": "info", "node": "n", "state_root": str(tmp_path)}),
        capture_output=True,
        check=False,
    )
    assert "state_dir" in agent_package.parse_answer("n", done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_terminal_that_ssh_was_told_to_give_is_named() -> None:
    """It cuts lines at 4096 bytes and never ends standard input: the program says so before it reads."""
    controller, terminal = os.openpty()
    try:
        argv = ["/bin/sh", "-c", agent_package.boot_command(sys.executable)]
        done = subprocess.run(argv, stdin=terminal, capture_output=True, check=False, timeout=30)
    finally:
        os.close(controller)
        os.close(terminal)
    with pytest.raises(
        NodeError, match="ssh gives commands a terminal. Leave out -t and -tt of ansible_ssh_extra_args"
    ):
        # With a terminal both outputs are one.
        agent_package.parse_answer("n", done.returncode, (done.stdout + done.stderr).decode(), "")


@pytest.mark.parametrize(
    ("output", "removed"),
    [
        ((2, "", "python3: can't open file '/s/agent/1/run.py': [Errno 2] No such file or directory\n"), True),
        ((1, "", "Traceback: can't open file"), False),
        ((2, "", "usage: run.py OP"), False),
    ],
)
def test_an_agent_that_went_with_its_disk_is_told_from_one_that_failed(output: t.Any, removed: bool) -> None:
    assert agent_package.is_removed(output) is removed
