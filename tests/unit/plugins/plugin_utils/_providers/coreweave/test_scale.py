# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shapes of a node pool and the patch of a change."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._providers.coreweave.scale import (
    DesiredPool,
    NodePool,
    build_patch,
    parse_pool,
)

LIVE = NodePool("gpu", "gd-8xh100", 2, 0, 4)


def test_a_patch_has_only_what_differs() -> None:
    assert build_patch(LIVE, DesiredPool("gpu", 2)) == {}
    assert build_patch(LIVE, DesiredPool("gpu", 3, min_nodes=0)) == {"targetNodes": 3}
    assert build_patch(LIVE, DesiredPool("gpu", 6, max_nodes=8)) == {"targetNodes": 6, "maxNodes": 8}


@pytest.mark.parametrize("desired", [DesiredPool("gpu", 5), DesiredPool("gpu", 1, min_nodes=2)])
def test_a_target_outside_the_limits_is_refused(desired: DesiredPool) -> None:
    with pytest.raises(RefusedError, match="outside"):
        build_patch(LIVE, desired)


def test_the_type_of_instance_is_needed_once_and_never_changes() -> None:
    with pytest.raises(RefusedError, match="cannot be changed"):
        build_patch(LIVE, DesiredPool("gpu", 2, "other"))
    with pytest.raises(InputError, match="instance_type"):
        DesiredPool("gpu", 2).manifest()
    spec = DesiredPool("gpu", 2, "gd-8xh100", labels={"a": "b"}).manifest()["spec"]
    assert spec == {"computeClass": "default", "instanceType": "gd-8xh100", "targetNodes": 2, "nodeLabels": {"a": "b"}}


@pytest.mark.parametrize("raw", [None, [], {"spec": 3}, {"spec": {"targetNodes": "many"}, "status": []}])
def test_an_odd_object_is_a_pool_of_which_nothing_is_known(raw: object) -> None:
    assert parse_pool(raw) == NodePool("", None, None)
