# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbooks of ``site`` hand on to each other: the interpreter of bootstrap, and the run of the report."""

from __future__ import annotations

import pathlib
import sys
import typing as t
import zipfile

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, Result, World

PARTS = ("--tags", "train,report")
# A stand-in of that name: what bootstrap installs and preflight looks for by default.
PACKAGE = "torch"


def reported(result: Result) -> str:
    """Return the run whose report a playbook has shown."""
    assert result.code == 0, result.output
    (line,) = [line for line in result.output.splitlines() if line.rstrip('",').endswith("/report/report.html")]
    return line.split("/")[-3]


def test_a_job_that_has_succeeded_already_is_the_one_reported(world: World) -> None:
    """And not the newest run."""
    jobs = {name: world.job(name=name) for name in ("older", "newer")}
    runs = {name: reported(world.play("site", job, args=PARTS, muster_run_id=None)) for name, job in jobs.items()}
    assert runs["older"].startswith("older-") and runs["newer"].startswith("newer-")
    again = world.play("site", jobs["older"], args=PARTS, muster_run_id=None)
    assert reported(again) == runs["older"] and again.changed == 0, again.output


def test_the_report_is_found_by_the_variables_of_the_nodes(world: World) -> None:
    """Cluster, state home and run id stand where the README puts everything: in the variables of the group."""
    mine = {"muster_cluster": "lab", "muster_state": {"path": str(world.root / "own")}, "muster_run_id": "labrun"}
    options: dict[str, t.Any] = {
        "hosts": {node: {**mine, "muster_job": world.job()} for node in NODES},
        "muster_state": None,
        "muster_run_id": None,
    }
    assert world.play("train", **options).code == 0
    result = world.play("report", **options)
    assert reported(result) == "labrun" and f"{world.root}/own/lab/runs/labrun/report" in result.output


def test_check_mode_shows_no_report_of_another_run(world: World) -> None:
    """Nothing was trained, so there is nothing to show."""
    assert world.play(job=world.job(name="older"), muster_run_id=None).code == 0
    result = world.play("site", world.job(name="newer"), args=(*PARTS, "--check"), muster_run_id=None)
    assert result.code == 0 and "older-" not in result.output, result.output


@pytest.mark.torch
def test_an_unproven_network_stops_only_where_something_was_declared(world: World, torch_python: str) -> None:
    """Two nodes on one machine: nothing is known of a link that could be compared with, and that is a warning."""
    options: dict[str, t.Any] = {"muster_training_python": torch_python, "fabric_verify_seconds": 0.2}
    # The inventory allows it always; here it is what the role has without that variable.
    options["muster_fabric_allow_unproven"] = "{{ site_allow_unproven | default(false) }}"
    tags = ("--tags", "fabric,train")
    declared = world.play(
        "site",
        world.job(),
        args=tags,
        muster_expectations=[{"busbw_gb_s": 900, "source": "s", "link": "roce"}],
        **options,
    )
    assert declared.code != 0 and "UNPROVEN" in declared.output and not world.processes(), declared.output
    alone = world.play("verify_fabric", world.job(), **options)
    assert alone.code != 0, "it was asked whether the network is proven"
    result = world.play("site", world.job(), args=tags, **options)
    assert result.code == 0 and "warning: the network is unproven, and the play continues" in result.output, (
        result.output
    )
    assert world.record()["outcome"] == "succeeded"


@pytest.fixture
def package(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with one wheel, which takes the place of a package index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    info = f"{PACKAGE}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{PACKAGE}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{PACKAGE}.py", "WORD = 'installed by bootstrap'\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return folder


@pytest.mark.parametrize("shared", [True, False], ids=["a shared path", "a path each"])
def test_what_bootstrap_installs_is_what_preflight_and_train_use(
    world: World, package: pathlib.Path, shared: bool
) -> None:
    """No host variable names an interpreter; hosts that share the path share one installation."""
    places = {node: world.root / ("env" if shared else f"env-{node}") for node in NODES}
    options: dict[str, t.Any] = {
        "hosts": {node: {"muster_training_env": str(place)} for node, place in places.items()},
        "muster_training_python": None,
        "muster_training_requirements": ["--no-index", f"--find-links={package}", f"{PACKAGE}==1.0"],
        "training_env_base_python": sys.executable,
    }
    first = world.play("bootstrap", **options)
    assert first.code == 0 and first.changed >= 1, first.output
    assert len({place.stat().st_ino for place in places.values()}) == (1 if shared else 2)
    again = world.play("bootstrap", **options)
    assert again.code == 0 and again.changed == 0, again.output
    job = world.job(requires={PACKAGE: "==1.0"})
    assert world.play("preflight", job, **options).code == 0
    result = world.play("train", job, **options)
    assert result.code == 0, result.output
    refused = world.play("train", world.job(requires={PACKAGE: "==2.0"}), **{**options, "muster_run_id": "other"})
    assert refused.code != 0 and f"{places[NODES[0]]}/bin/python" in refused.output, refused.output
