# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens the store that ``muster_state`` names."""

from __future__ import annotations

import functools
import json
import pathlib

from ....module_utils._model import validators
from ....module_utils._model.errors import InputError
from ....module_utils._model.state_store import StateSetting, StateStore
from ..._kube.objects.secret_state import SecretState
from ..._services.s3_state import S3State
from .credentials import read_s3_keys
from .kube_connection import open_client


def open_store(setting: StateSetting, cluster: str) -> StateStore:
    """Return the store of one cluster's state, the same in one process. Nothing is asked of it yet.

    :raises InputError: when credentials are missing.
    """
    return _open(json.dumps(validators.plain_value(setting), sort_keys=True), cluster)


@functools.lru_cache
def _open(text: str, cluster: str) -> StateStore:
    setting = StateSetting.from_dict(json.loads(text))
    if setting.s3 is not None:
        return S3State(setting.s3, read_s3_keys(setting.s3.secret_ref, "muster_state.s3"), cluster)
    if setting.kubernetes is None:
        raise InputError("muster_state.store", "is local: there is no store to open")
    options = {"kubeconfig": setting.kubernetes.kubeconfig, "context": setting.kubernetes.context}
    return SecretState(open_client(options, pathlib.Path.cwd()), setting.kubernetes.namespace, cluster)
