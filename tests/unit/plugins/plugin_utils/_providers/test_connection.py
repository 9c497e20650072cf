# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection of a provider's client."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._providers.connection import ProviderConnection
from ansible_collections.muster.training.plugins.plugin_utils._providers.lambda_cloud.client import LambdaClient
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.connections import TOKEN


def test_access_without_a_credential_and_over_plain_http() -> None:
    with pytest.raises(InputError, match="api_token"):
        LambdaClient(ProviderConnection(None))
    with pytest.raises(InputError, match="must use https"):
        LambdaClient(ProviderConnection(Secret(TOKEN, "api_token"), api_url="http://10.0.0.1/api/v1"))
    plain = ProviderConnection(Secret(TOKEN, "api_token"), api_url="http://10.0.0.1/api/v1", validate_certs=False)
    assert str(LambdaClient(plain).http.base) == "http://10.0.0.1/api/v1"
    assert TOKEN not in repr(plain)
