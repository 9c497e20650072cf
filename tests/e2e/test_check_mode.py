# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``--check`` says what would happen and writes nothing: not on the controller, not on nodes."""

from __future__ import annotations

import socket
import subprocess

from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import source as code_source
from ansible_collections.muster.training.tests.e2e.playbook_world import World, assert_refused, until

CHECK = ("--check",)


def files(world: World) -> dict[str, str]:
    """Return the digest of everything but the supervisors' own record of how busy the machine is."""
    return {path: text for path, text in world.digest().items() if not path.endswith("/usage.jsonl")}


def test_on_an_empty_world(world: World) -> None:
    """A start would change something; the check leaves nothing, not even a folder."""
    result = world.play(job=world.rank_job(), args=CHECK)
    assert result.code == 0 and result.changed == 1, result.output
    assert world.digest() == {} and not world.state.exists() and not world.nodes.exists()
    assert world.processes() == {}


def test_on_a_running_world(world: World) -> None:
    """A run that lives needs no change, and neither train nor cancel touches it."""
    job = world.rank_job()
    assert world.play(job=job, training_job_wait=False).code == 0
    until(lambda: len(world.ranks()) == 2, "both ranks")
    before, alive = files(world), world.processes()
    train = world.play(job=job, args=CHECK)
    cancel = world.play("cancel", args=CHECK)
    assert (train.code, train.changed) == (0, 0), train.output
    assert (cancel.code, cancel.changed) == (0, 1), cancel.output
    assert files(world) == before
    assert world.processes() == alive


def test_progress_is_in_a_file_while_the_task_runs(world: World) -> None:
    """Whoever writes the output into a file or a pipe sees it at once, not when the task is over."""
    play = world.start(job=world.rank_job())
    until(lambda: len(world.ranks()) == 2, "both ranks")
    until(lambda: "world size 2" in play.output, "progress in the file")
    assert play.process.poll() is None
    assert world.play("cancel").code == 0
    play.wait()


def test_a_taken_port_is_found(world: World) -> None:
    """The check asks the hosts what a start would ask them."""
    port = code_source.rendezvous_port(world.run_id)
    with socket.create_server(("127.0.0.1", port)):
        result = world.play(job=world.job(), args=CHECK)
    assert_refused(world, result, "node-1", f"port {port} cannot be used")
    assert world.digest() == {}


def test_code_from_git(world: World) -> None:
    """Looking at a repository must not leave a copy of it."""
    place = world.root / "repository"
    place.mkdir()
    (place / "run.sh").write_text("true\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for argv in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "-m", "x"]):
        subprocess.run(["git", *argv], cwd=place, check=True)
    job = world.job(code={"from": "git", "ref": f"file://{place}@HEAD"})
    result = world.play(job=job, args=CHECK)
    assert result.code == 0, result.output
    assert world.digest() == {}
