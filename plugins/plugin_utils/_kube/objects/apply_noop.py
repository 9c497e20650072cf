# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds no-op applies: whether an object already is what server-side apply would make it, by the object alone.

The server keeps for each field manager the set of fields it applied last (``managedFields``, structured-merge-diff's
FieldsV1), and removes a field from the set when another manager changes its value. An apply has no effect when the set
is the set of the wanted fields and their values are the wanted ones. Where this is not certain the answer is no: an
apply too many does no harm.
"""

from __future__ import annotations

import base64
import binascii
import decimal
import json
import typing as t
from collections.abc import Mapping

from ....module_utils._model.quantity import parse_quantity
from ..api.kinds import BUILT_IN_GROUPS, JsonObject, KubeObject

_MISSING: t.Final = object()
# Places whose values are quantities, which the server writes in its own form: "1000m" becomes "1".
_QUANTITY_PLACES = """limits requests capacity allocatable hard default defaultRequest max min maxLimitRequestRatio
podFixed sizeLimit storage divisor averageValue nominalQuota borrowingLimit lendingLimit"""
_QUANTITIES = frozenset(_QUANTITY_PLACES.split())
# Of custom kinds only those that mean the same in all of them: their "storage" may be a version.
_FOREIGN_QUANTITIES = frozenset({"limits", "requests", "nominalQuota", "borrowingLimit", "lendingLimit"})
_NO_QUANTITIES = frozenset({"ConfigMap", "Secret", "CustomResourceDefinition"})
# Maps whose keys are the user's: no value in them is a quantity, and an empty one is a value.
_FREE_NAMES = "annotations binaryData data labels matchLabels nodeSelector parameters properties selector"
_FREE_MAPS = frozenset(_FREE_NAMES.split())
# Values of any form in the schema of a definition: the user's as a whole.
_ANY_FORM = frozenset({"default", "enum", "example"})
# The positions of both, for the levels below.
_FREE, _OWN = "annotations", "default of a schema"
# Fields of Kubernetes' own kinds that are left out when they are false, 0, "" or {}: in its Go types they are no
# pointers and marked omitempty. A pointer's false is kept, and means something else than nothing.
_OMITTED = """allowWatchBookmarks clusterIP deprecated description dnsPolicy effect exclusiveMaximum exclusiveMinimum
externalName externalTrafficPolicy failureThreshold format fsType generateName globalDefault healthCheckNodePort
hostIP hostIPC hostNetwork hostPID hostPort initialDelaySeconds loadBalancerIP medium minReadySeconds nodePort
nullable operator paused persistentVolumeReclaimPolicy podManagementPolicy preserveUnknownFields priorityClassName
providerID publishNotReadyAddresses readOnly schedulerName serviceAccount serviceAccountName sessionAffinity stdin
stdinOnce subPath subPathExpr subdomain successThreshold terminationMessagePath terminationMessagePolicy tty
uniqueItems unschedulable value workingDir
annotations binaryData data default defaultRequest hard labels limits matchLabels max maxLimitRequestRatio min
nodeSelector parameters requests volumeAttributes"""
_OMITTED_FIELDS: t.Final = frozenset(_OMITTED.split())
# What the server adds inside of values of its own kinds that are replaced as a whole.
_DEFAULTS: t.Final[Mapping[str, tuple[object, ...]]] = {
    "apiGroup": ("rbac.authorization.k8s.io", ""),
    "apiVersion": ("v1",),
    "defaultMode": (420,),
    "divisor": ("0",),
    "expirationSeconds": (3600,),
    "kind": ("PersistentVolumeClaim",),
    "protocol": ("TCP",),
    "scope": ("*",),
    "status": ({"phase": "Pending"}, "True"),
    "volumeMode": ("Filesystem",),
}
# In admission rules an empty selector is the default; elsewhere it selects everything, and a missing one nothing.
_ADMISSION_DEFAULTS: t.Final[Mapping[str, tuple[object, ...]]] = {
    "matchPolicy": ("Equivalent",),
    "namespaceSelector": ({},),
    "objectSelector": ({},),
}
# Structures that the server fills in: written as {} they set nothing.
_STRUCTURES = frozenset(
    {"resources", "rollingUpdate", "securityContext", "spec", "strategy", "template", "updateStrategy"}
)


# A set of fields (FieldsV1): "f:<name>" for a field, "k:<keys>" and "v:<value>" for a list's item, "." for itself.
type FieldSet = Mapping[str, FieldSet]
_NO_FIELDS: t.Final[FieldSet] = {}


def is_noop(wanted: KubeObject, live: KubeObject, manager: str) -> bool:
    """Return whether applying ``wanted`` as ``manager`` would leave ``live`` as it is."""
    owned = applied_fields(live, manager, wanted["apiVersion"])
    if owned is None:
        if applied_fields(live, manager) is not None:
            return False
        # The server keeps no set for an object of which only the name is wanted.
        owned = _NO_FIELDS
    group, _unused, _version = wanted["apiVersion"].rpartition("/")
    return _Comparison(wanted["kind"], built_in=group in BUILT_IN_GROUPS).is_same_object(wanted, owned, live)


def applied_fields(live: KubeObject, manager: str, api_version: str | None = None) -> FieldSet | None:
    """Return the set of fields that ``manager`` applied last, None when it never applied this object."""
    for entry in (live.get("metadata") or {}).get("managedFields") or []:
        applied = entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")
        if applied and api_version in (None, entry.get("apiVersion")):
            return t.cast("FieldSet", entry.get("fieldsV1") or {})
    return None


class _Comparison:
    """Compares the wanted value with the owned fields and the live value, level by level."""

    def __init__(self, kind: str, *, built_in: bool) -> None:
        self._built_in = built_in
        self._any_form = _ANY_FORM if built_in and kind == "CustomResourceDefinition" else frozenset()
        self._base64 = built_in and kind == "Secret"
        positions = _QUANTITIES if built_in else _FOREIGN_QUANTITIES
        self._quantities = frozenset() if kind in _NO_QUANTITIES else positions

    def is_same_object(self, wanted: KubeObject, owned: FieldSet, live: KubeObject) -> bool:
        meta: JsonObject = {key: value for key, value in wanted["metadata"].items() if key not in ("name", "namespace")}
        inner: JsonObject = {
            key: value for key, value in wanted.items() if key not in ("apiVersion", "kind", "metadata")
        }
        rest = {key: value for key, value in owned.items() if key != "f:metadata"}
        return self._is_same_map(inner, rest, live) and _METADATA._is_same_map(
            meta, owned.get("f:metadata") or _NO_FIELDS, live["metadata"]
        )

    def _position(self, above: str, key: str) -> str:
        """Return how to read the value of ``key``: as in a map of quantities, in a free map, or as the user's own."""
        if above == _OWN or (above != _FREE and key in self._any_form):
            return _OWN
        if above == _FREE or key in _FREE_MAPS:
            return "" if above == _FREE else _FREE
        return key if key in self._quantities or above not in self._quantities else above

    def _is_omitted(self, value: object, key: str, above: str) -> bool:
        """Return whether the server leaves this empty value out, so that it is as wanted when it is missing."""
        if not self._built_in or above in (_FREE, _OWN) or key in self._any_form:
            return False
        return value == [] or (key in _OMITTED_FIELDS and _is_empty(value))

    def _is_same_field(self, wanted: object, owned: FieldSet, live: object, key: str) -> bool:
        if not owned:
            # Owned and missing: the value that was applied last was empty as well.
            return _is_empty(wanted) if live is _MISSING else self._is_same_value(wanted, live, key)
        if isinstance(wanted, dict) and isinstance(live, dict):
            return self._is_same_map(wanted, owned, live, key)
        if isinstance(wanted, list) and isinstance(live, list):
            return self._is_same_list(wanted, owned, live)
        return False

    def _is_same_map(
        self, wanted: Mapping[str, object], owned: FieldSet, live: Mapping[str, object], above: str = ""
    ) -> bool:
        names = {name[2:] for name in owned if name.startswith("f:")}
        if any(not name.startswith("f:") and name != "." for name in owned):
            return False
        for key, value in wanted.items():
            if key not in names:
                if key not in live and self._is_omitted(value, key, above):
                    continue
                return False
            position = self._position(above, key)
            if not self._is_same_field(value, owned[f"f:{key}"], live.get(key, _MISSING), position):
                return False
        return names <= set(wanted)

    def _is_same_list(self, wanted: list[object], owned: FieldSet, live: list[object]) -> bool:
        names = [name for name in owned if name != "."]
        if len(names) != len(wanted):
            return False
        if all(name.startswith("v:") for name in names):
            values = [json.loads(name[2:]) for name in names]
            return all(item in values and item in live for item in wanted)
        if not all(name.startswith("k:") for name in names):
            return False
        keys = {name: json.loads(name[2:]) for name in names}
        last = -1
        for item in wanted:
            if not isinstance(item, dict) or (match := _find_list_item(item, keys, live)) is None:
                return False
            name, index = match
            # The order of the wanted list becomes that of the live one.
            if index < last or not self._is_same_field(item, _without_keys(owned[name], item), live[index], ""):
                return False
            last = index
        return True

    def _is_same_value(self, wanted: object, live: object, key: str) -> bool:
        """Return whether a value that is replaced as a whole is the wanted one, in the server's spelling."""
        if isinstance(wanted, dict):
            if not wanted and key in _STRUCTURES:
                return isinstance(live, dict)
            return isinstance(live, dict) and self._is_same_whole_map(wanted, live, key)
        if isinstance(wanted, list):
            if not isinstance(live, list) or len(live) != len(wanted):
                return False
            return all(self._is_same_value(one, other, "") for one, other in zip(wanted, live, strict=True))
        if isinstance(wanted, bool) or isinstance(live, bool):
            return wanted is live
        if wanted == live:
            return True
        if self._base64 and isinstance(wanted, str) and isinstance(live, str):
            return _decode_base64(wanted) == _decode_base64(live)
        return key in self._quantities and _equal_quantities(wanted, live)

    def _is_same_whole_map(self, wanted: JsonObject, live: JsonObject, above: str) -> bool:
        defaults = _DEFAULTS if self._built_in and above not in (_FREE, _OWN) else {}
        if defaults and "resourceRules" in live:
            defaults = _ADMISSION_DEFAULTS
        for key, value in live.items():
            if key not in wanted and not any(value == default for default in defaults.get(key, ())):
                return False
        return all(
            self._is_same_value(value, live[key], self._position(above, key))
            if key in live
            else self._is_omitted(value, key, above)
            for key, value in wanted.items()
        )


# The metadata is the same for all kinds.
_METADATA: t.Final = _Comparison("", built_in=True)


def _find_list_item(item: JsonObject, names: Mapping[str, JsonObject], live: list[object]) -> tuple[str, int] | None:
    """Return the owned name of a list's item and its index in the live list; None when that is not certain."""
    matches = [
        name for name, keys in names.items() if all(item.get(key, value) == value for key, value in keys.items())
    ]
    if len(matches) != 1:
        return None
    keys = names[matches[0]]
    indices = [
        index
        for index, other in enumerate(live)
        if isinstance(other, dict) and all(other.get(key) == value for key, value in keys.items())
    ]
    return (matches[0], indices[0]) if len(indices) == 1 else None


def _without_keys(owned: FieldSet, item: JsonObject) -> FieldSet:
    """Return an item's fields; an item of which only itself is noted owns all fields that it has."""
    inner = {name: value for name, value in (owned or {}).items() if name != "."}
    return inner or {f"f:{key}": _NO_FIELDS for key in item}


def _is_empty(value: object) -> bool:
    return value is False or (not isinstance(value, bool) and value in (0, "", [], {}))


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return text.encode()


def _parse_quantity(value: object) -> decimal.Decimal | None:
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return parse_quantity(str(value)) if plain else None


def _equal_quantities(one: object, other: object) -> bool:
    first, second = _parse_quantity(one), _parse_quantity(other)
    return first is not None and first == second
