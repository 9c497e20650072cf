# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of an ssh_config file as ``ssh -G`` resolves them: patterns, Match and Include are what ssh says they are.

``ssh -G`` connects to nothing and prints no key and no password. A ``Match exec`` line runs its program, as every ssh
to that host does.
"""

from __future__ import annotations

import concurrent.futures
import fnmatch
import functools
import os
import pathlib
import re
import typing as t
from collections.abc import Callable, Sequence

from ....module_utils._model.errors import InputError, TransportError, one_line
from ..client_program import ClientProgram
from ..parsing import JsonObject
from .aliases import find_aliases, own_folder

NAME = "ssh -G"
_TIMEOUT_S = 20
_AT_ONCE = 4
_TEXT = 200
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:%-]*[A-Za-z0-9_.%])?\Z")

# A name that no file has, with which ssh prints what it does without a line of the user's.
_DEFAULTS = "muster-defaults.invalid"
# What is read of a host, and of that what tells one machine from another.
KEYWORDS = frozenset(
    ("hostname", "port", "user", "identityfile", "proxyjump", "proxycommand", "hostkeyalias", "certificatefile")
    + ("identitiesonly", "identityagent", "userknownhostsfile", "stricthostkeychecking")
)
_IDENTITY = ("hostname", "port", "user", "proxyjump", "proxycommand")
# The user of GitHub, GitLab and others, where no shell is.
_NO_MACHINE = "git"
# A program that is given a password in its arguments: they would be in the inventory, and in the list of processes.
_PASSWORD = re.compile(r"\bsshpass\b|(?:password|passwd|token|secret)\s*[= ]", re.IGNORECASE)

Resolve = Callable[[Sequence[str]], str]
Settings = dict[str, list[str]]


_SSH = ClientProgram(NAME, "OpenSSH", "ssh_binary", _TIMEOUT_S)


def run_ssh(binary: str, arguments: Sequence[str]) -> str:
    """Return what ``ssh -G`` prints; raise with what ssh says of the file when it refuses it."""
    asked = f"{NAME} {arguments[-1]}"
    process = _SSH.run(binary, ["-G", *arguments], asked, "Check the programs of Match exec lines")
    if process.returncode:
        lines = process.stderr.decode("utf-8", "replace").splitlines()
        said = next((one_line(line) for line in lines if "line " in line), "") or one_line(" ".join(lines[-1:]))
        fix = "Correct that line; 'ssh -G HOST' shows it too"
        raise TransportError(f"{NAME} {arguments[-1]}: {said[:_TEXT] or 'failed'}", fix)
    return process.stdout.decode("utf-8", "replace")


def is_host(text: str) -> bool:
    """Return whether a text is a name or an address, which no program takes for an option."""
    return _HOST.match(text) is not None


def has_password(command: str) -> bool:
    """Return whether a command has a password or a token in its arguments, as far as its words show it."""
    return _PASSWORD.search(command) is not None


def parse_settings(text: str) -> Settings:
    """Return the values of each keyword that ``ssh -G`` printed, in their order."""
    settings: Settings = {}
    for line in text.splitlines():
        keyword, _space, value = line.strip().partition(" ")
        if keyword and value:
            settings.setdefault(keyword.lower(), []).append(value.strip())
    return settings


def list_hosts(
    path: str, patterns: Sequence[str] = ("*",), binary: str = "ssh", ask: Resolve | None = None
) -> list[JsonObject]:
    """Return each machine of a file with what ssh resolves it to, beside what it does by itself and for the address.

    Names of one machine are one item: what has the same address, port, user and way there.

    :param path: the file; empty for the user's own, which ssh reads together with the system's.
    :param patterns: shell patterns of the names that count.
    """
    own = own_folder()
    resolve = ask or functools.partial(run_ssh, binary)
    every = find_aliases(pathlib.Path(path) if path else own / "config", own)
    names = [name for name in every if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    for name in names:
        if name.startswith("-"):
            raise InputError(f"Host {name}", "a name must not begin with '-'", "Rename it in the ssh_config file")
    chosen = ("-F", path) if path else ()

    def read(name: str, arguments: Sequence[str] = chosen) -> Settings:
        settings = parse_settings(resolve([*arguments, name]))
        return {key: values for key, values in settings.items() if key in KEYWORDS}

    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        machines: dict[tuple[str, ...], JsonObject] = {}
        for name, settings in zip(names, pool.map(read, names), strict=True):
            _check_host(name, settings)
            if settings.get("user") == [_NO_MACHINE]:
                continue
            key = tuple(" ".join(settings.get(word, ())) for word in _IDENTITY)
            item = machines.setdefault(key, {"alias": name, "aliases": [], "settings": settings, "file": path})
            t.cast("list[str]", item["aliases"]).append(name)
        # Ansible gives ssh the address, for which other lines of the file may hold than for the name.
        defaults, addresses = read(_DEFAULTS, ["-F", os.devnull]) if machines else {}, [key[0] for key in machines]
        for item, settings in zip(machines.values(), pool.map(read, addresses), strict=True):
            item["otherwise"] = [defaults, settings]
    return list(machines.values())


def _check_host(name: str, settings: Settings) -> None:
    address = " ".join(settings.get("hostname", ()))
    if not is_host(address):
        raise InputError(
            f"Host {name}", f"HostName '{address}' is neither a name nor an address", "Correct it in the file"
        )
    if any(map(has_password, settings.get("proxycommand", ()))):
        fix = "Use a key, or ProxyJump, instead of a password in its arguments"
        raise InputError(f"Host {name}", "ProxyCommand has a password or token in its arguments", fix)
