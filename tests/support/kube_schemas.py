# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds objects to the schemas of their kinds as an API server does that decodes strictly: unknown fields are errors."""

from __future__ import annotations

import functools
import gzip
import json
import pathlib
import typing as t

import jsonschema

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "crds"
FILES = {
    "jobset.x-k8s.io/v1alpha2/JobSet": "jobset",
    "trainer.kubeflow.org/v1alpha1/TrainJob": "trainjob",
    "trainer.kubeflow.org/v1alpha1/TrainingRuntime": "trainingruntime",
    "kubeflow.org/v2beta1/MPIJob": "mpijob",
    "ray.io/v1/RayJob": "rayjob",
    "batch.volcano.sh/v1alpha1/Job": "volcanojob",
}


def problems(item: dict[str, t.Any]) -> list[str]:
    """Return what an API server would refuse in an object, with the paths of the fields."""
    found = _validator(f"{item['apiVersion']}/{item['kind']}").iter_errors(item)
    return sorted(f"{'.'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in found)


@functools.cache
def _validator(kind: str) -> t.Any:
    if kind in FILES:
        schema = _strict(_load(FILES[kind]), top=True)
        return jsonschema.Draft202012Validator(schema)
    built_in = _load("kubernetes")
    schema = {"$ref": f"#/$defs/{built_in['kinds'][kind]}", "$defs": built_in["$defs"]}
    return jsonschema.Draft202012Validator(schema)


def _load(name: str) -> t.Any:
    return json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))


def _strict(schema: t.Any, top: bool = False) -> t.Any:
    """Return a structural schema that refuses what the server would prune."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"], **({"pattern": schema["pattern"]} if "pattern" in schema else {})}
    result = {key: item for key, item in schema.items() if not key.startswith("x-kubernetes-")}
    if "properties" in schema:
        result["properties"] = {key: _strict(item) for key, item in schema["properties"].items()}
    if isinstance(schema.get("items"), dict):
        result["items"] = _strict(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = _strict(schema["additionalProperties"])
    open_ended = "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields")
    if schema.get("type") == "object" and not open_ended:
        result["additionalProperties"] = False
    if top:
        # The server checks an object's own metadata itself.
        result["properties"]["metadata"] = {"type": "object"}
    return result
