# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Offers: what a query matches, the order of prices, and what candidates a user may write."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.offer import (
    Hardware,
    Offer,
    OfferQuery,
    Order,
    gpu_family,
    is_same_model,
    matches,
    parse_candidates,
    sold_problems,
    sort_by_price,
)

PROVIDERS = ("lambda", "runpod")
OFFER = Offer(
    provider="lambda",
    product="gpu_8x_h100_sxm5",
    region="us-east-1",
    kind="vm",
    price_usd_per_hour=23.92,
    gpu_model="H100 SXM5",
    gpu_count=8,
    gpu_memory_gib=80,
    memory_gib=1800,
    k3s_capable=True,
    network_types=("lan", "public"),
)


@pytest.mark.parametrize(
    ("wanted", "offered", "same"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("h100", "gpu_1x_h100_sxm5", True),
        ("A10", "NVIDIA A100", False),
        ("A100", "NVIDIA A10", False),
        ("RTX 4090", "RTX_4090", True),
        ("RTX4090", "RTX 4090", True),
        ("4090", "NVIDIA GeForce RTX 4090", True),
        ("H100 SXM5", "H100 PCIe", False),
        ("H100", None, False),
        ("NVIDIA", "NVIDIA H100", False),
    ],
)
def test_models_are_compared_by_words(wanted: str, offered: str | None, same: bool) -> None:
    assert is_same_model(wanted, offered) is same


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ({}, True),
        ({"gpu_model": "H100", "gpu_count": 8}, True),
        ({"gpu_count": 1}, False),
        ({"gpu_memory_gib_min": 80}, True),
        ({"gpu_memory_gib_min": 81}, False),
        ({"memory_gib_min": 2000}, False),
        ({"max_price_usd_per_hour": 23.92}, True),
        ({"max_price_usd_per_hour": 23.91}, False),
        ({"regions": ("us-west-1", "us-east-1")}, True),
        ({"regions": ("us-west-1",)}, False),
        ({"k3s_capable": False}, False),
        ({"network_types": ("lan",)}, True),
        ({"network_types": ("mesh",)}, False),
        ({"provider": "runpod"}, False),
        ({"unit": "cluster"}, False),
    ],
)
def test_every_field_that_is_set_must_hold(query: dict[str, t.Any], fits: bool) -> None:
    assert matches(OfferQuery(**query), OFFER) is fits


def test_an_unknown_value_satisfies_no_minimum() -> None:
    assert not matches(OfferQuery(memory_gib_min=1), dataclasses.replace(OFFER, memory_gib=None))


def test_the_cheapest_gpu_hour_comes_first_and_what_is_sold_out_last() -> None:
    one = dataclasses.replace(OFFER, product="one", gpu_count=1, price_usd_per_hour=2.5)
    gone = dataclasses.replace(OFFER, product="gone", price_usd_per_hour=0.1, available=False)
    assert [item.product for item in sort_by_price([OFFER, gone, one])] == ["one", "gpu_8x_h100_sxm5", "gone"]
    assert one.price_per_gpu_hour == 2.5
    assert OFFER.price_per_gpu_hour == pytest.approx(2.99)


def test_the_public_form_of_an_offer_has_no_order_keys() -> None:
    assert "ref" not in dataclasses.replace(OFFER, ref={"ask": 1}).to_dict()


def test_user_data_is_not_part_of_an_orders_text() -> None:
    order = Order("1f2e3d4c", "n", OFFER, "lab", "h100", user_data="#cloud-config canary-secret")
    assert "canary" not in repr(order)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ([], "candidates"),
        ("lambda", "candidates"),
        ([{}], "candidates[0].provider"),
        ([{"provider": "lamda"}], "candidates[0].provider"),
        ([{"provider": "lambda", "gpu_modell": "H100"}], "candidates[0].gpu_modell"),
        ([{"provider": "lambda", "gpu_count": "2x"}], "candidates[0].gpu_count"),
        ([{"provider": "lambda", "max_price_usd_per_hour": -1}], "candidates[0].max_price_usd_per_hour"),
        ([{"provider": "lambda"}, {"provider": "runpod", "unit": "cluster"}], "candidates"),
        ([{"provider": "lambda", "network_types": ["wifi"]}], "candidates[0].network_types[0]"),
    ],
)
def test_a_wrong_candidate_is_named(value: t.Any, word: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_candidates(value, PROVIDERS)
    assert caught.value.option == word


def test_candidates_keep_their_order() -> None:
    found = parse_candidates(
        [{"provider": "runpod", "gpu_count": "2"}, {"provider": "lambda", "image": "lambda-stack-24-04"}], PROVIDERS
    )
    assert [(item.provider, item.gpu_count) for item in found] == [("runpod", 2), ("lambda", None)]


@given(st.recursive(st.none() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)))
def test_anything_is_candidates_or_an_input_error(value: t.Any) -> None:
    try:
        parse_candidates(value, PROVIDERS)
    except InputError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("H100 (80 GB SXM5)", "h100"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("RTX4090", "4090"),
        ("NVIDIA RTX 6000 Ada Generation", "6000"),
        ("RTX6000Ada", "6000"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("A100_80G", "a100"),
        ("NVIDIA L40S", "l40"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("TITAN V", None),
        (None, None),
    ],
)
def test_a_gpus_family_is_the_number_of_its_maker(name: str | None, family: str | None) -> None:
    assert gpu_family(name) == family


@pytest.mark.parametrize(
    ("ordered", "shown", "problems"),
    [
        (Hardware("H100", 8, 80.0, 1000.0), Hardware("NVIDIA H100 80GB HBM3", 8, 79.6, 950.0), 0),
        (Hardware("H100", 8, 80.0, 1000.0), Hardware(), 0),
        (Hardware(), Hardware("A40", 1, 48.0, 100.0), 0),
        (Hardware("H100", 8), Hardware("A40", 8), 1),
        (Hardware("H100", 8), Hardware("H100", 7), 1),
        (Hardware("H100", 1), Hardware("H100", 8), 0),
        (Hardware("A100", 1, 80.0), Hardware("A100", 1, 40.0), 1),
        (Hardware("L4", 1, 24.0), Hardware("L4", 1, 22.5), 0),
        (Hardware("H100", 8, 80.0, 1000.0), Hardware("A40", 1, 48.0, 100.0), 4),
        (Hardware(None, 0, None, 64.0), Hardware(None, 0, None, 16.0), 1),
    ],
)
def test_what_was_sold_is_compared_where_both_sides_know_it(ordered: Hardware, shown: Hardware, problems: int) -> None:
    assert len(sold_problems(ordered, shown)) == problems


def test_a_record_without_values_knows_nothing() -> None:
    assert Hardware.of_record({}) == Hardware() == Hardware.of_record({"gpu": None})
