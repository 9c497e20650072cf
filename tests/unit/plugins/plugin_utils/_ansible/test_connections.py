# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections to the hosts of a play: which one, by which variables, and what an unreachable host looks like."""

from __future__ import annotations

import pathlib
import re
import types
import typing as t

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play import Play
from ansible.playbook.play_context import PlayContext
from ansible.plugins.connection import local, ssh

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, UnreachableError
from ansible_collections.muster.training.plugins.plugin_utils._ansible import connections
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient

LOCAL = {"ansible_connection": "local"}


def play_task(task: dict[str, t.Any] | None = None, **play: t.Any) -> t.Any:
    data = {"name": "p", "hosts": "all", "gather_facts": False, "tasks": [{"debug": {"msg": ""}, **(task or {})}]}
    made: t.Any = Play.load({**data, **play}, loader=DataLoader())
    return made.compile()[1].block[0]


def open_one(variables: dict[str, t.Any], task: t.Any = None, default: str | None = None) -> NodeClient:
    given = {"hostvars": {"node": variables}}
    (remote,) = connections.open_remotes(task or play_task(), PlayContext(), given, ["node"], default)
    return remote


def run(remote: NodeClient, command: str = "true", data: bytes = b"") -> tuple[int, str, str]:
    return remote.shell(command, data)


def failing(exc: Exception) -> t.Callable[..., t.NoReturn]:
    def exec_command(*_args: t.Any, **_options: t.Any) -> t.NoReturn:
        raise exc

    return exec_command


def test_a_command_runs_with_its_input_and_its_three_results() -> None:
    found = run(open_one(LOCAL), "cat; echo problem >&2; exit 3", b"text of 'input'")
    assert found == (3, "text of 'input'", "problem\n")


def test_bytes_that_are_not_text_are_kept() -> None:
    assert run(open_one(LOCAL), r"printf '\377a'")[1].encode(errors="surrogateescape") == b"\xffa"


def test_remotes_have_the_order_of_the_hosts_and_their_own_variables() -> None:
    own = {"ansible_python_interpreter": "/opt/python", "muster_node_state": "/data/muster"}
    given = {"hostvars": {"a": LOCAL, "b": {**LOCAL, **own}}}
    second, first = connections.open_remotes(play_task(), PlayContext(), given, ["b", "a"])
    assert (second.name, second.python, second.state_root) == ("b", "/opt/python", "/data/muster")
    assert (first.name, first.python, first.state_root) == ("a", None, None)


@pytest.mark.parametrize("python", ["auto", "auto_silent", "auto_legacy", "auto_legacy_silent", ""])
def test_an_interpreter_to_be_found_is_unknown(python: str) -> None:
    assert open_one({**LOCAL, "ansible_python_interpreter": python}).python is None


def test_a_host_that_is_not_in_the_inventory_is_refused() -> None:
    with pytest.raises(InputError, match="hosts: 'gone' is not in the inventory"):
        connections.open_remotes(play_task(), PlayContext(), {"hostvars": {"node": LOCAL}}, ["node", "gone"])


def test_an_unknown_connection_names_its_host() -> None:
    with pytest.raises(InputError, match=r"node\.ansible_connection: unknown connection plugin 'carrier_pigeon'"):
        open_one({"ansible_connection": "carrier_pigeon"})


@pytest.mark.parametrize(
    ("variables", "play", "default", "kind"),
    [
        ({"ansible_connection": "from_host"}, {"connection": "from_play"}, "from_caller", "from_host"),
        ({}, {"connection": "from_play"}, "from_caller", "from_caller"),
        ({}, {"connection": "from_play"}, None, "from_play"),
        ({}, {"connection": "{{ way }}"}, None, "from_command_line"),
        ({}, {}, None, "from_command_line"),
    ],
)
def test_the_connection_is_the_host_s_then_the_play_s_and_never_the_task_s(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, t.Any], play: dict[str, t.Any], default: str, kind: str
) -> None:
    arguments = types.SimpleNamespace(CLIARGS={"connection": "from_command_line"})
    task = play_task({"connection": "from_task"}, **play)
    monkeypatch.setattr(connections, "command_line", arguments)
    with pytest.raises(InputError, match=f"'{kind}'"):
        open_one(variables, task, default)


@pytest.mark.parametrize(
    ("of_host", "of_task", "runs_as_root"),
    [("yes", False, True), (True, False, True), ("no", True, False), (None, True, True), (None, False, False)],
)
def test_a_host_s_own_become_comes_before_the_task_s(
    tmp_path: pathlib.Path, of_host: object, of_task: bool, runs_as_root: bool
) -> None:
    program = tmp_path / "sudo"
    program.write_text('#!/bin/sh\nshift 5 # -H -S -n -u root\nUSER_NOW=root exec "$@"\n')
    program.chmod(0o755)
    variables = {**LOCAL, "ansible_become_exe": str(program), "ansible_become_method": "sudo"}
    if of_host is not None:
        variables["ansible_become"] = of_host
    out = run(open_one(variables, play_task({"become": of_task})), "echo as ${USER_NOW:-me}")[1]
    assert out == ("as root\n" if runs_as_root else "as me\n")


@pytest.mark.parametrize("exc", [AnsibleConnectionFailure("no route\nto host"), AnsibleError("no such\nprogram")])
def test_a_connection_that_fails_is_an_unreachable_host_in_one_line(
    monkeypatch: pytest.MonkeyPatch, exc: Exception
) -> None:
    monkeypatch.setattr(local.Connection, "exec_command", failing(exc))
    with pytest.raises(UnreachableError) as caught:
        run(open_one(LOCAL))
    text = str(caught.value)
    assert "node" in text and "no " in text and "\n" not in text
    assert ("Check its address" in text) is isinstance(exc, AnsibleConnectionFailure)


@pytest.mark.parametrize(("err", "shown"), [(b"banner\nPermission denied\n", "Permission denied"), (b"", "ssh failed")])
def test_status_255_of_ssh_is_an_unreachable_host(monkeypatch: pytest.MonkeyPatch, err: bytes, shown: str) -> None:
    monkeypatch.setattr(ssh.Connection, "exec_command", lambda *_args, **_options: (255, b"", err))
    with pytest.raises(UnreachableError, match=shown) as caught:
        run(open_one({"ansible_connection": "ssh"}))
    assert "banner" not in str(caught.value)


def test_status_255_of_a_local_program_is_a_status() -> None:
    assert run(open_one(LOCAL), "exit 255")[0] == 255


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ((255, b"", b"ssh: connect to host 10.0.0.2 port 1: Connection refused\r\n"), "port 1: Connection refused"),
        ((0, b"", b""), "Data could not be sent"),
        (AnsibleConnectionFailure("Connection timed out."), "Connection timed out"),
    ],
)
def test_what_ssh_said_is_asked_for_where_ansible_does_not_tell_it(
    monkeypatch: pytest.MonkeyPatch, second: t.Any, told: str
) -> None:
    """An ssh that ends while it is given data: Ansible knows a broken pipe alone."""
    lost = AnsibleConnectionFailure("Data could not be sent to remote host '10.0.0.2'. [Errno 32] Broken pipe")
    results = [lost, second]
    commands = []

    def exec_command(_self: t.Any, command: str, **_options: t.Any) -> t.Any:
        commands.append(command)
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(ssh.Connection, "exec_command", exec_command)
    with pytest.raises(UnreachableError, match=told):
        run(open_one({"ansible_connection": "ssh"}), "rm file", b"data")
    assert len(commands) == 2 and commands[1] == "true", "what may have been begun is not run again"


class Ssh:
    """A program in the place of ssh that notes its arguments and ends with a status."""

    def __init__(self, folder: pathlib.Path, status: int = 0) -> None:
        self.program, self.notes = folder / "ssh", folder / "arguments"
        self.program.write_text(f'#!/bin/sh\necho "$@" >> {self.notes}\nexit {status}\n')
        self.program.chmod(0o755)

    def variables(self, **changes: t.Any) -> dict[str, t.Any]:
        return {"ansible_connection": "ssh", "ansible_ssh_executable": str(self.program), **changes}

    def calls(self) -> list[str]:
        return self.notes.read_text().splitlines()


def option(call: str, name: str) -> str:
    """Return the value that OpenSSH takes for an option: the first."""
    return re.findall(rf'-o {name}="?([^" ]+)', call)[0]


@pytest.mark.parametrize(
    ("name", "value", "interval"),
    [
        ("ansible_ssh_common_args", None, "5"),
        ("ansible_ssh_common_args", "-o ServerAliveInterval=60", "60"),
        ("ansible_ssh_extra_args", "-o ServerAliveInterval=0", "0"),
        ("ansible_ssh_args", "-o ServerAliveInterval=7 -o ControlMaster=auto -o ControlPersist=60s", "7"),
    ],
)
def test_ssh_asks_a_silent_host_whether_it_is_there(
    tmp_path: pathlib.Path, name: str, value: str | None, interval: str
) -> None:
    ssh_program = Ssh(tmp_path)
    run(open_one(ssh_program.variables(**({name: value} if value else {}))))
    (call,) = ssh_program.calls()
    assert option(call, "ServerAliveInterval") == interval and option(call, "ServerAliveCountMax") == "3"


def test_a_connection_that_failed_is_not_used_again(tmp_path: pathlib.Path) -> None:
    """The control path of each is its own: ssh would wait for the connection that hangs."""
    ssh_program = Ssh(tmp_path, status=255)
    remote = open_one(ssh_program.variables())
    for _ in range(2):
        with pytest.raises(UnreachableError):
            run(remote)
    remote.renew()
    with pytest.raises(UnreachableError):
        run(remote)
    paths = [option(call, "ControlPath") for call in ssh_program.calls()]
    assert len(set(paths)) == 3
    again = open_one(ssh_program.variables())
    with pytest.raises(UnreachableError):
        run(again)
    assert option(ssh_program.calls()[-1], "ControlPath") == paths[0], "later playbooks share the first"
    # Ansible's own names have ten characters: the path of a socket is short.
    assert {len(pathlib.Path(path).name) for path in paths} == {10}


def test_a_control_path_of_the_user_is_kept(tmp_path: pathlib.Path) -> None:
    ssh_program = Ssh(tmp_path)
    run(open_one(ssh_program.variables(ansible_control_path=str(tmp_path / "mine"))))
    assert option(ssh_program.calls()[0], "ControlPath") == str(tmp_path / "mine")


KEY_CHANGED = """Data could not be sent: @@@@@
@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @
ED25519 host key for [10.0.0.2]:2222 has changed and you have requested strict checking.
"""


@pytest.mark.parametrize(
    ("text", "problem", "fix"),
    [
        (
            KEY_CHANGED,
            "host key has changed",
            "ssh-keygen -R '[10.0.0.2]:2222'",
        ),
        ("Host key verification failed.", "host key is not known", "ssh-keyscan ADDRESS >>"),
        (
            (
                "No ED25519 host key is known for [10.0.0.2]:2222 and you have requested strict checking.\r\n"
                "Host key verification failed."
            ),
            "host key is not known",
            "ssh-keyscan -p 2222 10.0.0.2 >> ~/.ssh/known_hosts",
        ),
        (
            (
                "No ED25519 host key is known for gpu-1.lan and you have requested strict checking.\r\n"
                "Host key verification failed."
            ),
            "host key is not known",
            "ssh-keyscan gpu-1.lan >> ~/.ssh/known_hosts",
        ),
        (
            "@@@@@@\nssh: connect to host 10.0.0.2 port 22: Connection refused",
            "Connection refused",
            "Check its address",
        ),
        (
            "Make sure this host can be reached over ssh: *** Welcome ***\nann@gpu-1: Permission denied (publickey).",
            "ann@gpu-1: Permission denied (publickey)",
            "ssh-add",
        ),
        (
            "Timeout (12s) waiting for privilege escalation prompt: ",
            "no answer to the command",
            "its user's login ends",
        ),
        ("", "ssh failed", "Check its address"),
    ],
)
def test_what_ssh_says_is_told_with_its_fix(text: str, problem: str, fix: str) -> None:
    said = connections.explain_ssh(text, 0)
    assert problem in said[0] and fix in said[1]


def test_an_address_that_ssh_does_not_name_is_the_connections_own() -> None:
    text = "Host key verification failed."
    assert (
        "ssh-keyscan -p 2222 10.0.0.2 >>"
        in connections.explain_ssh(text, 0, connections.SshTarget("10.0.0.2", "2222"))[1]
    )
    assert "ssh-keyscan 10.0.0.2 >>" in connections.explain_ssh(text, 0, connections.SshTarget("10.0.0.2"))[1]
    rented = connections.SshTarget("10.0.0.2", "2222", "lambda-7", "~/state/known_hosts/lambda-7")
    scan = "ssh-keyscan -p 2222 10.0.0.2 | sed 's/^[^ ]*/lambda-7/' >> ~/state/known_hosts/lambda-7"
    for said in (text, f"No ED25519 host key is known for lambda-7 and you want it.\n{text}"):
        assert connections.explain_ssh(said, 0, rented)[1] == f"Compare and add it: {scan}"
