# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which options of ansible-playbook a command has to repeat to find the same machines and variables.

Values of variables are not repeated, for they may be secrets: files of variables are named, and the few variables that
say where something is.
"""

from __future__ import annotations

import os
import shlex
import typing as t

import yaml

_OF_JOBS = ("muster_job", "muster_template", "muster_inputs", "muster_state")
# How YAML and JSON begin that ``-e`` may have in place of ``name=value``.
_STRUCTURES = ("{", "[")
_PLACES = ("muster_train_hosts", "muster_node_hosts", "muster_kubeconfig", "muster_kube_context", "muster_cluster")


def read_options(arguments: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """Return ``-i``, ``-c``, ``--limit`` and ``-e`` of ``arguments`` (``ansible.context.CLIARGS``)."""
    inventories = [("-i", str(item)) for item in arguments.get("inventory") or () if _can_be_read_again(str(item))]
    listed = any("," in item for _option, item in inventories)
    connection = [("-c", "local")] if listed and arguments.get("connection") == "local" else []
    limit = [("--limit", str(arguments["subset"]))] if arguments.get("subset") else []
    extra = [("-e", value) for item in arguments.get("extra_vars") or () for value in _select_places(str(item))]
    return tuple(word for option in (*inventories, *connection, *limit, *extra) for word in option)


def read_unrepeated(arguments: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """Return the names of the variables that ``-e`` gave by value, which :func:`read_options` does not repeat.

    Those of the collection's own settings of one command, such as ``muster_run_id``, are not those of a job.
    """
    items = map(str, arguments.get("extra_vars") or ())
    names = dict.fromkeys(name for item in items for name in _read_values(item))
    return tuple(name for name in names if name not in _PLACES and (not name.startswith("muster_") or name in _OF_JOBS))


def _select_places(value: str) -> list[str]:
    """Return what of one ``-e`` is repeated."""
    if value.startswith("@"):
        place = os.path.abspath(os.path.expanduser(value[1:]))
        return [f"@{place}"] if _can_be_read_again(place) else []
    if value.startswith(_STRUCTURES):
        return []
    return [f"{name}={text}" for name, text in _read_values(value).items() if name in _PLACES and text]


def _read_values(value: str) -> dict[str, object]:
    """Return the variables that one ``-e`` gives by value; none of a file, or of what cannot be read."""
    if value.startswith("@"):
        return {}
    try:
        if not value.startswith(_STRUCTURES):
            return {name: text for word in shlex.split(value) for name, _sign, text in [word.partition("=")]}
        given = yaml.safe_load(value)
    except (ValueError, yaml.YAMLError):
        return {}
    return {str(name): text for name, text in given.items()} if isinstance(given, dict) else {}


def _can_be_read_again(place: str) -> bool:
    """Return whether it is a list of hosts or a file that stays, not the end of a pipe of a shell."""
    return "," in place or os.path.isdir(place) or os.path.isfile(place)
