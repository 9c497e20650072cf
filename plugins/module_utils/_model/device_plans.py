# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of one machine for its driver, its container runtime and its RDMA, made together: one reboot for all."""

from __future__ import annotations

import dataclasses
import typing as t

from .container_runtime_plan import RuntimeOptions, RuntimePlan, plan_container_runtime
from .device_host import DeviceHost
from .errors import InputError
from .gpu_driver_plan import DriverOptions, DriverPlan, plan_gpu_driver
from .rdma_plan import RdmaOptions, RdmaPlan, plan_rdma
from .validators import find_nearest

_OPTIONS: t.Final[dict[str, type]] = {
    "gpu_driver": DriverOptions,
    "container_runtime": RuntimeOptions,
    "rdma": RdmaOptions,
}


ROLES: t.Final = tuple(_OPTIONS)
# By role its options, each the variable of that role without its prefix.
OPTION_NAMES: t.Final = {role: tuple(field.name for field in dataclasses.fields(cls)) for role, cls in _OPTIONS.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class DevicePlans:
    """What is done to one machine for its GPUs and its fast network."""

    gpu_driver: DriverPlan
    container_runtime: RuntimePlan
    rdma: RdmaPlan


def plan_devices(
    name: str, facts: t.Mapping[str, t.Any], options: t.Mapping[str, t.Mapping[str, t.Any]]
) -> DevicePlans:
    """Return the plans of the machine ``name`` by its facts (``_node/facts_devices.py``).

    :param options: by role its options without the role's prefix; what is not named has its default.
    :raises InputError: naming the option.
    """
    asked = {role: _read_options(role, cls, options.get(role) or {}) for role, cls in _OPTIONS.items()}
    host = DeviceHost(name, facts)
    driver = plan_gpu_driver(host, asked["gpu_driver"])
    gets_driver = driver.action in ("install", "upgrade", "reboot")
    return DevicePlans(
        driver,
        plan_container_runtime(host, asked["container_runtime"], gets_driver),
        plan_rdma(host, asked["rdma"]),
    )


def _read_options(role: str, cls: type, values: t.Mapping[str, t.Any]) -> t.Any:
    known = OPTION_NAMES[role]
    for key in values:
        if key not in known:
            near = find_nearest(key, known)
            raise InputError(f"{role}_{key}", "is not an option", f"Did you mean {role}_{near}?" if near else "")
    texts = {field.name for field in dataclasses.fields(cls) if field.type == "str"}
    return cls(**{key: _read_value(value, key in texts) for key, value in values.items()})


def _read_value(value: t.Any, text: bool) -> t.Any:
    # YAML has a branch such as 595 as a number.
    if text and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return tuple(value) if isinstance(value, list) else value
