# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the files by which other programs know the machines: one function of this table each."""

from __future__ import annotations

import pathlib
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ..._providers.ssh_config.export import build_ssh_config

HostTable = Mapping[str, Mapping[str, t.Any]]


def make_ssh_config(hosts: HostTable, cluster: str, path: pathlib.Path, base: pathlib.Path) -> dict[str, object]:
    """Return the result for ssh_config."""
    made = build_ssh_config(hosts, cluster, base)
    place = path / f"muster-{cluster}.ssh_config" if path.is_dir() else path
    use = [
        f"first line of ~/.ssh/config: Include {place.resolve()}",
        *(f"ssh {alias}" for alias in made.aliases.values()),
    ]
    return {"text": made.text, "path": str(place), "notes": list(made.notes), "use": use}


_KINDS: Mapping[str, Callable[[HostTable, str, pathlib.Path, pathlib.Path], dict[str, object]]] = {
    "ssh_config": make_ssh_config
}
KINDS: Sequence[str] = tuple(_KINDS)


def make_export(kind: str, hosts: HostTable, cluster: str, path: pathlib.Path, base: pathlib.Path) -> dict[str, object]:
    """Return text and place of a file, notes on what is not in it, and how it is used. Writes nothing.

    :param hosts: the variables of each host.
    :param path: a file, or a folder that exists.
    :param base: what relative paths in variables are relative to.
    """
    return {"changed": False, **_KINDS[kind](hosts, cluster, path, base)}
