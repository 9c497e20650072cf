# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The providers that machines can be rented from, by name, and where their credentials come from.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._secrets.sources import SecretSource
from .base import MachineProvider
from .connection import ProviderConnection
from .lambda_cloud.provision import LambdaProvider
from .runpod.provision import RunpodProvider
from .shadeform.provision import ShadeformProvider
from .vastai.provision import VastProvider


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """How to make a provider: ``make`` takes the access and the account's name."""

    make: t.Callable[[ProviderConnection, str], MachineProvider]
    variable: str

    def secret(self, path: str) -> SecretSource:
        """Return the sources of its credential; ``path`` is the option's place for errors."""
        return SecretSource(f"{path}.api_token", f"{path}.api_token_file", (self.variable,))


CATALOG: t.Final[dict[str, Entry]] = {
    "lambda": Entry(LambdaProvider, "LAMBDA_API_KEY"),
    "runpod": Entry(RunpodProvider, "RUNPOD_API_KEY"),
    "vastai": Entry(VastProvider, "VAST_API_KEY"),
    "shadeform": Entry(ShadeformProvider, "SHADEFORM_API_KEY"),
}
