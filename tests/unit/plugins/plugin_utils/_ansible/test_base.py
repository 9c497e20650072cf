# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the action plugins: options are parsed, errors are one line, paths and hosts come from the play."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._ansible import base, connections, variable_names
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import OWN_CLUSTER


class Action(base.WorkflowAction):
    """Returns the options that it got."""

    OPTIONS: t.ClassVar = {"name": {"type": "str", "required": True}, "count": {"type": "int"}, "site": {"type": "str"}}
    RULES: t.ClassVar = {"mutually_exclusive": [("count", "site")]}

    def work(self, options: base.Dict, variables: base.Dict) -> base.Dict:
        if options["name"] == "wrong":
            raise InputError("name", "is wrong", "Give another")
        return {"changed": False, "options": options, "variables": variables}


# As a playbook of the collection writes the arguments of a task.
WRITTEN = {"name": "a", "count": "{{ muster_log_lines | default(20) }}"}


def action(check: bool = False, folder: str = "/play", **args: t.Any) -> Action:
    task = types.SimpleNamespace(
        args=args,
        async_val=0,
        check_mode=check,
        action="muster.training.x",
        get_ds=lambda: {"muster.training.x": WRITTEN},
    )
    connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir="/tmp"))
    loader = types.SimpleNamespace(get_basedir=lambda: folder)
    parts: t.Any = (task, connection, types.SimpleNamespace(), loader, None, None)
    made = Action(*parts)
    made._load_name = "x"
    return made


def test_work_gets_parsed_options_and_the_variables() -> None:
    found = action(name="a", count="3").run(task_vars={"x": 1})
    assert found["options"] == {"name": "a", "count": 3, "site": None} and found["variables"] == {"x": 1}
    assert action(name="a").run()["variables"] == {}


def test_an_empty_answer_of_a_survey_counts_as_not_given() -> None:
    assert action(name="a", site="").run()["options"]["site"] is None


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({}, "missing required arguments: name"),
        ({"name": "a", "count": "many"}, "count"),
        ({"name": "a", "nme": "b"}, "nme"),
        ({"name": "a", "count": 1, "site": "b"}, "mutually exclusive"),
    ],
)
def test_options_that_break_the_rules_never_reach_the_work(args: dict[str, t.Any], problem: str) -> None:
    with pytest.raises(AnsibleActionFail, match=problem):
        action(**args).run()


def test_an_error_of_the_work_is_a_failure_of_one_line() -> None:
    assert action(name="wrong").run() == {"failed": True, "changed": False, "msg": "name: is wrong. Give another"}


def test_a_number_below_zero_is_refused() -> None:
    """A count of -1 of the newest runs that stay would choose the oldest one."""
    assert action(name="a", count=0).run()["options"]["count"] == 0
    assert action(name="a", count=-1).run()["msg"] == "muster_log_lines: must be at least 0, not -1"


def test_an_error_names_the_variable_of_the_playbook() -> None:
    with pytest.raises(AnsibleActionFail, match=r"'?count'?.* \(count is the variable muster_log_lines\)"):
        action(name="a", count="many").run()
    found = variable_names.name_variable(InputError("count[0].x", "is wrong", "Mend it"), {"count": "muster_x"})
    assert str(found) == "muster_x[0].x: is wrong. Mend it"


class DeletingAction(Action):
    """One for which a misspelt variable is an error."""

    REQUIRES_KNOWN_VARIABLES: t.ClassVar = True


def test_a_misspelt_variable_of_the_inventory_is_an_error_where_something_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(variable_names.Display(), "warning", warnings.append)
    variables, plain = {"muster_prune_kep": 100, "muster_my_own": 1}, action(name="a")
    assert plain.run(task_vars=variables)["options"]["name"] == "a"
    assert warnings == ["muster_prune_kep is not a variable of muster.training. Did you mean muster_prune_keep?"]
    parts: t.Any = (plain._task, plain._connection, plain._play_context, plain._loader, None, None)
    made = DeletingAction(*parts)
    made._load_name = "x"
    found = made.run(task_vars=variables)
    assert found["failed"] and found["msg"].startswith("variables: nothing was done: muster_prune_kep is not")


def test_an_action_without_work_fails() -> None:
    with pytest.raises(NotImplementedError):
        base.WorkflowAction.work(action(), {}, {})


@pytest.mark.parametrize("check", [True, False])
def test_check_mode_is_the_task_s(check: bool) -> None:
    made = action(check, name="a")
    assert made.check is check and not made.run().get("failed")


def test_paths_are_relative_to_the_playbook(tmp_path: pathlib.Path) -> None:
    assert action(folder=str(tmp_path)).base == tmp_path


def test_paths_are_relative_to_the_working_folder_with_a_playbook_of_the_collection(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    playbooks = pathlib.Path(base.__file__).resolve().parents[3] / "playbooks"
    assert playbooks.is_dir()
    monkeypatch.chdir(tmp_path)
    assert action(folder=str(playbooks)).base == tmp_path


def test_a_request_holds_the_play_and_connects_over_its_own_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[t.Any, ...]] = []
    monkeypatch.setattr(connections, "open_remotes", lambda *args: calls.append(args) or [])
    variables = {"hostvars": {"a": {}, "b": {}}}
    made = action(True)
    request = made.request({"name": "x"}, variables, ["a"])
    assert (request.options, request.hosts, request.hostvars) == ({"name": "x"}, ["a"], variables["hostvars"])
    assert request.check is True and request.base == pathlib.Path("/play")
    assert request.connect(["b"]) == []
    assert calls == [(made._task, made._play_context, variables, ["b"])]


class ClusterAction(Action):
    """One that talks to an API server."""

    OPTIONS: t.ClassVar = {**Action.OPTIONS, "kubeconfig": {"type": "raw"}, "context": {"type": "str"}}
    RULES: t.ClassVar = {}


def cluster_action(**args: t.Any) -> ClusterAction:
    plain = action()
    templar: t.Any = types.SimpleNamespace(template=lambda value: value)
    task = types.SimpleNamespace(
        args=args, async_val=0, check_mode=False, action="muster.training.x", get_ds=lambda: None
    )
    parts: t.Any = (task, plain._connection, types.SimpleNamespace(), plain._loader, templar, None)
    made = ClusterAction(*parts)
    made._load_name = "x"
    return made


def test_the_kubeconfig_of_a_cluster_that_was_brought_up_here_is_found(tmp_path: pathlib.Path) -> None:
    variables = {"muster_state": {"path": str(tmp_path)}, "muster_cluster": "lab"}
    place = tmp_path / "lab" / "kubeconfig"
    assert cluster_action(name="a").run(task_vars=variables)["options"]["kubeconfig"] is None
    place.parent.mkdir()
    place.touch()
    own = cluster_action(name="a").run(task_vars=variables)["options"]
    assert own["kubeconfig"] == str(place) and own[OWN_CLUSTER] is True
    for given in ({"kubeconfig": "/mine"}, {"context": "mine"}):
        found = cluster_action(name="a", **given).run(task_vars=variables)["options"]
        assert found["kubeconfig"] == given.get("kubeconfig") and OWN_CLUSTER not in found
    assert (
        cluster_action(name="a").run(task_vars={**variables, "muster_cluster": "other"})["options"]["kubeconfig"]
        is None
    )
