# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines are remembered, for how long, and which two notes are of one machine."""

from __future__ import annotations

import itertools
import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.machine_memory import MachineNote, recall

HOUR, DAY, NOW = 3600.0, 86400.0, 1_790_000_000.0


def note(
    fault: t.Any = "unusable", at: float = NOW, host: str | None = "m-1", *gpus: str, **more: t.Any
) -> MachineNote:
    return MachineNote(at, more.pop("provider", "vastai"), fault, more.pop("detail", "no SSH"), host, gpus)


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        ("unusable", 6 * HOUR),
        ("sold_otherwise", 30 * DAY),
        ("gpu_fault", 30 * DAY),
        ("slow_gpu", 7 * DAY),
        ("hung", 7 * DAY),
        ("slow_network", 3 * DAY),
        ("disk", DAY),
    ],
)
def test_a_fault_is_remembered_for_the_time_of_its_class(fault: str, seconds: float) -> None:
    memory = recall([note(fault)])
    found = memory.find_host("vastai", "m-1", NOW + seconds - 1)
    assert found is not None and found.fault == fault and "no SSH" in found.describe()
    assert memory.find_host("vastai", "m-1", NOW + seconds) is None
    assert memory.find_host("vastai", "m-2", NOW) is None and memory.find_host("runpod", "m-1", NOW) is None
    assert memory.find_host("vastai", None, NOW) is None


def test_a_second_fault_counts_twice_and_90_days_at_most() -> None:
    times = [NOW + number * 100 * DAY for number in range(4)]
    until = [
        recall([note("gpu_fault", at) for at in times[:count]]).hosts["vastai:m-1"].until for count in (1, 2, 3, 4)
    ]
    assert [end - times[number] for number, end in enumerate(until)] == [30 * DAY, 60 * DAY, 90 * DAY, 90 * DAY]


def test_a_passed_test_halves_what_is_left_and_what_counts() -> None:
    passed = note("passed", NOW + 10 * DAY)
    memory = recall([note("gpu_fault"), passed])
    assert memory.hosts["vastai:m-1"].until == NOW + 20 * DAY
    assert memory.is_noted("vastai", "m-1") and not memory.is_noted("vastai", "m-2")
    again = recall([note("gpu_fault"), passed, note("gpu_fault", NOW + 40 * DAY)])
    assert again.hosts["vastai:m-1"].until == NOW + 70 * DAY, "as the first one"
    assert recall([note("passed")]).hosts == {}


def test_a_machine_is_known_by_a_gpu_under_another_id_or_provider() -> None:
    memory = recall([note("gpu_fault", NOW, "m-1", "GPU-a", "GPU-b"), note("disk", NOW, "m-9", provider="other")])
    assert memory.find_gpus(["GPU-x", "GPU-b"], NOW) is not None and memory.find_gpus(["GPU-x"], NOW) is None
    # The same GPU at another place: what counts of it counts for both.
    both = recall([note("disk", NOW, "m-1", "GPU-a"), note("disk", NOW + 1, "m-2", "GPU-a", provider="runpod")])
    assert both.hosts["vastai:m-1"] == both.hosts["runpod:m-2"] == both.gpus["GPU-a"]
    assert both.gpus["GPU-a"].until == NOW + 1 + 2 * DAY


def test_one_id_with_other_gpus_is_another_machine() -> None:
    memory = recall([note("disk", NOW, "m-1", "GPU-a"), note("disk", NOW + 1, "m-1", "GPU-b")])
    assert memory.gpus["GPU-a"].until == NOW + DAY and memory.gpus["GPU-b"].until == NOW + 1 + DAY
    # An offer does not say which of them it is.
    assert memory.hosts["vastai:m-1"].until == NOW + 1 + DAY


def test_parts_of_gpus_and_machines_without_an_id_are_not_known() -> None:
    assert recall([note("disk", NOW, None, "MIG-a"), note("disk", NOW, None)]).noted == frozenset()
    assert not note("disk", NOW, None, "MIG-a").is_known and note("disk", NOW, None, "GPU-a").is_known


FAULTS = st.sampled_from(["unusable", "gpu_fault", "disk", "hung", "passed"])
NOTES = st.lists(
    st.builds(
        note,
        FAULTS,
        st.integers(0, 100).map(lambda days: NOW + days * DAY),
        st.sampled_from(["m-1", "m-2", None]),
        st.sampled_from(["GPU-a", "GPU-b", "GPU-c"]),
    ),
    max_size=5,
    unique_by=lambda item: item.at,
)


@given(notes=NOTES)
def test_the_order_of_the_lines_says_nothing_and_lines_are_read_as_they_were_written(notes: list[MachineNote]) -> None:
    whole = recall(notes)
    for order in itertools.islice(itertools.permutations(notes), 6):
        assert recall(order) == whole
    read = [MachineNote.from_dict(json.loads(json.dumps(item.to_dict())), "x:1") for item in notes]
    assert recall(read) == whole
    assert all(item.until <= max(line.at for line in notes) + 90 * DAY for item in whole.hosts.values())


@pytest.mark.parametrize(
    "value", [None, [], {}, {"at": "x"}, {"at": "2026-11-01T00:00:00Z", "provider": "v", "fault": "?"}]
)
def test_what_is_no_note_is_refused(value: object) -> None:
    with pytest.raises(InputError):
        MachineNote.from_dict(value, "machines.jsonl:3")
