# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Expected bandwidths as values: facts of a newer version are ignored, a user's misspelt key is refused."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.expectation import (
    GATE_FAIL,
    GATE_PASS,
    Expectation,
    ExpectationRow,
)


def test_an_expectation_round_trips() -> None:
    value = Expectation(380.0, "computed", "rdma_gdr", algorithm="Ring", reasons=("8 NICs of 400 Gb/s",))
    assert Expectation.from_dict(value.to_dict()) == value
    assert value.to_dict()["reasons"] == ["8 NICs of 400 Gb/s"]


def test_without_a_figure_only_peers_can_tell() -> None:
    empty = Expectation.from_dict({"of_a_newer_version": 1})
    assert (empty.busbw_gb_s, empty.source) == (None, "peer")
    assert (empty.gate_pass, empty.gate_fail) == (GATE_PASS, GATE_FAIL)


@pytest.mark.parametrize(
    ("value", "option"),
    [
        ({"busbw_gb_s": 300, "source": "us", "modle": "H100"}, "rows.modle"),
        ({"busbw_gb_s": -1, "source": "us"}, "rows.busbw_gb_s"),
        ({"source": "us"}, "rows.busbw_gb_s"),
        ({"busbw_gb_s": 300, "source": "us", "link": "token_ring"}, "rows.link"),
    ],
)
def test_a_row_that_would_do_nothing_is_refused(value: dict[str, object], option: str) -> None:
    with pytest.raises(InputError) as caught:
        ExpectationRow.from_dict(value, "rows")
    assert caught.value.option == option
