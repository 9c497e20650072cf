# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Ray job is started on: all its workers, not as many as happened to be there.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import json
import subprocess
import typing as t

from . import pod_ground

EXIT_UNREACHABLE = 69
# Run by the job's own interpreter, which has ray. The head takes no work and is not counted.
_ASK = """
import json, sys, time
import ray
ray.init(address="auto", log_to_driver=False, logging_level="ERROR", namespace="muster")
wanted, until, found = int(sys.argv[1]), time.monotonic() + float(sys.argv[2]), []
while True:
    found = [n["NodeManagerHostname"] for n in ray.nodes()
             if n["Alive"] and "node:__internal_head__" not in n["Resources"]]
    if len(found) >= wanted or time.monotonic() > until:
        break
    time.sleep(0.5)
print(json.dumps({"nodes": sorted(found), "ray": ray.__version__}))
"""


def workers(cluster: t.Mapping[str, t.Any], wait_s: float) -> dict[str, t.Any]:
    """Return ``{nodes, ray}`` once all workers of the cluster are alive.

    :raises Refusal: when they do not come in time, or when ray does not answer.
    """
    wanted = int(cluster["nodes"])
    argv = [str(cluster["python"]), "-c", _ASK, str(wanted), str(wait_s)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=wait_s + 60, check=False)
    except subprocess.TimeoutExpired as exc:
        raise pod_ground.Refusal(f"Ray did not answer within {wait_s + 60:.0f} s", EXIT_UNREACHABLE) from exc
    except OSError as exc:
        raise pod_ground.Refusal(f"cannot run {argv[0]}: {exc.strerror}", 127) from exc
    found = _answer(done.stdout)
    if found is None:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise pod_ground.Refusal(f"Ray cannot be asked for its nodes: {last[:300]}", EXIT_UNREACHABLE)
    if len(found["nodes"]) < wanted:
        names = ", ".join(found["nodes"]) or "none"
        raise pod_ground.Refusal(f"{len(found['nodes'])} of {wanted} Ray workers came: {names}", EXIT_UNREACHABLE)
    return found


def _answer(text: str) -> dict[str, t.Any] | None:
    try:
        value = json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("nodes"), list) else None
