# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names under which pods find each other, with and without JobSet."""

from __future__ import annotations

import json

from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    ENGINES,
    RUN_ID,
    build,
)


def test_pods_are_found_under_the_name_that_they_are_told() -> None:
    name = RUN_ID
    wanted = {
        "jobset": f"{name}-node-0-0.{name}",
        "indexed_job": f"{name}-0.{name}",
        "trainjob": f"{name}-node-0-0.{name}",
        "mpijob": f"{name}-worker-0.{name}",
        "volcano": f"{name}-node-0.{name}",
    }
    for engine, coordinator in wanted.items():
        objects = build(**ENGINES[engine])
        specs = [json.loads(text) for key, text in objects[0]["data"].items() if key.endswith(".json")]
        assert {spec["coordinator"] for spec in specs} == {coordinator}, engine
    job = build(**ENGINES["indexed_job"])
    service = next(item for item in job if item["kind"] == "Service")
    assert service["metadata"]["name"] == job[-1]["spec"]["template"]["spec"]["subdomain"] == name
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
