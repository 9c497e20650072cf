# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's connections to the hosts of a play, as shells that the hosts backend can use from threads.

One task watches many hosts, so it opens their connections itself, the way the task executor does for its own host.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import typing as t

from ansible import constants as C
from ansible import context as command_line
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.text.converters import to_text
from ansible.plugins.loader import become_loader, connection_loader

from ...module_utils._model.errors import InputError, UnreachableError
from .._ansible import supported as _supported  # noqa: F401  # pylint: disable=unused-import
from .._hosts.node_client import NodeClient

_AUTO_INTERPRETERS = ("auto", "auto_silent", "auto_legacy", "auto_legacy_silent")
# A host that has sent nothing for 20 seconds is not there: 3 questions, 5 seconds apart, and 5 for the last answer.
_PASSWORD_FIX = "Give it with --ask-become-pass, or let the user become root without a password"
# Ansible's error where ssh ended while it was given data: what ssh itself said is not in it.
_KEY_OPTIONS = ("HostKeyAlias", "UserKnownHostsFile")
_HIDES_SSH = "Data could not be sent to remote host"
_KEEP_ALIVE = "-o ServerAliveInterval=5 -o ServerAliveCountMax=3"


def open_remotes(
    task: t.Any,
    play_context: t.Any,
    task_vars: t.Mapping[str, t.Any],
    hosts: t.Sequence[str],
    default: str | None = None,
) -> list[NodeClient]:
    """Return one remote per inventory host, in order; no connection is opened yet.

    :param default: the connection of a host that names none, where the play's is for another one.
    :raises InputError: when a host is not in the inventory.
    """
    hostvars = task_vars["hostvars"]
    result = []
    for host in hosts:
        if host not in hostvars:
            raise InputError("hosts", f"'{host}' is not in the inventory")
        variables = hostvars[host]
        python = variables.get("ansible_python_interpreter")
        known = None if not python or str(python) in _AUTO_INTERPRETERS else str(python)
        state = variables.get("muster_node_state")
        shell = HostShell(task, play_context.copy(), variables, host, default or _inherited_connection(task))
        result.append(NodeClient(host, shell, known, str(state) if state else None, renew=shell.renew))
    return result


def _inherited_connection(task: t.Any) -> str:
    """Return the connection of a host that names none: the play's, else the command line's.

    Not the task's: there the executor has put what it resolved for the one host that the task runs on.
    """
    value = task._get_parent_attribute("connection", omit=True)
    if isinstance(value, str) and value and "{{" not in value:
        return value
    return str(command_line.CLIARGS.get("connection") or t.cast(t.Any, C).DEFAULT_TRANSPORT)


class HostShell:
    """Runs shell commands on one host. A connection that failed is not used again: the next command opens a new one.

    With SSH, commands share a connection of their own, which notices a host that falls silent within 20 seconds.
    """

    def __init__(self, task: t.Any, context: t.Any, variables: t.Mapping[str, t.Any], host: str, default: str) -> None:
        self._task, self._context, self._variables, self._host = task, context, variables, host
        self._kind = str(variables.get("ansible_connection") or default)
        self._become = _become(task, variables)
        self._opened = 0
        # At once: an unknown plugin is refused before any host is asked.
        self._connection: t.Any = self._open()

    def renew(self) -> None:
        """Have the next command open a connection of its own."""
        self._connection = None

    def __call__(self, command: str, data: bytes) -> tuple[int, str, str]:
        """Run a command with ``data`` on its standard input; return its exit code and its two outputs."""
        connection = self._connection or self._open()
        line = command
        if self._become is not None:
            line = self._become.build_become_command(command, connection._shell)
        if connection.allow_executable:
            line = f"{self._context.executable or '/bin/sh'} -c {shlex.quote(line)}"
        try:
            return self._run(connection, line, data)
        except UnreachableError:
            if self._connection is connection:
                self.renew()
            raise

    def _run(self, connection: t.Any, line: str, data: bytes) -> tuple[int, str, str]:
        try:
            code, out, err = connection.exec_command(line, in_data=data, sudoable=self._become is not None)
        except AnsibleConnectionFailure as exc:
            told, telling = str(exc), 0
            if _HIDES_SSH in told:
                told, telling = _what_ssh_says(connection) or told, -1
            raise UnreachableError(self._host, *explain_ssh(told, telling, _place(connection))) from exc
        except AnsibleError as exc:
            fix = _PASSWORD_FIX if "password" in str(exc).lower() else ""
            raise UnreachableError(self._host, _first_line(exc), fix) from exc
        text = to_text(err, errors="surrogate_or_replace")
        if code == 255 and self._kind.endswith("ssh"):
            raise UnreachableError(self._host, *explain_ssh(text, -1, _place(connection)))
        return int(code), to_text(out, errors="surrogate_or_replace"), text

    def _open(self) -> t.Any:
        connection = connection_loader.get(self._kind, self._context, None)
        if connection is None:
            raise InputError(f"{self._host}.ansible_connection", f"unknown connection plugin '{self._kind}'")
        connection.set_become_plugin(self._become)
        self._context.set_attributes_from_plugin(connection)
        task_keys = {key: value for key, value in self._task.dump_attrs().items() if key not in ("retries", "timeout")}
        for plugin_type, plugin in (
            ("connection", connection),
            ("shell", connection._shell),
            ("become", self._become),
        ):
            if plugin is not None:
                names = C.config.get_plugin_vars(plugin_type, plugin._load_name)
                options = {name: self._variables[name] for name in names if name in self._variables}
                plugin.set_options(task_keys=task_keys, var_options=options)
        if self._kind.rsplit(".", 1)[-1] == "ssh":
            _keep_alive(connection, self._opened)
        self._opened += 1
        self._connection = connection
        return connection


def _keep_alive(connection: t.Any, number: int) -> None:
    """Have ssh end when its host falls silent, over a shared connection that Ansible has not opened without that.

    OpenSSH takes the first value of an option, and what is added here comes last: a user's own setting holds.
    """
    given = connection.get_option("ssh_extra_args") or ""
    connection.set_option("ssh_extra_args", f"{given} {_KEEP_ALIVE}".strip())
    if not connection.get_option("control_path"):
        names = ("host", "port", "remote_user")
        key = repr([*(connection.get_option(name) for name in names), os.getpid() if number else 0, number])
        # As long as Ansible's own names: the path of a socket must not be longer.
        name = hashlib.sha256(f"muster.training {key}".encode()).hexdigest()[:10]
        connection.set_option("control_path", f"%(directory)s/{name}")


def _become(task: t.Any, variables: t.Mapping[str, t.Any]) -> t.Any:
    wanted = variables.get("ansible_become")
    if not (task.become if wanted is None else str(wanted).lower() in ("true", "yes", "1", "on")):
        return None
    method = str(variables.get("ansible_become_method") or task.become_method or "sudo")
    return become_loader.get(method)


def _what_ssh_says(connection: t.Any) -> str:
    """Return why a connection that has just failed cannot be opened; empty where it can, or nothing is said.

    The command is one that may run at any time: whether the one that failed was begun is not known.
    """
    try:
        code, _out, err = connection.exec_command("true", in_data=None, sudoable=False)
    except AnsibleError as exc:
        return "" if _HIDES_SSH in str(exc) else str(exc)
    return to_text(err, errors="surrogate_or_replace").strip() if code == 255 else ""


class SshTarget(t.NamedTuple):
    """Where a connection was opened to. ``port``: None for ssh's own.

    ``alias`` and ``known_hosts``: under which name, and in which file, ssh looks for the key of the host; empty where
    its arguments do not say it.
    """

    address: str = "ADDRESS"
    port: str | None = None
    alias: str = ""
    known_hosts: str = ""

    def describe_scan(self) -> str:
        """Return the command that adds the key of the host to where ssh looks for it."""
        rename = f" | sed 's/^[^ ]*/{self.alias}/'" if self.alias else ""
        scan = f"ssh-keyscan {f'-p {self.port} ' if self.port else ''}{self.address}"
        return f"{scan}{rename} >> {self.known_hosts or '~/.ssh/known_hosts'}"


_ANYWHERE: t.Final = SshTarget()


def _place(connection: t.Any) -> SshTarget:
    """Return where a connection was opened to."""
    try:
        port = connection.get_option("port")
        words = [str(connection.get_option(f"ssh_{kind}args") or "") for kind in ("", "common_", "extra_")]
        given = [re.search(rf"\b{name}[= ]\s*([^\s'\"]+)", " ".join(words)) for name in _KEY_OPTIONS]
        alias, known_hosts = (found[1] if found else "" for found in given)
        address = str(connection.get_option("host") or "ADDRESS")
        return SshTarget(address, str(port) if port and int(port) != 22 else None, alias, known_hosts)
    except (KeyError, ValueError, AnsibleError):
        return _ANYWHERE


def explain_ssh(text: str, telling: int, place: SshTarget = _ANYWHERE) -> tuple[str, str]:
    """Return what ssh says about a connection that failed, and what to do: (problem, fix).

    :param telling: the index of the line that says it, where it is none of the known cases.
    :param place: where it was opened to, for where ssh does not name that.
    """
    if "IDENTIFICATION HAS CHANGED" in text:
        found = re.search(r"host key for (\S+) has changed", text)
        address = found.group(1) if found else "ADDRESS"
        fix = f"If the machine was replaced, remove the old key (ssh-keygen -R '{address}') and add the new one"
        return "its SSH host key has changed, another machine may have this address", f"{fix} (ssh-keyscan)"
    if "Host key verification failed" in text:
        found = re.search(r"host key is known for \[?([^\s\]]+)(?:\]:(\d+))? and", text)
        if found and not place.alias:
            place = place._replace(address=found[1], port=found[2])
        return "its SSH host key is not known", f"Compare and add it: {place.describe_scan()}"
    if "waiting for privilege escalation prompt" in text:
        # It was not asked for a password: nothing came at all.
        fix = (
            "Check that its user's login ends: ssh it with the command true; and that sudo answers there: sudo -n true"
        )
        return "no answer to the command that becomes another user (ansible_become)", fix
    lines = [line.strip() for line in text.splitlines() if line.strip(" \t\r@")]
    denied = next((line for line in lines if "Permission denied (" in line), None)
    said = (denied or (lines[telling] if lines else "ssh failed"))[:300].rstrip(".")
    if denied:
        # Banners come before it, and a key with a passphrase that no agent holds reads the same.
        fix = "Put your public key on it (ssh-copy-id USER@ADDRESS), or name user and key in the inventory"
        agent = "A key with a passphrase has to be in ssh-agent (ssh-add)"
        return said, f"{fix} (ansible_user, ansible_ssh_private_key_file). {agent}"
    return said, "Check its address, port and key"


def _first_line(exc: BaseException) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0][:300]
