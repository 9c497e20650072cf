# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader types the shell blocks about rented machines, in one session: a provider's fake API, machines with a real sshd.

The inventory is the sample ``rented_only``, the pool that of ``guide_renting`` with what the fake offers. What waits for
the provider runs in the fast time of ``rent_world``, what trains in real time.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.playbook_world import until
from ansible_collections.muster.training.tests.e2e.test_walk_rented import RentedWalk
from ansible_collections.muster.training.tests.e2e.walk_world import LIMIT_S, Machines, last_step
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.shadeform import FakeShadeform
from ansible_collections.muster.training.tests.fakes.wire import TOKEN
from ansible_collections.muster.training.tests.support import debian, sshd
from ansible_collections.muster.training.tests.support.shell_blocks import Reader, read_example, require_said

pytestmark = pytest.mark.long
BLOCKS = (
    "guide_renting-0",
    "guide_renting-1",
    "guide_renting-2",
    "rented_only-0",
    "rented_only-1",
    "guide_heal-0",
    "guide_heal-2",
)
SAID = {
    ("guide_renting-0", 2): "succeeded",
    ("guide_renting-0", 3): "2 proved gone",
    ("guide_renting-1", 0): "(idle)",
    ("guide_renting-2", 0): "keeper-1",
    ("rented_only-0", 0): "keeper-1",
    ("guide_heal-0", 0): "lost",
    ("guide_heal-0", 1): "changed=0",
    ("guide_heal-0", 2): "lost",
    ("guide_heal-2", 0): "failed=0",
    ("guide_heal-2", 1): "failed=0",
}


class Office:
    """The reader's folder, and what the provider has."""

    def __init__(self, walk: RentedWalk, others: t.Mapping[str, str]) -> None:
        self.walk = walk
        known = str(walk.state / "lab" / "known_hosts")
        inventory = walk.inventory("rented_only", ["runpod.yml"], api_url=walk.rent.url, known_hosts_dir=known)
        self.inventory = pathlib.Path(inventory)
        (walk.root / "inventories").mkdir()
        (walk.root / "inventories" / "rented_only").symlink_to(self.inventory)
        fills: dict[str, t.Any] = {"key": TOKEN, "lost host": lambda: self.members()[-1]}
        self.reader = Reader(walk.root, {}, fills)
        # What a page cannot know of these machines and this provider.
        self.values = {key: value for key, value in walk.values.items() if not key.startswith("rented_nodes_")}
        # The guide's command exports the keys of two more accounts, in which there is nothing.
        self.values["muster_providers"] += [{"name": name, "api_url": url} for name, url in others.items()]
        self.values |= {"muster_run_id": "weekend", "muster_fabric_allow_unproven": True}
        walk.train.run_id = "weekend"
        self.write_values()
        pool = read_example("guide_renting", 0)
        pool |= {key: value for key, value in walk.values.items() if key in ("rented_nodes_readiness",)}
        pool |= {key: walk.values[key] for key in walk.values if key.startswith("rented_nodes_ssh_")}
        pool["rented_nodes_candidates"] = walk.values["rented_nodes_candidates"]
        self.reader.write("pool.yml", {**pool, "muster_heal_wait": False})
        self.write_job()
        self.be_fast()

    def write_values(self, **more: t.Any) -> None:
        """Write variables of all hosts beside those of the sample."""
        self.values |= more
        self.reader.write("inventory/group_vars/all/own.yml", self.values)

    def write_job(self, **values: t.Any) -> None:
        self.reader.write("job.yml", {"muster_job": self.walk.job(**values)})

    def be_fast(self) -> None:
        self.use(self.walk.rent.environment(**self.walk.variables))

    def be_slow(self) -> None:
        self.use(self.walk.train.environment(self.walk.variables))

    def use(self, environment: dict[str, str]) -> None:
        path = f"{self.reader.programs}:{os.environ['PATH']}"
        self.reader.environment = {**environment, "HOME": str(self.walk.train.home), "PATH": path}

    def members(self) -> list[str]:
        """Return the names of the machines that bill, in the order of their names."""
        return sorted(item.name for item in self.walk.rent.api.alive())

    def train_to_the_end(self) -> None:
        self.be_slow()
        self.walk.train.finish()

    def have_a_reaper_host(self) -> None:
        """Add the permanent machine to the inventory, and the guide's variables of it."""
        keeper = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        self.reader.write("inventory/keeper.yml", {"all": {"hosts": {"keeper-1": keeper}}})
        example = read_example("guide_renting", 1)
        place = str(self.walk.root / "reaper")
        own = {"muster_reaper_host": "keeper-1", "muster_reaper_providers": self.values["muster_providers"]}
        assert set(own) <= set(example)
        own |= {"teardown_reaper_timer": False, "teardown_reaper_path": str(self.walk.root / "opt")}
        own |= {"teardown_reaper_state": place, "rented_nodes_reaper_state": place}
        self.write_values(**own, teardown_reaper_python=sys.executable, ansible_become=False)

    def train_on(self) -> None:
        """Start a run that goes on until the end of the session, under an id of its own."""
        self.be_slow()
        (self.walk.train.root / "finish").unlink()
        self.walk.train.run_id = "week"
        self.write_values(muster_run_id="week", training_job_wait=False)
        self.write_job(restart={"on_lost_node": "replace"})

    def lose_a_machine(self) -> None:
        """The provider takes a machine away once the run has made some steps."""
        until(lambda: self.step() > 20, "some steps", LIMIT_S)
        self.walk.lose(self.members()[-1])

    def step(self) -> int:
        """Return the last step that the first machine has noted."""
        return max(map(last_step, self.walk.train.nodes.glob("*/runs/week")), default=0) or self.asked()

    def asked(self) -> int:
        self.reader.type("ansible-playbook -i inventory muster.training.status")
        return last_step(self.walk.folder)

    def end_the_run(self) -> None:
        """Let the run end, and have its end recorded."""
        self.walk.train.finish()
        ended = lambda: "succeeded" in self.reader.type("ansible-playbook -i inventory muster.training.status")  # noqa: E731
        until(ended, "the end of the run", LIMIT_S)
        self.be_fast()

    def prepare(self, name: str) -> dict[int, t.Callable[[], t.Any]]:
        """Return what comes before single commands of a block, by the number of the command."""
        return {
            "guide_renting-0": {2: self.train_to_the_end, 3: self.be_fast},
            "guide_renting-2": {0: self.have_a_reaper_host},
            "rented_only-1": {1: self.train_on},
            "guide_heal-0": {0: self.lose_a_machine},
            "guide_heal-2": {0: self.end_the_run},
        }.get(name, {})


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Office]:
    if os.geteuid() != 0:
        lacking("the reaper's files belong to root")
    if problem := debian.obtain("sshd", "openssh-server") or debian.obtain("ssh-keygen", "openssh-client"):
        lacking(problem)
    root = tmp_path_factory.mktemp("reader")
    with sshd.folder():
        machines = Machines(root / "machines", 6)
        walk = RentedWalk(root, machines)
        fakes = {"lambda": FakeLambda(walk.rent.clock), "shadeform": FakeShadeform(walk.rent.clock)}
        with contextlib.ExitStack() as stack:
            stack.enter_context(walk.rent.running())
            others = {name: stack.enter_context(fake.loopback()) for name, fake in fakes.items()}
            yield Office(walk, others)
            for play in walk.train.plays:
                play.kill(signal.SIGKILL)
            walk.train.close()
        machines.close()
        assert [fake.violations for fake in (walk.rent.api, *fakes.values())] == [[], [], []]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_does_what_the_page_says(office: Office, name: str) -> None:
    printed = office.reader.run(name, office.prepare(name))
    require_said(SAID, name, printed)
    wanted = 0 if name in ("guide_renting-0", "guide_renting-1", "guide_renting-2", "rented_only-0") else 2
    assert office.walk.rent.alive == wanted


def test_what_the_session_leaves(office: Office) -> None:
    """Two machines were replaced; teardown proves that nothing bills."""
    office.be_fast()
    said = office.reader.type("ansible-playbook -i inventory muster.training.teardown")
    assert "0 within their lease" in said and office.walk.rent.alive == 0, said
    assert set(office.walk.rent.states) == {"verified"} and len(office.walk.rent.states) == 6
