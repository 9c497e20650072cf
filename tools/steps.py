# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of the project as data: what each runs, on what, and what it needs. ``tools/check.py`` runs them.

In a command ``{bin}`` is the folder of the development environment's commands, ``{python}`` its interpreter, and
``{core220}``, ``{core222}`` are the same folders of the environments with other versions of ansible-core.

The order is that of a quick end: what is cheap comes first, then what waits for real time, one such step after the
other, with the rest beside them.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import typing as t

Need = t.Literal["core220", "core222", "torch"]
Tier = t.Literal["test", "all"]

PACKAGE = "ansible_collections.muster.training"


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One check.

    ``subject``: shell patterns of the files it is about; with none of them in the project there is nothing to check.
    ``needs``: what must be on the machine, else the step is not run. ``after``: steps whose result it uses.
    ``counted``: its output ends in pytest's counts, which go into the total instead of one for the step.
    ``empty_status``: the exit status by which the command says that there was nothing to check.
    ``warns``: a failure is shown and does not fail the whole. ``within``: the step that does all of this one and more,
    which stands in for it where all steps run. ``timed``: its tests wait for real processes within limits of real time,
    so that no second such step runs beside it, and what does run beside it has the processors second.
    """

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    subject: tuple[str, ...] = ("*",)
    needs: tuple[Need, ...] = ()
    after: tuple[str, ...] = ()
    tier: Tier = "test"
    counted: bool = False
    empty_status: int | None = None
    warns: bool = False
    limit_s: int = 3600
    within: str = ""
    timed: bool = False


# Tests with real processes, real torch and real time limits meet whatever else a machine does. What fails gets a second
# try, and is then named in the summary with what went wrong the first time in the log: it is never passed over.
SECOND_TRY = ("--reruns", "1", "-p", f"{PACKAGE}.tests.support.second_try")


COVERED = (f"--cov={PACKAGE}.plugins", "--cov-report=term")


def unit_tests(python: str, *options: str) -> tuple[str, ...]:
    """The pytest command that all versions of ansible-core share; torch has a step of its own."""
    return (python, "-m", "pytest", "--quiet", "-rsfE", "--tb=short", "-m", "not torch", *options)


# antsibull-docs reads the pages from a folder of a random name, which is a link in them where it ends in "_".
TWICE = ("sh", "-c", '"$@" || "$@"', "sh")


PYTHON_FILES = ("*.py",)
PLUGINS = ("plugins/*.py",)
UNIT_TESTS = ("tests/unit/*test_*.py",)
PLAYBOOKS = ("playbooks/*.yml",)

# What meets ansible-core's own code: run again on the older core, and under ansible-test. The rest, which does not
# import Ansible at all, is run once.
ON_ANSIBLE = (
    "tests/unit/plugins/inventory/",
    "tests/unit/plugins/action/",
    "tests/unit/plugins/plugin_utils/_inventory/",
)
# What a cluster does every time: a gang, a kill and its resume, competing gangs, a member's rights, lost nodes that are
# replaced, GPUs and RDMA devices by plugins. Denied networks are left to the whole session: the controller that denies
# them has to be compiled, which takes both processors for minutes.
# Then the scenario of a role for devices, and bare machines with GPUs: to a trained job and back. The last one goes
# into a mesh and out of it.
SHORT_PASS = (
    "tests/lab/test_kube_training.py::test_a_gang_runs_once_and_leaves_its_record",
    "tests/lab/test_kube_training.py::test_a_killed_pod_resumes_from_the_checkpoint",
    "tests/lab/test_kube_cluster.py::test_second_gang_has_no_pod_until_the_first_has_finished[plain]",
    "tests/lab/test_team.py::test_a_member_submits_follows_and_cancels",
    "tests/lab/test_shell_blocks_member.py",
    "tests/lab/test_kube_heal.py::test_a_node_that_is_off_gives_its_pods_away",
    "tests/lab/test_kube_heal.py::test_a_rented_node_is_replaced_by_one_that_joins",
    "tests/lab/test_kube_rdma_stack.py",
    "tests/lab/test_molecule_devices.py::test_a_role_alone[rdma]",
    "tests/lab/test_k3s_site.py",
    "tests/lab/test_mesh.py",
)
SANITY = ("--exclude", "tests/", "--exclude", "tools/", "--exclude", "examples/")
STEPS: t.Final[tuple[Step, ...]] = (
    Step("ruff", "ruff check", (("{bin}/ruff", "check", "."),), PYTHON_FILES),
    Step("format", "ruff format", (("{bin}/ruff", "format", "--check", "."),), PYTHON_FILES),
    Step("words", "words of messages, docs and names, with the figures", (("{python}", "-m", "tools.words"),)),
    Step("yamllint", "yamllint", (("{bin}/yamllint", "--strict", "."),), ("*.yml", "*.yaml")),
    Step("changelog", "antsibull-changelog lint", (("{bin}/antsibull-changelog", "lint"),), ("changelogs/*",)),
    # Two steps take minutes to make environments; the Makefile is the one place that says how. With nothing to do they
    # take none, and what needs neither is beside the first.
    Step(
        "venv-torch",
        "environments with PyTorch and the launchers",
        (("make", "--no-print-directory", "venv-torch", "venv-launchers"),),
    ),
    Step(
        "venv-more",
        "environments with services and ansible-core 2.20",
        (("make", "--no-print-directory", "venv-services", "venv-core220"),),
    ),
    Step(
        "kube-api",
        "Kubernetes client on a real API server",
        (("{python}", "-m", "pytest", "--quiet", "-rsfE", "--tb=short", "-n", "2", "tests/kube_api", *SECOND_TRY),),
        ("tests/kube_api/*.py",),
        after=("venv-more",),
        counted=True,
        timed=True,
    ),
    # The cluster's half of the product. Programs that are missing come by apt-get (MUSTER_REQUIRE_LAB=1) or are built.
    Step(
        "cluster",
        "a short pass on a cluster of local machines",
        (("{python}", "-m", "tools.lab", "test", *SHORT_PASS, *SECOND_TRY),),
        ("tests/lab/*.py",),
        needs=("torch",),
        after=("venv-torch", "venv-more"),
        counted=True,
        within="lab",
        timed=True,
    ),
    Step(
        "e2e",
        "end to end on the demo inventory",
        (("{python}", "-m", "tools.e2e", "-n", "2", "--dist", "loadscope", *SECOND_TRY),),
        ("tools/e2e.py",),
        needs=("torch",),
        after=("venv-torch", "venv-more"),
        timed=True,
    ),
    Step(
        "unit",
        "pytest with coverage",
        (unit_tests("{python}", "--numprocesses=2", "--durations=20", *COVERED, *SECOND_TRY),),
        UNIT_TESTS,
        counted=True,
    ),
    Step(
        "mypy",
        "mypy strict, nodes as Python 3.10",
        (("{bin}/mypy",), ("{bin}/mypy", "--python-version", "3.10", "plugins/module_utils")),
        PLUGINS,
    ),
    Step("layers", "import-linter", (("{bin}/lint-imports",),), PLUGINS),
    Step("artifact", "build and install the archive", (("{python}", "-m", "tools.artifact", "build"),)),
    Step(
        "ansible-doc",
        "ansible-doc on plugins and roles",
        (("{python}", "-m", "tools.artifact", "docs"),),
        ("plugins/*.py", "roles/*"),
        after=("artifact",),
    ),
    Step(
        "syntax",
        "syntax of playbooks",
        (("{python}", "-m", "tools.artifact", "syntax"),),
        PLAYBOOKS,
        after=("artifact",),
    ),
    Step(
        "docs-lint",
        "antsibull-docs lint",
        (
            (
                *TWICE,
                "{bin}/antsibull-docs",
                "lint-collection-docs",
                "--plugin-docs",
                "--check-extra-docs-refs",
                "--validate-collection-refs",
                "self",
                ".",
            ),
        ),
        ("docs/docsite/*", "plugins/*", "roles/*"),
    ),
    Step(
        "ansible-lint",
        "ansible-lint production",
        (("{bin}/ansible-lint", "--offline", "--nocolor"),),
        ("playbooks/*", "roles/*", "meta/*", "galaxy.yml"),
    ),
    # What is shipped; ruff and mypy hold tests, tools and examples. Programs that run on nodes by themselves say in
    # their first lines which rule of pylint takes them for code inside AnsibleModule: an ignore file could say so too,
    # but ansible-lint's production profile forbids those ignores.
    Step(
        "sanity",
        "ansible-test sanity",
        (("{python}", "-m", "tools.sanity", "sanity", *SANITY),),
    ),
    Step(
        "faults",
        "provider faults, all cases",
        (
            (
                "{python}",
                "-m",
                "pytest",
                "--quiet",
                "-rsfE",
                "--tb=short",
                "--numprocesses=2",
                # What a file counts is judged by its last test.
                "--dist=loadfile",
                "tests/faults",
            ),
        ),
        ("tests/faults/*.py",),
        counted=True,
    ),
    Step(
        "core220",
        "pytest and syntax on ansible-core 2.20",
        (unit_tests("{core220}/python", *ON_ANSIBLE), ("{python}", "-m", "tools.artifact", "syntax", "{core220}")),
        UNIT_TESTS,
        needs=("core220",),
        after=("artifact", "venv-more"),
    ),
    Step(
        "integration",
        "ansible-test integration",
        (("{python}", "-m", "tools.sanity", "integration"),),
        ("tests/integration/targets/*",),
    ),
    Step(
        "torch",
        "pytest with torch",
        (("{python}", "-m", "pytest", "--quiet", "-rsfE", "--tb=short", "-m", "torch", *SECOND_TRY),),
        UNIT_TESTS,
        needs=("torch",),
        after=("venv-torch",),
        counted=True,
        empty_status=5,
    ),
    # The scenarios of machines are run by tests/lab/test_molecule.py, which has some.
    Step("molecule", "molecule scenario default", (("{bin}/molecule", "test"),), ("molecule/default/molecule.yml",)),
    Step(
        "test-units",
        "ansible-test units",
        (("{python}", "-m", "tools.sanity", "units", "--num-workers", "2", *ON_ANSIBLE[1:]),),
        UNIT_TESTS,
    ),
    Step(
        "lab",
        "machines with systemd, a Kubernetes cluster",
        (("{python}", "-m", "tools.lab", "test"),),
        ("tests/lab/*.py",),
        tier="all",
        limit_s=7200,
        timed=True,
    ),
    Step(
        "docs",
        "documentation site",
        (("{python}", "-m", "tools.docs"),),
        ("docs/docsite/*",),
        tier="all",
    ),
    Step(
        "core222",
        "pytest and syntax on ansible-core 2.22 pre-release",
        (unit_tests("{core222}/python"), ("{python}", "-m", "tools.artifact", "syntax", "{core222}")),
        UNIT_TESTS,
        needs=("core222",),
        after=("artifact",),
        tier="all",
        warns=True,
    ),
)


def places(root: pathlib.Path, python: str) -> dict[str, str]:
    """What the words in braces of the commands stand for."""
    folder = os.fspath(pathlib.Path(python).parent)
    others = {name: os.fspath(root / f".venv-{name}" / "bin") for name in ("core220", "core222")}
    return {"python": python, "bin": folder, **others}


def unmet(need: Need, root: pathlib.Path, environment: t.Mapping[str, str]) -> str:
    """Why a prerequisite is not there, empty when it is."""
    if need == "torch":
        named = environment.get("MUSTER_TORCH_PYTHON", "")
        if not named:
            return "MUSTER_TORCH_PYTHON names no interpreter with torch (make venv-torch)"
        return "" if shutil.which(named) else "the interpreter of MUSTER_TORCH_PYTHON does not exist (make venv-torch)"
    there = (root / f".venv-{need}" / "bin" / "python").exists()
    return "" if there else f"the environment .venv-{need} is not there (make venv-{need})"
