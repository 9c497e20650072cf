# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of a job as its services see them."""

from __future__ import annotations

import dataclasses
import typing as t

from .....module_utils._model import binding
from ...shared import credentials


@dataclasses.dataclass(frozen=True, slots=True)
class JobNodes:
    """From where a job's services must be reached.

    ``names`` is None where it is not known which nodes they will be; ``cluster_id`` and ``open_cluster`` are of the
    cluster whose Secrets may hold the keys of a service.
    """

    names: t.Sequence[str] | None
    vantage: binding.Vantage = "host"
    cluster_id: str = ""
    open_cluster: credentials.OpenCluster | None = None

    def require_reachable(self, service: binding.Binding, option: str) -> None:
        """Refuse a service that one of them cannot use. Raises as :func:`binding.require_reachable`."""
        binding.require_reachable(service, self.names, self.vantage, option, self.cluster_id)
