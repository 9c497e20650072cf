# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies a set of objects to an API server (``kube_apply``)."""

from __future__ import annotations

import pathlib
import typing as t
from collections.abc import Mapping

from ....module_utils._model.errors import InputError
from ..._kube.api.kinds import KubeObject
from ..._kube.objects import manifests
from ..._kube.objects.apply import apply
from ..._kube.objects.apply_plan import Prune
from ..shared.kube_connection import ReportLine, open_client


def run(
    options: Mapping[str, t.Any], base: pathlib.Path, check: bool, want_diff: bool, tell: ReportLine | None = None
) -> dict[str, object]:
    """Return the result of ``kube_apply``."""
    objects = read_objects(options, base)
    labels = options.get("prune_labels") or {}
    if options.get("prune") and not labels:
        raise InputError("prune_labels", "is required with prune", "Only objects with these labels are removed")
    kinds = tuple(options.get("prune_kinds") or ())
    prune = Prune({str(key): str(value) for key, value in labels.items()}, kinds) if options.get("prune") else None
    if not objects and prune is None:
        raise InputError("objects", "there is nothing to apply", "Give manifests, or prune with prune_labels")
    client = open_client(options, base, tell)
    result = apply(
        client,
        objects,
        str(options["field_manager"]),
        bool(options["force_conflicts"]),
        check,
        namespace=options.get("namespace"),
        prune=prune,
        validate=bool(options["validate"]),
        timeout_s=float(options["timeout_s"]),
    )
    answer: dict[str, object] = {
        "changed": result.changed,
        "objects": [change.to_dict() for change in result.changes],
        "requests": client.requests,
        "writes": 0 if check else result.writes,
    }
    return {**answer, "diff": result.diff()} if want_diff else answer


def read_objects(options: Mapping[str, t.Any], base: pathlib.Path) -> list[KubeObject]:
    """Return the objects of the options ``objects`` and ``src``."""
    objects = manifests.collect(options["objects"], "objects") if options.get("objects") else []
    for path in options.get("src") or []:
        objects += manifests.read(path, base)
    return objects
