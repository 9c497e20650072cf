# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which options of ansible-playbook a command has to repeat to find the same machines and variables.

Values of variables are not repeated, for they may be secrets: files of variables are named, and the few variables that
say where something is.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import difflib
import os
import pathlib
import re
import shlex
import typing as t

_PLACES = ("muster_train_hosts", "muster_node_hosts", "muster_kubeconfig", "muster_kube_context", "muster_cluster")
_PREFIX = "muster_"
_VARIABLE = re.compile(r"\bmuster_[a-z0-9_]+")


def read_options(arguments: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """Return ``-i``, ``-c``, ``--limit`` and ``-e`` of ``arguments`` (``ansible.context.CLIARGS``)."""
    inventories = [("-i", str(item)) for item in arguments.get("inventory") or () if _can_be_read_again(str(item))]
    listed = any("," in item for _option, item in inventories)
    connection = [("-c", "local")] if listed and arguments.get("connection") == "local" else []
    limit = [("--limit", str(arguments["subset"]))] if arguments.get("subset") else []
    extra = [("-e", value) for item in arguments.get("extra_vars") or () for value in _select_places(str(item))]
    return tuple(word for option in (*inventories, *connection, *limit, *extra) for word in option)


def find_misspelt(names: t.Iterable[str], folder: pathlib.Path) -> list[str]:
    """Return a line for each variable that looks like one of the collection in ``folder``, and is none.

    Ansible takes any name: a misspelt one has no effect, and one of ``muster_run_id`` would start another run.
    """
    given = [name for name in names if name.startswith(_PREFIX)]
    if not given:
        return []
    places = [*folder.glob("playbooks/*.yml"), *folder.glob("roles/*/*/*.yml")]
    known = {word for place in places for word in _VARIABLE.findall(place.read_text(encoding="utf-8"))}
    rest = [word.removeprefix(_PREFIX) for word in known]
    lines = []
    for name in (name for name in given if name not in known):
        near = difflib.get_close_matches(name.removeprefix(_PREFIX), rest, n=1, cutoff=0.8)
        if near:
            lines.append(f"{name} is not a variable of muster.training. Did you mean {_PREFIX}{near[0]}?")
    return lines


def _select_places(value: str) -> list[str]:
    """Return what of one ``-e`` is repeated."""
    if value.startswith("@"):
        place = os.path.abspath(os.path.expanduser(value[1:]))
        return [f"@{place}"] if _can_be_read_again(place) else []
    if value.startswith(("{", "[")):
        return []
    try:
        pairs = [word.partition("=") for word in shlex.split(value)]
    except ValueError:
        return []
    return [f"{name}={text}" for name, _sign, text in pairs if name in _PLACES and text]


def _can_be_read_again(place: str) -> bool:
    """Return whether it is a list of hosts or a file that stays, not the end of a pipe of a shell."""
    return "," in place or os.path.isdir(place) or os.path.isfile(place)
