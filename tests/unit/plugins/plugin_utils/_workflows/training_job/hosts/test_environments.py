# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The requirements of a job: what reaches the nodes of them, and which interpreter the job then has."""

from __future__ import annotations

import contextlib
import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, NodeError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import source
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import environments, plan


def job(folder: pathlib.Path, *requirements: str) -> Job:
    code = {"ref": str(folder)}
    return parse_job({"name": "x", "nodes": 2, "script": "t.py", "code": code, "requirements": list(requirements)})


class Node(NodeClient):
    def __init__(self, name: str, answer: t.Any) -> None:
        super().__init__(name, lambda command, data: (0, "", ""))
        self.answer = answer
        self.asked: list[dict[str, t.Any]] = []

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        self.asked.append({"op": op, **values})
        if isinstance(self.answer, Exception):
            raise self.answer
        return t.cast("dict[str, t.Any]", self.answer)


def ensure(folder: pathlib.Path, answers: t.Sequence[t.Any], check: bool = False) -> tuple[list[str], list[str]]:
    wanted = job(folder, "einops>=0.8", "-r requirements.txt")
    found = source.read_source(wanted, folder, folder)
    hosts = plan.select_hosts(["a", "b"], {"a": {"muster_training_python": "/v/python"}, "b": {}}, wanted)
    nodes = [Node(name, answer) for name, answer in zip("ab", answers, strict=True)]
    said: list[str] = []
    request: t.Any = types.SimpleNamespace(
        check=check, connect=lambda _names: nodes, progress=types.SimpleNamespace(say=said.append)
    )
    result = environments.ensure_environments(request, wanted, hosts, found)
    lines = ["einops>=0.8", "numpy", "rich==13"]
    assert nodes[0].asked == [{"op": "environment", "python": "/v/python", "requirements": lines, "check": check}]
    return [host.python for host in result], said


@pytest.fixture
def code(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "t.py").write_text("")
    (tmp_path / "requirements.txt").write_text("# comment\nnumpy\n\n-r more/extra.txt\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "extra.txt").write_text("rich==13\n")
    return tmp_path


def test_the_job_runs_in_the_environment_of_each_node(code: pathlib.Path) -> None:
    answers = [{"python": "/e/a", "made": True}, {"python": "/e/b", "made": False}]
    pythons, said = ensure(code, answers)
    assert pythons == ["/e/a", "/e/b"] and said[-1] == "job.requirements: installed on a"


def test_check_mode_makes_nothing(code: pathlib.Path) -> None:
    pythons, _said = ensure(code, [{"python": None, "made": False}] * 2, check=True)
    assert pythons == ["/v/python", "~/.local/share/muster/env/bin/python:python3"]


def test_the_reason_of_a_node_that_could_not_make_it(code: pathlib.Path) -> None:
    with pytest.raises(NodeError, match="b: job.requirements: pip: ERROR"):
        ensure(code, [{"python": "/e", "made": True}, NodeError("b", "job.requirements: pip: ERROR", "")])


@pytest.mark.parametrize("line", ["-e .", "./local", "-c limits.txt", "-r missing.txt"])
def test_what_a_node_could_not_install_is_refused(code: pathlib.Path, line: str) -> None:
    wanted = job(code, line)
    with pytest.raises(InputError, match="job.requirements"):
        environments.read_requirements(wanted, source.read_source(wanted, code, code))


def test_a_command_that_is_stopped_says_that_pip_may_go_on(code: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not ended with the connection, and what it installs is used by the next start."""
    asked: list[str] = []

    @contextlib.contextmanager
    def keep(line: str) -> t.Iterator[None]:
        asked.append(line)
        yield

    monkeypatch.setattr(environments, "say_if_killed", keep)
    answer = {"python": "/e/python", "made": True}
    ensure(code, [answer, answer])
    ensure(code, [answer, answer], check=True)
    expected = (
        "pip may still be installing job.requirements on a, b, for half an hour at most: the same command waits for it "
        "and uses what it has installed"
    )
    assert asked == [expected, ""]
