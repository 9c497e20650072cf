# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What machines were used for: the dollars add up to the ledger's, whatever runs overlap."""

from __future__ import annotations

import datetime
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.usage import (
    KEYS,
    NodeUse,
    RentedTime,
    build_usage,
    sum_rows,
)

ZERO = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC).timestamp()
HOUR = 3600.0
EVER = (0.0, 4e9)


def rented(hours: float = 10, price: float | None = 2.0, gpus: int | None = 8, **values: t.Any) -> RentedTime:
    return RentedTime(
        **{"node": "h-1", "token": "aa", "since": ZERO, "until": ZERO + hours * HOUR, **values},
        usd_per_hour=price,
        gpus=gpus,
    )


def use(since: float, until: float, **values: t.Any) -> NodeUse:
    given_values = {
        "node": "h-1",
        "token": "aa",
        "run": "r-1",
        "job": "r",
        "user": "ann",
        "gpus": 8,
        "useful": 0.75,
        **values,
    }
    return NodeUse(since=ZERO + since * HOUR, until=ZERO + until * HOUR, **given_values)


def rows(*parts: t.Any, by: t.Any = ("user",), **values: t.Any) -> list[dict[str, t.Any]]:
    times = [part for part in parts if isinstance(part, RentedTime)]
    uses = [part for part in parts if isinstance(part, NodeUse)]
    return [row.to_dict() for row in build_usage(times, uses, by, *values.get("within", EVER))]


def test_a_rented_machine_is_shared_out_over_who_held_it_and_idle_time() -> None:
    ann, idle = rows(rented(), use(1, 5), by=("user", "job"))
    assert ann == {
        "user": "ann",
        "job": "r",
        "gpu_hours": 32.0,
        "idle_gpu_hours": 0.0,
        "node_hours": 4.0,
        "useful_node_hours": 3.0,
        "shared_node_hours": 0.0,
        "usd": 8.0,
        "unknown": {},
    }
    assert idle == {
        "user": None,
        "job": None,
        "gpu_hours": 0.0,
        "idle_gpu_hours": 48.0,
        "node_hours": 6.0,
        "useful_node_hours": 0.0,
        "shared_node_hours": 0.0,
        "usd": 12.0,
        "unknown": {},
    }


def test_two_runs_on_one_machine_share_its_price_and_have_their_own_gpus() -> None:
    ann, ben, idle = rows(rented(4), use(0, 4, gpus=4), use(2, 4, gpus=2, user="ben", run="r-2"))
    assert (ann["usd"], ann["gpu_hours"], ann["node_hours"]) == (6.0, 16.0, 3.0)
    assert (ben["usd"], ben["gpu_hours"]) == (2.0, 4.0)
    assert (ann["shared_node_hours"], ben["shared_node_hours"], idle["shared_node_hours"]) == (1.0, 1.0, 0.0)
    assert (idle["idle_gpu_hours"], idle["usd"], idle["node_hours"]) == (12.0, 0.0, 0.0)


def test_what_is_not_known_is_no_zero() -> None:
    (ann, idle) = rows(rented(price=None, gpus=None), use(0, 4, gpus=None))
    assert ann["unknown"] == {"gpu_hours": 4.0, "usd": 4.0} and ann["usd"] == 0.0
    assert idle["unknown"] == {"idle_gpu_hours": 10.0, "usd": 6.0}


def test_the_fleet_by_provider_and_model_has_a_useful_share_of_what_is_known() -> None:
    times = [rented(4, provider="lambda", gpu="H100"), rented(4, token="bb", node="h-2", provider="vastai", gpu="H100")]
    uses = [use(0, 4), use(0, 2, token="bb", node="h-2", useful=0.5), use(2, 3, token="bb", node="h-2", useful=None)]
    found = build_usage(times, uses, ("provider", "gpu"), *EVER)
    assert [(row.keys["provider"], row.keys["gpu"], row.useful) for row in found] == [
        ("lambda", "H100", 0.75),
        ("vastai", "H100", pytest.approx(1 / 3)),
    ]
    assert found[1].unknown == {"useful_node_hours": 1.0}
    assert sum_rows(found).useful == pytest.approx(4 / 7)
    (own,) = build_usage([], [use(0, 3, token=None, useful=None)], ("provider",), *EVER)
    assert (own.keys["provider"], own.useful) == (None, None)


def test_a_machine_of_one_s_own_has_no_idle_time_that_is_known() -> None:
    (own,) = rows(use(0, 3, token=None, node="spark", usd_per_hour=0.5), by=("node",))
    assert (own["node"], own["gpu_hours"], own["idle_gpu_hours"], own["usd"]) == ("spark", 24.0, 0.0, 1.5)
    assert rows(use(0, 3, token=None, usd_per_hour=None))[0]["unknown"] == {"usd": 3.0}


def test_months_are_told_apart_and_a_range_cuts() -> None:
    until = (datetime.datetime(2027, 1, 2, tzinfo=datetime.UTC).timestamp() - ZERO) / HOUR
    found = rows(rented(until), use(0, until), by=("month",))
    assert [(row["month"], row["node_hours"]) for row in found] == [
        ("2026-11", 264.0),
        ("2026-12", 744.0),
        ("2027-01", 24.0),
    ]
    (cut,) = rows(rented(until), by=("month",), within=(ZERO + HOUR, ZERO + 3 * HOUR))
    assert (cut["usd"], cut["month"]) == (4.0, "2026-11")
    assert rows(rented(), within=(0.0, 1.0)) == [] == rows(use(0, 3, token=None), within=(0.0, 1.0))


spans = st.tuples(st.integers(-20, 60), st.integers(1, 40))


@given(st.lists(spans, min_size=1, max_size=4), st.lists(st.tuples(st.integers(0, 3), spans), max_size=8))
def test_the_dollars_add_up_to_those_of_the_ledger(
    leases: list[tuple[int, int]], held: list[tuple[int, tuple[int, int]]]
) -> None:
    times = [
        rented(token=str(n), node=f"n{n}", since=ZERO + a * HOUR, until=ZERO + (a + b) * HOUR, price=1.0 + n)
        for n, (a, b) in enumerate(leases)
    ]
    uses = [
        use(a, a + b, token=str(n), node=f"n{n}", run=f"r{k}") for k, (n, (a, b)) in enumerate(held) if n < len(leases)
    ]
    total = sum_rows(build_usage(times, uses, KEYS, *EVER))
    assert total.usd == pytest.approx(sum(b * (1.0 + n) for n, (_a, b) in enumerate(leases)), rel=1e-9)
    assert total.node_hours == pytest.approx(sum(b for _a, b in leases), rel=1e-9)
