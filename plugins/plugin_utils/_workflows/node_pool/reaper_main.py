# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reaper: ``python -m …node_pool.reaper_main SETTINGS.json``, for a unit on a permanent machine, without Ansible.

The settings are options of ``node_pool``: ``cluster``, ``state_home``, ``providers`` with ``api_token_file``. To ask
about runs without a follower: ``ssh_private_key_file`` for machines, ``kubeconfig`` with ``context`` for a cluster.
With ``metrics_file`` figures of what is leased are written there. It imports the ledgers that controllers have sent,
deletes what is due and exits with 0 when nothing that is due bills, 1 when something does, 2 when that is unknown.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
import time
import typing as t

from ....module_utils._model import validators
from ....module_utils._model.errors import InputError, MusterError, RefusedError
from ....module_utils._model.lease import parse_cluster_name
from ....module_utils._node.files import clear_left
from ....module_utils._secrets.scrubber import scrub
from ..._provision.ledger.ledger_merge import INCOMING, import_incoming
from ..._provision.ledger.ledger_store import read_ledger
from ..shared.state_dir import StateHome
from .absent import ensure_absent
from .accounts import ModuleResult, parse_providers
from .lease_metrics import write_leases
from .present import Context

_CLUSTER = ("kubeconfig", "context")
_KNOWN = (
    "cluster",
    "state_home",
    "providers",
    "orphans",
    "release_timeout_s",
    "ssh_private_key_file",
    "metrics_file",
    *_CLUSTER,
)
_SHOWN = ("leases", "billing", "orphans", "within_lease", "residual_usd_per_hour", "reasons", "notes", "unwritten")


def read_settings(path: pathlib.Path) -> ModuleResult:
    """Return the options of one pass. Raises InputError for a file that cannot be read or has other keys."""
    try:
        settings = validators.dictionary(json.loads(path.read_bytes()), str(path))
    except (OSError, ValueError):
        raise InputError(str(path), "cannot be read as JSON") from None
    for key in settings:
        if key not in _KNOWN:
            near = validators.find_nearest(key, _KNOWN)
            raise InputError(f"{path}: {key}", "is not a setting", f"Did you mean '{near}'?" if near else "")
    if "cluster" not in settings:
        raise InputError(f"{path}: cluster", "is required")
    defaults = {"state_home": {}, "orphans": "report", "release_timeout_s": 900}
    fixed: ModuleResult = {"due_only": True, "pool": None, "nodes": None, "hygiene": []}
    return {**defaults, **settings, "providers": parse_providers(settings.get("providers"), "providers"), **fixed}


def _warn(line: str) -> None:
    print(scrub(line), file=sys.stderr)


def _import_ledgers(options: ModuleResult) -> None:
    """Merge what controllers have sent; where that fails, as on a full disk, a warning is printed."""
    home = StateHome(options["state_home"], parse_cluster_name(options["cluster"]))
    # Copies whose senders were killed.
    clear_left(home.folder / INCOMING, "", ".new")
    try:
        lines = import_incoming(home.folder)
    except RefusedError:
        raise
    except (MusterError, OSError) as error:
        lines = [str(error)]
    for line in lines:
        _warn(f"warning: {line}")


def _write_metrics(options: ModuleResult) -> None:
    """Write the figures of what is leased now; a warning is printed where that fails."""
    if options.get("metrics_file"):
        home = StateHome(options["state_home"], parse_cluster_name(options["cluster"]))
        problem = write_leases(str(options["metrics_file"]), read_ledger(home.folder).leases.values(), time.time())
        if problem:
            _warn(f"warning: {problem}")


def main(argv: t.Sequence[str], context: Context | None = None) -> int:
    """Do one pass and print its outcome as one line of JSON; return the exit status."""
    if len(argv) != 1:
        print("usage: reaper_main SETTINGS.json", file=sys.stderr)
        return 2
    try:
        options = read_settings(pathlib.Path(argv[0]))
        _import_ledgers(options)
        context = dataclasses.replace(context or Context(pathlib.Path.cwd()), report=_warn)
        result = ensure_absent(options, context)
        _write_metrics(options)
    except MusterError as error:
        print(scrub(str(error)), file=sys.stderr)
        return 2
    print(json.dumps({key: result.get(key) for key in _SHOWN}, separators=(",", ":")))
    if result.get("failed"):
        print(result["msg"], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
