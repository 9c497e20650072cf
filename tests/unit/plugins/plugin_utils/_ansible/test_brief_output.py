# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How hosts are named in one line; the callback itself is tested in tests/unit/plugins/callback."""

from __future__ import annotations

import types

from ansible_collections.muster.training.plugins.plugin_utils._ansible import brief_output


def test_many_hosts_are_counted() -> None:
    names = [f"n{number}" for number in range(10)]
    assert brief_output._name_hosts(names) == "n0, n1, n2, n3, n4, n5, n6, n7 and 2 more"
    assert brief_output._name_hosts(["b", "a"]) == "a, b"


def test_a_warning_of_any_module_is_said_once_and_those_about_interpreters_are_not() -> None:
    said: list[str] = []
    brief = brief_output.BriefOutput(
        display=types.SimpleNamespace(verbosity=0, display=lambda line, **_k: said.append(line))
    )
    found = "Host 'a' is using the discovered Python interpreter at '/usr/bin/python3.13', but future installation"
    for action in ("muster.training.training_job", "muster.training.training_job", "ansible.builtin.apt"):
        task = types.SimpleNamespace(action=action, get_name=lambda: "Task")
        host = types.SimpleNamespace(get_name=lambda: "a")
        result = types.SimpleNamespace(task=task, host=host, result={"warnings": [f"of {action}", found]})
        brief.v2_runner_on_ok(result)
        brief.v2_runner_on_skipped(result)
    assert [line.strip() for line in said if "warning" in line] == [
        "warning: of muster.training.training_job",
        "warning: of ansible.builtin.apt",
    ]
