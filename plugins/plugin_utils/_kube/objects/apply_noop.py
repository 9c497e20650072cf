# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an object is already what server-side apply would make of it, told from the object alone.

The server keeps for each field manager the set of fields it applied last (``managedFields``, structured-merge-diff's
FieldsV1), and takes a field out of the set when somebody else changes its value. An apply is without effect when the
set is the set of the fields wanted and their values are the wanted ones. Where this cannot be told for certain the
answer is no: an apply too many does no harm.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import base64
import binascii
import decimal
import json
import typing as t
from collections.abc import Mapping

from ....module_utils._model.quantity import parse_quantity
from ..api.kinds import BUILT_IN_GROUPS, Object

_MISSING: t.Final = object()
# Places whose values are quantities, which the server writes in its own form: "1000m" becomes "1".
_QUANTITY_PLACES = """limits requests capacity allocatable hard default defaultRequest max min maxLimitRequestRatio
podFixed sizeLimit storage divisor averageValue nominalQuota borrowingLimit lendingLimit"""
_QUANTITIES = frozenset(_QUANTITY_PLACES.split())
# Of kinds that are not Kubernetes' own only what is named alike in all of them: their "storage" may be a version.
_FOREIGN_QUANTITIES = frozenset({"limits", "requests", "nominalQuota", "borrowingLimit", "lendingLimit"})
_NO_QUANTITIES = frozenset({"ConfigMap", "Secret", "CustomResourceDefinition"})
# Maps whose keys are the user's, whatever fields are called like them: no value is a quantity, an empty one is a value.
_FREE_NAMES = "annotations binaryData data labels matchLabels nodeSelector parameters properties selector"
_FREE_MAPS = frozenset(_FREE_NAMES.split())
# Values of any form in the schema of a definition: all of them is the user's.
_ANY_FORM = frozenset({"default", "enum", "example"})
# The places of both, as they are handed down.
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
_FORGOTTEN: t.Final = frozenset(_OMITTED.split())
# What the server adds inside of values of its own kinds that are replaced as a whole.
_DEFAULTS: t.Final[Mapping[str, tuple[t.Any, ...]]] = {
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
# In the rules of admission an empty selector is the default; elsewhere it takes all and none takes nothing.
_ADMISSION_DEFAULTS: t.Final[Mapping[str, tuple[t.Any, ...]]] = {
    "matchPolicy": ("Equivalent",),
    "namespaceSelector": ({},),
    "objectSelector": ({},),
}
# Structures that the server fills in: written as {} they ask for nothing.
_STRUCTURES = frozenset(
    {"resources", "rollingUpdate", "securityContext", "spec", "strategy", "template", "updateStrategy"}
)


def covered(wanted: Object, live: Object, manager: str) -> bool:
    """Return whether applying ``wanted`` as ``manager`` would leave ``live`` as it is."""
    owned = applied_fields(live, manager, wanted["apiVersion"])
    if owned is None:
        if applied_fields(live, manager) is not None:
            return False
        # The server keeps no set for an object of which nothing but its name is wanted.
        owned = {}
    group, _unused, _version = wanted["apiVersion"].rpartition("/")
    return _Walk(wanted["kind"], built_in=group in BUILT_IN_GROUPS).object(wanted, owned, live)


def applied_fields(live: Object, manager: str, api_version: str | None = None) -> Mapping[str, t.Any] | None:
    """Return the set of fields that ``manager`` applied last (FieldsV1), None when it never applied this object."""
    for entry in (live.get("metadata") or {}).get("managedFields") or []:
        ours = entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")
        if ours and api_version in (None, entry.get("apiVersion")):
            return t.cast("Mapping[str, t.Any]", entry.get("fieldsV1") or {})
    return None


class _Walk:
    """Goes down the wanted value, the owned fields and the live value together."""

    def __init__(self, kind: str, *, built_in: bool) -> None:
        self._built_in = built_in
        self._any_form = _ANY_FORM if built_in and kind == "CustomResourceDefinition" else frozenset()
        self._base64 = built_in and kind == "Secret"
        places = _QUANTITIES if built_in else _FOREIGN_QUANTITIES
        self._quantities = frozenset() if kind in _NO_QUANTITIES else places

    def object(self, wanted: Object, owned: Mapping[str, t.Any], live: Object) -> bool:
        meta = {key: value for key, value in wanted["metadata"].items() if key not in ("name", "namespace")}
        inner = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind", "metadata")}
        rest = {key: value for key, value in owned.items() if key != "f:metadata"}
        return self._map(inner, rest, live) and _METADATA._map(meta, owned.get("f:metadata") or {}, live["metadata"])

    def _place(self, above: str, key: str) -> str:
        """Return how to read the value of ``key``: as of a place of quantities, of a free map, or as the user's own."""
        if above == _OWN or (above != _FREE and key in self._any_form):
            return _OWN
        if above == _FREE or key in _FREE_MAPS:
            return "" if above == _FREE else _FREE
        return key if key in self._quantities or above not in self._quantities else above

    def _forgotten(self, value: t.Any, key: str, above: str) -> bool:
        """Return whether the server leaves this empty value out, so that it is as wanted when it is not there."""
        if not self._built_in or above in (_FREE, _OWN) or key in self._any_form:
            return False
        return value == [] or (key in _FORGOTTEN and _empty(value))

    def _field(self, wanted: t.Any, owned: Mapping[str, t.Any], live: t.Any, key: str) -> bool:
        if not owned:
            # Ours, and not there: what we applied last was as empty.
            return _empty(wanted) if live is _MISSING else self._same(wanted, live, key)
        if isinstance(wanted, dict) and isinstance(live, dict):
            return self._map(wanted, owned, live, key)
        if isinstance(wanted, list) and isinstance(live, list):
            return self._list(wanted, owned, live)
        return False

    def _map(self, wanted: Object, owned: Mapping[str, t.Any], live: Object, above: str = "") -> bool:
        names = {name[2:] for name in owned if name.startswith("f:")}
        if any(not name.startswith("f:") and name != "." for name in owned):
            return False
        for key, value in wanted.items():
            if key not in names:
                if key not in live and self._forgotten(value, key, above):
                    continue
                return False
            if not self._field(value, owned[f"f:{key}"], live.get(key, _MISSING), self._place(above, key)):
                return False
        return names <= set(wanted)

    def _list(self, wanted: list[t.Any], owned: Mapping[str, t.Any], live: list[t.Any]) -> bool:
        names = [name for name in owned if name != "."]
        if len(names) != len(wanted):
            return False
        if all(name.startswith("v:") for name in names):
            values = [json.loads(name[2:]) for name in names]
            return all(item in values and item in live for item in wanted)
        if not all(name.startswith("k:") for name in names):
            return False
        last = -1
        for item in wanted:
            found = self._keyed(item, {name: json.loads(name[2:]) for name in names}, live)
            if found is None:
                return False
            name, position = found
            # The order of the wanted list becomes that of the live one.
            if position < last or not self._field(item, _without_keys(owned[name], item), live[position], ""):
                return False
            last = position
        return True

    @staticmethod
    def _keyed(item: t.Any, names: Mapping[str, t.Any], live: list[t.Any]) -> tuple[str, int] | None:
        """Return the owned name of a list's item and its place in the live list; None when that is not certain."""
        if not isinstance(item, dict):
            return None
        fitting = [
            name for name, keys in names.items() if all(item.get(key, value) == value for key, value in keys.items())
        ]
        if len(fitting) != 1:
            return None
        keys = names[fitting[0]]
        places = [
            number
            for number, other in enumerate(live)
            if isinstance(other, dict) and all(other.get(key) == value for key, value in keys.items())
        ]
        return (fitting[0], places[0]) if len(places) == 1 else None

    def _same(self, wanted: t.Any, live: t.Any, key: str) -> bool:
        """Return whether a value that is replaced as a whole is the wanted one, in the server's spelling."""
        if isinstance(wanted, dict):
            if not wanted and key in _STRUCTURES:
                return isinstance(live, dict)
            return isinstance(live, dict) and self._same_map(wanted, live, key)
        if isinstance(wanted, list):
            if not isinstance(live, list) or len(live) != len(wanted):
                return False
            return all(self._same(one, other, "") for one, other in zip(wanted, live, strict=True))
        if isinstance(wanted, bool) or isinstance(live, bool):
            return wanted is live
        if wanted == live:
            return True
        if self._base64 and isinstance(wanted, str) and isinstance(live, str):
            return _decoded(wanted) == _decoded(live)
        return key in self._quantities and _equal_quantities(wanted, live)

    def _same_map(self, wanted: Object, live: Object, above: str) -> bool:
        known = _DEFAULTS if self._built_in and above not in (_FREE, _OWN) else {}
        if known and "resourceRules" in live:
            known = _ADMISSION_DEFAULTS
        for key, value in live.items():
            if key not in wanted and not any(value == default for default in known.get(key, ())):
                return False
        return all(
            self._same(value, live[key], self._place(above, key)) if key in live else self._forgotten(value, key, above)
            for key, value in wanted.items()
        )


# What is noted about objects is alike for all kinds.
_METADATA: t.Final = _Walk("", built_in=True)


def _without_keys(owned: t.Any, item: Object) -> Mapping[str, t.Any]:
    """Return an item's fields; an item of which nothing but itself is noted owns what it consists of."""
    inner = {name: value for name, value in (owned or {}).items() if name != "."}
    return inner or {f"f:{key}": {} for key in item}


def _empty(value: t.Any) -> bool:
    return value is False or (not isinstance(value, bool) and value in (0, "", [], {}))


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return text.encode()


def _quantity(value: t.Any) -> decimal.Decimal | None:
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return parse_quantity(str(value)) if plain else None


def _equal_quantities(one: t.Any, other: t.Any) -> bool:
    first, second = _quantity(one), _quantity(other)
    return first is not None and first == second
