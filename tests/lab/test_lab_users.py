# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Not as root: which of the three ways to outlive a connection is chosen, and that it does."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import until
from ansible_collections.muster.training.tests.lab import systemd
from ansible_collections.muster.training.tests.lab.image import USER
from ansible_collections.muster.training.tests.lab.nodes import Lab
from ansible_collections.muster.training.tests.lab.plays import Controller

Make = t.Callable[..., Controller]


@pytest.fixture
def lingering(lab: Lab) -> t.Iterator[None]:
    """The user's own systemd runs on all nodes without a login, as a machine's owner may have arranged."""
    for node in lab.nodes:
        lab.ask(node.name, "loginctl", "enable-linger", USER)
    for node in lab.nodes:
        until(lambda n=node.name: systemd_runs(lab, n), f"the user's systemd on {node.name}")  # type: ignore[misc]
    yield
    for node in lab.nodes:
        lab.ask(node.name, "loginctl", "disable-linger", USER)


def systemd_runs(lab: Lab, node: str) -> bool:
    """Return whether the user's own systemd can be asked."""
    script = 'test -S "/run/user/$(id -u)/systemd/private"'
    return lab.run(node, "runuser", "-u", USER, "--", "sh", "-c", script).returncode == 0


def run_past_its_connections(lab: Lab, controller: Controller) -> dict[str, list[str]]:
    """Run a job to its end, cutting all connections in the middle; return the units of each node while it ran."""
    play = controller.start("train", controller.rank_job())
    began = controller.wait_began()
    seen = {node.name: systemd.units(lab, node.name) for node in lab.nodes}
    for node in lab.nodes:
        lab.run(node.name, "sh", "-c", "kill -KILL $(ps -C sshd-session -o pid=)")
        assert len(systemd.supervisors(lab, node.name)) == 1, "it did not outlive its connection"
    controller.finish()
    ended = play.wait()
    assert ended.code == 0, ended.output
    assert controller.began() == began, "a rank was started again"
    for node in lab.nodes:
        assert systemd.traces(lab, node.name, controller.run_id) == []
    return seen


def test_without_linger_it_runs_detached(lab: Lab, as_user: Make) -> None:
    controller = as_user()
    play = controller.start("train", controller.rank_job())
    controller.wait_began()
    for node in lab.nodes:
        assert systemd.units(lab, node.name) == []
        assert [item.user for item in systemd.supervisors(lab, node.name)] == [USER]
    controller.finish()
    assert play.wait().code == 0


def test_detached_run_outlives_its_connections(lab: Lab, as_user: Make) -> None:
    assert run_past_its_connections(lab, as_user()) == {"lab-1": [], "lab-2": []}


@pytest.mark.usefixtures("lingering")
@pytest.mark.parametrize(
    "login", [{"user": USER}, {"user": "root", "ansible_become": True, "ansible_become_user": USER}]
)
def test_with_linger_it_is_a_unit_of_the_user(lab: Lab, login: dict[str, t.Any]) -> None:
    """Logged in as the user, and as root that becomes the user, for whom sudo sets no XDG_RUNTIME_DIR."""
    controller = Controller(lab, **login)
    play = controller.start("train", controller.rank_job())
    try:
        controller.wait_began()
        for node in lab.nodes:
            unit = systemd.unit(controller, node.name)
            assert systemd.units(lab, node.name) == []
            assert systemd.units(lab, node.name, user=True) == [unit]
            shown = systemd.show(lab, node.name, unit, user=True)
            assert (shown["ActiveState"], shown["Slice"]) == ("active", "muster.slice")
            assert [item.user for item in systemd.supervisors(lab, node.name)] == [USER]
        controller.finish()
        ended = play.wait()
        assert ended.code == 0, ended.output
        assert [systemd.units(lab, node.name, user=True) for node in lab.nodes] == [[], []]
    finally:
        controller.close()


def test_become_makes_it_a_unit_of_the_system(lab: Lab, as_user: Make) -> None:
    controller = as_user(ansible_become=True)
    units = run_past_its_connections(lab, controller)
    assert units == {node.name: [systemd.unit(controller, node.name)] for node in lab.nodes}
