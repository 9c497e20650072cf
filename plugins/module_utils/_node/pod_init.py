# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places the job's code and its datasets for another container of the pod, which runs Ray's own processes."""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import pathlib
import typing as t

from . import pod_preflight, pod_store


def main(spec: dict[str, t.Any], program: pathlib.Path) -> int:
    """Unpack the code, write the files and stage the datasets; return the container's exit code."""
    run_dir = pathlib.Path(spec.get("run_dir") or pod_preflight.RUN_DIR)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        if spec.get("archive"):
            pod_preflight.unpack_code(pathlib.Path(spec["archive"]), run_dir)
        pod_preflight.write_files(spec.get("files", {}), run_dir, mode=0o644)
        pod_store.stage(pod_store.read(spec), run_dir, lambda line: print(f"muster: {line}", flush=True))
    except pod_preflight.PodRefusal as exc:
        print(f"muster: {exc}", flush=True)
        return exc.code
    return 0
