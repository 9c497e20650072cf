# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of the end-to-end tests. What a machine lacks is listed as skipped, or fails with MUSTER_REQUIRE_LAB=1."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import typing as t

import pytest
from xdist.scheduler import LoadScopeScheduling

from ansible_collections.muster.training.tests.e2e import bao_world, service_world
from ansible_collections.muster.training.tests.e2e.playbook_world import World
from ansible_collections.muster.training.tests.support import debian, sshd

# The tests of these files share a server or a folder: one process runs them. Any other test may run beside any other.
TOGETHER = frozenset(
    f"test_{name}.py"
    for name in (
        "checkpoint_figures",
        "dataset_figures",
        "datasets",
        "report_page",
        "secrets_of_services",
        "services",
        "shell_blocks",
        "shell_blocks_rented",
        "shell_blocks_torch",
        "stored_checkpoints",
        "stored_state",
    )
)
# What the tests of real training ask for, which take longest.
LONG = frozenset({"torch_python", "launchers_python"})
LEFT_OUT = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Know the marker of cases that only the full session runs."""
    config.addinivalue_line("markers", "long: only with MUSTER_TEST_ALL=1")
    config.stash[LEFT_OUT] = []


class Scheduler(LoadScopeScheduling):
    """Gives tests to processes: those of some files together, any other one by itself."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if pathlib.PurePath(file).name in TOGETHER else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: t.Any) -> LoadScopeScheduling:
    """Schedule by what tests share."""
    return Scheduler(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest, so that all processes end at the same time."""
    items.sort(key=lambda item: not LONG.intersection(getattr(item, "fixturenames", ())))
    leave_out_long_cases(config, items)


def leave_out_long_cases(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the cases marked ``long`` unless MUSTER_TEST_ALL=1 asks for everything."""
    if os.environ.get("MUSTER_TEST_ALL") == "1":
        return
    left = [item for item in items if item.get_closest_marker("long")]
    items[:] = [item for item in items if item not in left]
    config.stash[LEFT_OUT] = [item.name.partition("[")[2].rstrip("]") or item.name for item in left]
    if left:
        config.hook.pytest_deselected(items=left)


def pytest_terminal_summary(terminalreporter: t.Any, config: pytest.Config) -> None:
    """Name what was left out."""
    names = config.stash[LEFT_OUT]
    if names:
        terminalreporter.write_line(f"left out, MUSTER_TEST_ALL=1 runs these {len(names)} cases: {', '.join(names)}")


def lacking(reason: str) -> t.NoReturn:
    """End a test whose prerequisite is not on this machine."""
    if os.environ.get("MUSTER_REQUIRE_LAB") == "1":
        pytest.fail(f"required by MUSTER_REQUIRE_LAB: {reason}")
    pytest.skip(reason)


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[World]:
    """Two nodes with nothing on them; whatever a test leaves running is ended."""
    found = World(tmp_path)
    yield found
    found.close()


@pytest.fixture
def services(tmp_path: pathlib.Path) -> t.Iterator[service_world.ServiceWorld]:
    """Two nodes, and a controller that has what services need."""
    if not service_world.services_python():
        lacking("MUSTER_SERVICES_PYTHON names no interpreter with botocore and SeaweedFS")
    found = service_world.ServiceWorld(tmp_path)
    yield found
    found.close()


@pytest.fixture
def bao(tmp_path: pathlib.Path) -> t.Iterator[bao_world.Bao]:
    """A real OpenBao in dev mode, with one secret."""
    if not service_world.services_python():
        lacking("MUSTER_SERVICES_PYTHON names no interpreter with OpenBao")
    with bao_world.openbao(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[service_world.Store]:
    """A real S3 server: SeaweedFS with the buckets ckpt and data."""
    if not service_world.services_python():
        lacking("MUSTER_SERVICES_PYTHON names no interpreter with botocore and SeaweedFS")
    with service_world.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as found:
        yield found


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> t.Iterator[pathlib.Path]:
    """A file system of 256 KiB that a test may fill or make read-only."""
    place = tmp_path / "disk"
    place.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if os.geteuid() != 0 or not shutil.which("mount") or subprocess.run(argv, capture_output=True).returncode:
        lacking("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def torch_python() -> str:
    """The interpreter with torch."""
    named = os.environ.get("MUSTER_TORCH_PYTHON", "")
    if not named or not shutil.which(named):
        lacking("MUSTER_TORCH_PYTHON names no interpreter with torch")
    return named


@pytest.fixture
def sshd_works() -> t.Iterator[None]:
    """OpenSSH's server, with the folder that it wants when root runs it."""
    problem = debian.obtain("sshd", "openssh-server") or debian.obtain("ssh-keygen", "openssh-client")
    if problem:
        lacking(problem)
    with sshd.folder():
        yield
