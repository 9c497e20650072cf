# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of NVIDIA Brev by its own client: ``brev ls --json``, and the ssh_config file that ``brev refresh`` writes.

Brev has no public API. The shape of the output is that of brev-cli (github.com/brevdev/brev-cli, commit 12d39b7).
"""

from __future__ import annotations

import json
import pathlib
import typing as t
from collections.abc import Callable, Sequence

from ....module_utils._model.errors import InputError, TransportError, one_line
from ....module_utils._secrets.scrubber import scrub
from ..client_program import ClientProgram
from ..parsing import JsonObject
from ..ssh_config import client as ssh_client
from ..ssh_config.aliases import own_folder

NAME = "brev ls"
_TIMEOUT_S = 60
_TEXT = 200
_FIELDS = ("id", "name", "status", "health_status", "instance_type", "instance_kind", "gpu")

_BREV = ClientProgram(NAME, "Brev", "brev_binary", _TIMEOUT_S)

Run = Callable[[Sequence[str]], str]


def run_brev(binary: str, arguments: Sequence[str]) -> str:
    """Return what the client prints; raise with its own words when it fails."""
    process = _BREV.run(binary, arguments, NAME, "Try brev ls by hand: it may wait for a login")
    if process.returncode:
        lines = [line for line in process.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        said = scrub(one_line(lines[-1]))[:_TEXT] if lines else f"exit code {process.returncode}"
        raise TransportError(f"{NAME}: {said}", "Log in with brev login, and look with brev ls")
    return process.stdout.decode("utf-8", "replace")


def list_machines(
    org: str, file: str, binary: str = "brev", ssh_binary: str = "ssh", run: Run | None = None
) -> list[JsonObject]:
    """Return the instances and own nodes of an organization, each with what ssh resolves its name to, None without one.

    :param org: the organization; empty for the client's current one.
    :param file: the ssh_config file of the client; empty for ``~/.brev/ssh_config``.
    """
    ask = run or (lambda arguments: run_brev(binary, arguments))
    listed = _parse(ask(["ls", "--json", *(["--org", org] if org else [])]))
    place = pathlib.Path(file).expanduser() if file else own_folder().parent / ".brev" / "ssh_config"
    # Only a file that is there is read: before the first ``brev refresh`` there is none.
    ways = ssh_client.list_hosts(str(place), binary=ssh_binary) if place.exists() else []
    known = {alias: item for item in ways for alias in t.cast("list[str]", item["aliases"])}
    return [{**item, "ssh": known.get(str(item["name"]))} for item in listed]


def _parse(text: str) -> list[JsonObject]:
    try:
        value = json.loads(text)
    except ValueError:
        fix = "Update Brev's client: brev ls --json prints JSON since 2026"
        raise TransportError(f"{NAME} --json: prints no JSON", fix) from None
    if not isinstance(value, dict):
        raise TransportError(f"{NAME} --json: prints no object", "Look with brev ls --json")
    found: list[JsonObject] = []
    for key in ("workspaces", "nodes"):
        items = value.get(key) or []
        if not isinstance(items, list):
            raise TransportError(f"{NAME} --json: '{key}' is not a list", "Look with brev ls --json")
        for number, item in enumerate(items):
            if not isinstance(item, dict) or not isinstance(item.get("name"), str) or not item["name"]:
                raise TransportError(f"{NAME} --json: {key}[{number}] has no name", "Look with brev ls --json")
            if not ssh_client.is_host(item["name"]):
                raise InputError(f"{key}[{number}]", "its name is not that of a host", "Rename it with Brev's client")
            kept = {field: str(item[field]) for field in _FIELDS if isinstance(item.get(field), (str, int))}
            found.append({"kind": key, **kept})
    return found
