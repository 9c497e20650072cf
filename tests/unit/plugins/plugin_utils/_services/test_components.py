# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be deployed, by name; everything else is refused with what to do."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._hosts import downloads
from ansible_collections.muster.training.plugins.plugin_utils._services.components import COMPONENTS, find_component


def test_each_component_is_found_and_can_be_downloaded() -> None:
    for kind, known in COMPONENTS.items():
        assert find_component(kind, None, "x") is known[0]
        for item in known:
            assert find_component(kind, item.provider, "x") is item and item.kind == kind
            version = downloads.default_version(item.provider)
            if item.packages is not None:
                assert item.packages(version)[0].endswith(f"=={version}")
                continue
            if item.host_fix:
                # In clusters alone, by its image.
                continue
            for architecture in ("amd64", "arm64"):
                assert downloads.find(item.provider, version, architecture).url.startswith("https://")


@pytest.mark.parametrize(
    ("kind", "provider", "problem"),
    [
        ("object_store", "ceph", "Deployed are: seaweedfs, rustfs, minio"),
        ("secrets", "infisical", "Deployed are: openbao, vault"),
        ("monitoring", "perses", "Deployed are: prometheus, alertmanager, grafana"),
        ("shared_filesystem", None, "a service of the kind shared_filesystem cannot be deployed"),
    ],
)
def test_others_are_refused_by_name(kind: str, provider: str | None, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        find_component(kind, provider, "muster_services.store.provider")
    assert problem in f"{caught.value.message} {caught.value.fix}"
