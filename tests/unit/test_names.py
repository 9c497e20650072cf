# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names in plugins: functions are verbs or nouns, a public class name means one thing, folders stay small."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.tools import words


def test_functions_are_not_named_by_a_participle_or_a_metaphor() -> None:
    places = [str(hit) for hit in words.find_function_names()]
    print(f"functions named by a bare participle or a metaphor: {len(places)}")
    assert len(places) <= words.FUNCTION_NAMES_LIMIT, "\n" + "\n".join(places)


def test_classes_are_not_named_by_a_metaphor() -> None:
    places = [str(hit) for hit in words.find_class_names()]
    assert not places, "\n" + "\n".join(places)


def test_each_public_class_name_means_one_thing() -> None:
    collisions = words.find_class_collisions()
    print(f"public class names with more than one meaning: {len(collisions)}")
    assert not collisions


def test_folders_stay_small() -> None:
    sizes = words.measure_folders()
    print(f"largest folder below plugins/plugin_utils: {max(sizes.values())} files")
    assert not {name: size for name, size in sizes.items() if size > words.FOLDER_LIMIT}


@pytest.mark.parametrize("name", ["kept", "_reading", "told", "ask_landlord", "_tenancy", "made"])
def test_a_riddle_is_found(name: str) -> None:
    assert words.is_riddle(name)


@pytest.mark.parametrize("name", ["read", "run_started", "string", "set", "find_live", "_embed"])
def test_a_plain_name_is_left_alone(name: str) -> None:
    assert not words.is_riddle(name)
