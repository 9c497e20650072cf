# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks every request and every answer of a fake against the provider's own OpenAPI document.

Documents are in ``tests/fixtures/api_specs``; what they get wrong is in ``deviations.json`` there, each with the
source that says so. A deviation is a JSON merge patch on one operation.
"""

from __future__ import annotations

import functools
import json
import pathlib
import re
import typing as t
import urllib.parse

import jsonschema

FOLDER = pathlib.Path(__file__).parents[1] / "fixtures" / "api_specs"
_METHODS = ("get", "post", "put", "patch", "delete")


def merge_patch(target: t.Any, patch: t.Any) -> t.Any:
    """Return ``target`` changed by an RFC 7396 merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


@functools.cache
def spec(name: str, prefix: str = "") -> Spec:
    """Return the document of a provider, read once."""
    return Spec(name, prefix)


class Spec:
    """One provider's document. ``prefix`` is what its paths have in front on the wire."""

    def __init__(self, name: str, prefix: str = "") -> None:
        document = json.loads((FOLDER / f"{name}.json").read_text())
        changes = json.loads((FOLDER / "deviations.json").read_text()).get(name, {})
        for entry in changes.get("patches", []):
            path, method = entry["path"], entry["method"]
            item = document["paths"].setdefault(path, {})
            item[method] = merge_patch(item.get(method, {}), entry["patch"])
        self._document = document
        self._right: set[tuple[str, str]] = set()
        self._statuses = {int(code) for code in changes.get("statuses", {})}
        self._slash = bool(changes.get("trailing_slash"))
        self._routes = [
            (method, re.compile(prefix + re.sub(r"\{[^}]+\}", "([^/]+)", path) + r"\Z"), path, operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            if method in _METHODS
        ]

    def _resolve(self, value: t.Any) -> t.Any:
        while isinstance(value, dict) and "$ref" in value:
            found: t.Any = self._document
            for part in value["$ref"][2:].split("/"):
                found = found[part.replace("~1", "/").replace("~0", "~")]
            value = found
        return value

    @functools.lru_cache(maxsize=256)  # noqa: B019
    def _validator(self, pointer: str) -> t.Any:
        schema = json.loads(pointer)
        return jsonschema.Draft202012Validator({**schema, "components": self._document.get("components", {})})

    def _problems(self, schema: t.Any, value: t.Any, where: str) -> list[str]:
        pointer = json.dumps(schema, sort_keys=True)
        # Polling asks the same again and again: what was right once is right.
        key = (pointer, json.dumps(value, sort_keys=True))
        if key in self._right:
            return []
        errors = self._validator(pointer).iter_errors(value)
        found = [f"{where}{'/'.join(['', *map(str, error.path)])}: {error.message[:160]}" for error in errors]
        if not found:
            self._right.add(key)
        return found

    def find(self, method: str, path: str) -> tuple[str, dict[str, t.Any]] | None:
        """Return the operation for a call, with its path in the document."""
        bare = path.rstrip("/") if self._slash else path
        if self._slash and not path.endswith("/"):
            return None
        for known, pattern, template, operation in self._routes:
            if known == method.lower() and pattern.match(bare):
                return template, operation
        return None

    def check_request(self, method: str, target: str, body: bytes) -> list[str]:
        """Return what the document does not allow about a request."""
        parts = urllib.parse.urlsplit(target)
        found = self.find(method, parts.path)
        if found is None:
            return [f"{method} {parts.path} is not in the document"]
        template, operation = found
        problems = self._query_problems(template, operation, parts.query)
        content = self._resolve(operation.get("requestBody", {})).get("content", {}).get("application/json")
        if body and content is None:
            problems.append(f"{method} {parts.path} takes no body")
        elif content is not None:
            problems += self._body_problems(content["schema"], body, f"{method} {parts.path}")
        return problems

    def _body_problems(self, schema: t.Any, body: bytes, where: str) -> list[str]:
        try:
            return self._problems(schema, json.loads(body), f"{where} body")
        except ValueError:
            return [f"{where} body is not JSON"]

    def _query_problems(self, template: str, operation: dict[str, t.Any], query: str) -> list[str]:
        shared = self._document["paths"][template].get("parameters", [])
        known = {
            item["name"]: item.get("schema", {})
            for item in map(self._resolve, [*shared, *operation.get("parameters", [])])
            if item.get("in") == "query"
        }
        problems = []
        for name, text in urllib.parse.parse_qsl(query, keep_blank_values=True):
            if name not in known:
                problems.append(f"query parameter {name} is not in the document")
                continue
            schema = self._resolve(known[name])
            schema = self._resolve(schema.get("items", schema)) if schema.get("type") == "array" else schema
            problems += self._problems(schema, _typed(text, schema), f"query {name}")
        return problems

    def check_answer(self, method: str, target: str, status: int, data: t.Any) -> list[str]:
        """Return what the document does not allow about an answer; ``data`` None means no body."""
        path = urllib.parse.urlsplit(target).path
        found = self.find(method, path)
        if found is None:
            return []
        if status in self._statuses:
            return []
        responses = found[1].get("responses", {})
        response = self._resolve(responses.get(str(status), responses.get("default")))
        if response is None:
            return [f"{method} {path}: status {status} is not in the document"]
        content = response.get("content") or {}
        if data is None:
            return []
        schema = next((item.get("schema") for kind, item in content.items() if "json" in kind), None)
        return self._problems(schema, data, f"{method} {path} {status}") if schema else []


def _typed(text: str, schema: dict[str, t.Any]) -> t.Any:
    kind = schema.get("type")
    if kind == "integer" and re.fullmatch(r"-?\d+", text):
        return int(text)
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    return text
