# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a printed command repeats of the one that was typed, and what it must not."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._ansible.command_line import read_options, read_unrepeated


def test_inventories_and_files_of_variables_are_named_from_anywhere(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts, job = tmp_path / "hosts.yml", tmp_path / "job.yml"
    hosts.touch()
    job.touch()
    monkeypatch.chdir(tmp_path)
    found = read_options({"inventory": (str(hosts),), "extra_vars": ("@job.yml",), "connection": "ssh"})
    assert found == ("-i", str(hosts), "-e", f"@{job}")


def test_a_list_of_hosts_needs_its_connection() -> None:
    given = {"inventory": ("localhost,",), "connection": "local", "extra_vars": ("muster_train_hosts=localhost",)}
    assert read_options(given) == ("-i", "localhost,", "-c", "local", "-e", "muster_train_hosts=localhost")


@pytest.mark.parametrize(
    "value",
    [
        "token=hunter2",
        '{"token": "hunter2"}',
        "muster_max_cost_usd=5",
        "muster_train_hosts=",
        "it's",
        "@/dev/fd/63",
        "@/no/such/file.yml",
        "",
    ],
)
def test_values_and_what_cannot_be_read_again_are_left_out(value: str) -> None:
    assert read_options({"extra_vars": (value,)}) == ()


def test_a_limit_is_repeated() -> None:
    assert read_options({"subset": "a,b"}) == ("--limit", "a,b")


def test_of_one_option_only_the_places_are_repeated() -> None:
    given: dict[str, t.Any] = {"extra_vars": ("a=1 muster_cluster=lab 'muster_kubeconfig=/a b/k.yml'",)}
    assert read_options(given) == ("-e", "muster_cluster=lab", "-e", "muster_kubeconfig=/a b/k.yml")


def test_the_names_of_variables_that_are_not_repeated() -> None:
    """Their values may be secrets; those of files, places and of the command itself are not among them."""
    given = (
        "job_name=canc job_steps=3000",
        "muster_train_hosts=a,b muster_run_id=x",
        "@job.yml",
        '{"muster_job": {"env": {"TOKEN": "hunter2"}}, "job_steps": 3, "muster_drill": {}}',
        '{"broken',
    )
    assert read_unrepeated({"extra_vars": given}) == ("job_name", "job_steps", "muster_job")
    assert read_unrepeated({}) == ()


def test_places_in_a_structure_are_not_repeated_and_not_named() -> None:
    given = {"extra_vars": ('{"muster_cluster": "lab", "job_steps": 3}', "[1, 2]")}
    assert (read_options(given), read_unrepeated(given)) == ((), ("job_steps",))
