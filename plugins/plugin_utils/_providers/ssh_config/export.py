# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of an inventory as the text of an ssh_config file, for editors and NVIDIA Sync: keys by path, no passwords."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shlex
import typing as t
from collections.abc import Iterator, Mapping

from ....module_utils._model.errors import InputError
from .client import has_password, is_host

# Short options of ssh(1) that have a line in ssh_config(5): alone, and with a value.
_FLAGS = {"-A": ("ForwardAgent", "yes"), "-C": ("Compression", "yes"), "-4": ("AddressFamily", "inet")}
_FLAGS |= {"-6": ("AddressFamily", "inet6"), "-a": ("ForwardAgent", "no"), "-q": ("LogLevel", "QUIET")}
_VALUES = {"-J": "ProxyJump", "-i": "IdentityFile", "-p": "Port", "-l": "User", "-o": "", "-F": "Include"}
# Lines that describe how Ansible holds a connection, not how the host is reached.
_OF_ANSIBLE = frozenset(("controlmaster", "controlpath", "controlpersist", "batchmode", "connecttimeout"))
_SSH = ("ssh", "smart", "ansible.builtin.ssh")
_PASSWORDS = ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password")
_OPTION = re.compile(r"([A-Za-z][A-Za-z0-9]*)(?:\s*=\s*|\s+)(.+)\Z", re.DOTALL)

Variables = Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class SshConfig:
    """The text of the file, the names in it by host, and what the user is to know of it, a line each."""

    text: str
    aliases: Mapping[str, str]
    notes: tuple[str, ...] = ()


def build_ssh_config(hosts: Mapping[str, Variables], cluster: str, base: pathlib.Path) -> SshConfig:
    """Return the file for hosts by their inventory name.

    :param base: the folder that relative paths of keys are relative to.
    :raises InputError: naming the host and the variable that has no line in ssh_config, or whose value is not a host.
    """
    blocks: list[str] = []
    notes: list[str] = []
    aliases: dict[str, str] = {}
    files: dict[str, None] = {}
    for name, variables in hosts.items():
        connection = str(variables.get("ansible_connection") or "ssh")
        if connection not in _SSH:
            notes.append(f"{name}: left out, its connection is {connection} and not SSH")
            continue
        alias = f"muster-{cluster}-{name}"
        lines = list(_build_lines(name, variables, base))
        files |= {value: None for key, value in lines if key == "Include"}
        kept = dict(reversed([line for line in lines if line[0] not in ("Include", "IdentityFile")]))
        order = dict.fromkeys(key for key, _value in lines if key in kept)
        keys = dict.fromkeys(value for key, value in lines if key == "IdentityFile")
        body = [(key, kept[key]) for key in order] + [("IdentityFile", value) for value in keys]
        blocks.append("\n".join([f"Host {alias}", *(f"    {key} {_quote(name, key, value)}" for key, value in body)]))
        aliases[name] = alias
        if any(variables.get(key) for key in _PASSWORDS):
            notes.append(f"{name}: its password is not exported; ssh asks for it. Use a key (ssh-copy-id)")
    if not blocks:
        raise InputError("hosts", "no host is reached by SSH", "Name the inventory with -i")
    # Jump hosts that an inventory plugin resolved from a file are names of that file.
    includes = "".join(
        f"\nMatch !originalhost muster-*\n    Include {_quote('hosts', 'Include', file)}\n" for file in files
    )
    head = f"# Cluster {cluster}, written by the playbook muster.training.export. Another export replaces it.\n\n"
    return SshConfig(head + "\n\n".join(blocks) + "\n" + includes, aliases, tuple(notes))


def _build_lines(name: str, variables: Variables, base: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yield the lines of a host; as in ssh, the first of a keyword counts."""
    address = str(variables.get("ansible_host") or variables.get("ansible_ssh_host") or name)
    if not is_host(address):
        raise InputError(
            f"{name}.ansible_host", f"'{address}' is neither a name nor an address", "Correct the inventory"
        )
    yield "HostName", address.replace("%", "%%")
    user = variables.get("ansible_user") or variables.get("ansible_ssh_user")
    if user:
        yield "User", str(user)
    port = variables.get("ansible_port") or variables.get("ansible_ssh_port")
    if port:
        if not str(port).isdigit() or not 0 < int(port) < 65536:
            raise InputError(f"{name}.ansible_port", f"{port} is not a port", "Correct the inventory: 1 to 65535")
        yield "Port", str(port)
    key = variables.get("ansible_ssh_private_key_file") or variables.get("ansible_private_key_file")
    if key:
        path = str(key)
        yield "IdentityFile", path if path.startswith(("~", "%")) else os.fspath(base / path)
    for option in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        yield from _read_arguments(f"{name}.{option}", str(variables.get(option) or ""))


def _read_arguments(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the lines that arguments of ssh stand for."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise InputError(path, "has a quote that does not end", "Correct it in the inventory") from None
    pending = iter(words)
    for word in pending:
        if word in _FLAGS:
            yield _FLAGS[word]
            continue
        short = word[:2]
        value = word[2:] or next(pending, "") if short in _VALUES else ""
        if not value:
            raise InputError(path, f"'{word}' has no line in ssh_config", "Write it as -o Keyword=value")
        if _VALUES[short]:
            yield _VALUES[short], value
            continue
        match = _OPTION.match(value)
        if match is None:
            raise InputError(path, f"'-o {value}' is not Keyword=value", "Correct it in the inventory")
        if match[1].lower() not in _OF_ANSIBLE:
            yield match[1], _refuse_password(path, match[1], match[2])


def _refuse_password(path: str, keyword: str, value: str) -> str:
    if keyword.lower() == "proxycommand" and has_password(value):
        fix = "Use a key, or ProxyJump, instead of a password in its arguments"
        raise InputError(path, "ProxyCommand has a password or token in its arguments", fix)
    return value


def _quote(name: str, keyword: str, value: str) -> str:
    """Return a value as one line of the file has it."""
    if not value.isprintable() or '"' in value:
        raise InputError(
            f"{name}: {keyword}", "its value has a quote or a character that a line cannot hold", "Rename it"
        )
    # Commands and lists of files are read to the end of the line.
    several = keyword.lower() in ("proxycommand", "userknownhostsfile", "globalknownhostsfile")
    return value if several or not re.search(r"[\s#]", value) else f'"{value}"'
