# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of an object store: steps of the request ``s3``, each with addresses that the controller signed."""

from __future__ import annotations

import pathlib
import typing as t

from . import checkpoint_sync, dataset_stage, mount_check, s3_check

NodeRequest = t.Mapping[str, t.Any]


def answer(request: NodeRequest, state: pathlib.Path) -> dict[str, t.Any]:
    """Carry out one step of the request."""
    run = state / "runs" / str(request.get("run_id"))
    if request["step"] == "candidates":
        return checkpoint_sync.list_candidates(request, run)
    if request["step"] == "renew":
        return checkpoint_sync.renew(request, run)
    if request["step"] in _WITH_STATE:
        return _WITH_STATE[request["step"]](request, state)
    return _STEPS[request["step"]](request)


_STEPS: dict[str, t.Callable[[NodeRequest], dict[str, t.Any]]] = {
    "clean_up": s3_check.clean_up,
    "clean_mount": mount_check.clean_up,
    "visit": s3_check.visit,
    "restore": checkpoint_sync.restore,
    "read": checkpoint_sync.read,
    "list": dataset_stage.list_objects,
}
_WITH_STATE: dict[str, t.Callable[[NodeRequest, pathlib.Path], dict[str, t.Any]]] = {
    "plan": dataset_stage.plan,
    "stage": dataset_stage.stage,
    "link": dataset_stage.link,
}
