# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preflight's rules: each defect of a node fails its own check, and the refusal says where and what to do."""

from __future__ import annotations

import copy
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from ansible_collections.muster.training.plugins.module_utils._model import checks
from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.module_utils._model.node_report import NodeReport
from ansible_collections.muster.training.plugins.module_utils._node import host_preflight

Dict = dict[str, t.Any]
RUN, OWNER = "x-1", "me"


def job(**changes: t.Any) -> Job:
    return parse_job({"name": "x", "script": "/t.py", "nodes": 2, "requires": {"torch": ">=2.1"}, **changes})


def answer(**changes: t.Any) -> Dict:
    """Return what a node without a defect answers."""
    training = {"executable": "/py", "version": "3.12.1", "packages": {"torch": "2.9.0+cu128"}, "problem": None}
    folder = {"path": "/state", "exists": True, "problem": None, "free_bytes": 1 << 40}
    gpu = {"count": 8, "model": "NVIDIA H100 80GB HBM3", "memory_gib": 79.6}
    found = {"state": folder, "training": training, "ports": {"20000": None}, "paths": {"/ckpt": folder}, "tools": {}}
    return {
        **found,
        "files": {"/t.py": True},
        "live_runs": [],
        "claim": None,
        "units": {},
        "facts": {"gpu": gpu},
        **changes,
    }


def preflight(a: Dict, b: Dict | None = None, wanted: Job | None = None, skew: float = 0.1) -> list[checks.Check]:
    reports = {"a": NodeReport.from_dict(a), "b": NodeReport.from_dict(answer() if b is None else b)}
    return checks.check_gang(wanted or job(), reports, {"a": skew, "b": 0.0}, RUN, OWNER)


def test_healthy_nodes_pass_every_check() -> None:
    found = preflight(answer(), wanted=job(gpus_per_node=8, gpu={"model": "h100", "memory_gib_min": 79}))
    checks.raise_first_failure(found)
    flat = checks.build_result(found)
    assert (flat["ok"], flat["exit_code"], flat["failures"]) == (True, 0, [])
    assert all(not check.problem and not check.fix for check in found)
    assert {check.name for check in found} >= {
        "clock",
        "state_folder",
        "port",
        "python",
        "idle",
        "owner",
        "gpus",
        "same_torch",
    }


TAKEN = {"address": "10.0.0.1", "reason": "Address already in use", "cause": "port"}

DEFECTS: dict[str, tuple[Dict, str, str]] = {
    "state": (
        {"state": {"path": "/s", "problem": "is on a full file system", "free_bytes": 0}},
        "state_folder",
        "is on a full",
    ),
    "room": (
        {"state": {"path": "/s", "problem": None, "free_bytes": 9 << 20}},
        "state_folder",
        "/s has only 9 MiB free",
    ),
    "path": ({"paths": {"/c": {"problem": "is not writable for uid 7"}}}, "path", "/c is not writable for uid 7"),
    "port": (
        {"ports": {"20000": TAKEN}},
        "port",
        "port 20000 cannot be used: Address already in use",
    ),
    "python": ({"training": {"problem": "there is no py", "packages": {}}}, "python", "there is no py"),
    "missing": (
        {"training": {"executable": "/p", "packages": {"torch": None}}},
        "package_torch",
        "package torch is not installed for /p",
    ),
    "old": ({"training": {"packages": {"torch": "2.0.1"}}}, "package_torch", "torch 2.0.1 does not satisfy >=2.1"),
    "tool": ({"tools": {"sshd": None, "orted|prted": None}}, "tool_sshd", "sshd is not installed"),
    "file": ({"files": {"/t.py": False}}, "file", "cannot read /t.py"),
    "busy": ({"live_runs": [{"run_id": "y-2", "gpus": 8}]}, "idle", "run y-2 is using this node's GPUs"),
    "claim": (
        {"claim": {"owner": "you", "controller": "laptop"}},
        "owner",
        "run x-1 belongs to another controller (laptop)",
    ),
    "gpus": ({"facts": {"gpu": {"count": 4}}}, "gpus", "4 GPUs were found, 8 are needed"),
    "none": ({"facts": {}}, "gpus", "0 GPUs were found, 8 are needed"),
    "model": ({"facts": {"gpu": {"count": 8, "model": "A100"}}}, "gpus", "the GPUs are A100, not h100"),
    "memory": (
        {"facts": {"gpu": {"count": 8, "model": "H100", "memory_gib": 40}}},
        "gpus",
        "the GPUs have 40 GiB, 79 are needed",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_one_defect_fails_its_own_check_on_its_own_node(defect: str) -> None:
    changes, name, text = DEFECTS[defect]
    found = preflight(answer(**changes), wanted=job(gpus_per_node=8, gpu={"model": "h100", "memory_gib_min": 79}))
    failed = [check for check in found if not check.ok]
    assert [(check.name, check.node) for check in failed if not check.name.startswith("same_")][:1] == [(name, "a")]
    assert text in failed[0].problem and failed[0].fix
    with pytest.raises(RefusedError) as caught:
        checks.raise_first_failure(found)
    assert str(caught.value).startswith("a: ") and text in str(caught.value) and failed[0].fix in str(caught.value)
    assert checks.build_result(found)["exit_code"] == 1 and name in checks.build_result(found)["failures"]


def test_a_defect_of_the_other_node_is_found_too() -> None:
    failed = [check for check in preflight(answer(), answer(files={"/t.py": False})) if not check.ok]
    assert [(check.name, check.node) for check in failed] == [("file", "b")]


@pytest.mark.parametrize(("skew", "text"), [(61.0, "61 s ahead of"), (-90.4, "90 s behind")])
def test_a_wrong_clock_is_found_in_both_directions(skew: float, text: str) -> None:
    failed = [check for check in preflight(answer(), skew=skew) if not check.ok]
    assert [check.name for check in failed] == ["clock"] and text in failed[0].problem
    assert not [check for check in preflight(answer(), skew=checks.MAX_SKEW_S) if not check.ok]


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("gpu-1.invalid", "its address gpu-1.invalid cannot be resolved on the node"),
        ("192.0.2.1", "no interface of the node has its address 192.0.2.1"),
    ],
)
def test_a_wrong_address_is_not_called_a_port_in_use(host: str, problem: str) -> None:
    """The answer is the one that a node gives."""
    (failed,) = (item for item in preflight(answer(ports={"1": host_preflight.port_problem(host, 1)})) if not item.ok)
    assert failed.problem.startswith(problem) and "muster_address" in failed.fix
    assert "port" not in failed.problem.lower() and "port" not in failed.fix.lower()


def test_a_port_that_the_run_itself_holds_is_no_defect() -> None:
    running = answer(ports={"20000": TAKEN}, units={"store": {"alive": True}})
    assert not [check for check in preflight(running) if not check.ok]


def test_a_node_is_busy_only_for_a_gpu_job_and_never_with_the_run_itself() -> None:
    busy = answer(live_runs=[{"run_id": RUN, "gpus": 8}, {"run_id": "y", "gpus": 0}])
    assert not [check for check in preflight(busy, wanted=job(gpus_per_node=8)) if not check.ok]
    other = answer(live_runs=[{"run_id": "y", "gpus": 8}])
    assert not [check for check in preflight(other) if not check.ok]


def test_versions_are_compared_over_the_nodes_without_their_build() -> None:
    def with_torch(version: str) -> Dict:
        return answer(training={"executable": "/p", "packages": {"torch": version}})

    assert not [check for check in preflight(with_torch("2.9.0+cpu"), with_torch("2.9.0+cu128")) if not check.ok]
    failed = [check for check in preflight(with_torch("2.9.0"), with_torch("2.8.0")) if not check.ok]
    assert [(check.name, check.node) for check in failed] == [("same_torch", None)]
    assert "a has 2.9.0, b has 2.8.0" in failed[0].problem


def test_a_refusal_counts_what_else_is_wrong() -> None:
    bad = answer(files={"/t.py": False}, ports={"20000": {**TAKEN, "reason": "busy"}})
    with pytest.raises(RefusedError, match=r"busy \(also a: cannot read /t.py\)\. Another program"):
        checks.raise_first_failure(preflight(bad))
    checks.raise_first_failure([])


def test_the_checks_of_a_node_alone_need_no_job() -> None:
    training = {"executable": "/p", "version": "3.12.1", "packages": {"torch": None, "numpy": "2.1"}, "problem": None}
    found = checks.check_node("a", NodeReport.from_dict(answer(training=training)), 0.0)
    assert [check.name for check in found if not check.ok] == ["package_torch"]
    assert "package torch is not installed for /p" in found[-2].problem and "bootstrap" in found[-2].fix


@pytest.mark.parametrize(
    ("version", "wanted", "met"),
    [
        ("2.9.0", "", True),
        ("2.9.0", ">=2.1", True),
        ("2.10", ">=2.9", True),
        ("2.9.0+cu128", "==2.9", True),
        ("2.9.1", "==2.9", False),
        ("2.9.0", ">=2.1,<2.9", False),
        ("2.9.0", "!=2.9", False),
        ("2.9.0", "> 2.8 , <= 2.9", True),
        ("2.9.0", "about 2", False),
        ("weird", ">=0", True),
    ],
)
def test_version_rules(version: str, wanted: str, met: bool) -> None:
    assert checks.satisfies(version, wanted) is met


NUMBERS = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))


@given(
    version=NUMBERS, parts=st.lists(st.tuples(st.sampled_from([">=", "==", "<", "<=", ">", "!="]), NUMBERS), max_size=3)
)
def test_version_rules_agree_with_the_standard_on_plain_releases(version: str, parts: list[tuple[str, str]]) -> None:
    wanted = ",".join(operator + limit for operator, limit in parts)
    assert checks.satisfies(version, wanted) is SpecifierSet(wanted).contains(version)


@given(version=st.text(max_size=12), wanted=st.text(max_size=12))
def test_any_text_as_a_version_rule_has_an_answer(version: str, wanted: str) -> None:
    assert checks.satisfies(version, wanted) in (True, False)


@given(data=st.data())
def test_a_node_that_answers_half_has_no_traceback(data: st.DataObject) -> None:
    whole = answer()
    half = copy.deepcopy(whole)
    for key in data.draw(st.sets(st.sampled_from(sorted(set(whole) - {"state"})))):
        del half[key]
    flat = checks.build_result(preflight(half, wanted=job(gpus_per_node=8)))
    assert flat["ok"] is (not flat["failures"])


REQUIRED: Dict = {"checkpoints": {"path": "/mnt/c", "resume": "required"}}


@pytest.mark.parametrize(
    ("a", "b", "shared", "failed"),
    [
        ("s1", None, True, []),
        (None, None, True, ["a", "b"]),
        ("s1", None, False, ["b"]),
        ("s1", "s1", False, []),
    ],
)
def test_a_required_checkpoint_must_be_there(a: str | None, b: str | None, shared: bool, failed: list[str]) -> None:
    wanted = job(checkpoints={**REQUIRED["checkpoints"], "shared": shared})
    first, second = (answer(checkpoint={"folder": "/mnt/c/x-1", "name": name}) for name in (a, b))
    found = [check for check in preflight(first, second, wanted=wanted) if not check.ok]
    assert [(check.name, check.node) for check in found] == [("checkpoint", node) for node in failed]
    assert all("required, and /mnt/c/x-1 has no complete checkpoint" in check.problem for check in found)
    # What is only looked for need not be there, and a bucket may have what is required.
    for other in ({"resume": "auto"}, {"resume": "required", "binding": "store"}):
        free = job(checkpoints={**other, "path": "/mnt/c", "shared": shared})
        assert not [check for check in preflight(first, second, wanted=free) if not check.ok]


@pytest.mark.parametrize(
    ("saved_by", "config", "failed"),
    [(16, {}, 0), (None, {}, 0), (4, {}, 2), (4, {"checkpoint": {"load_universal": True}}, 0)],
)
@pytest.mark.parametrize("resume", ["required", "auto", "never"])
def test_a_checkpoint_of_zero_is_for_as_many_ranks_as_saved_it(
    saved_by: int | None, config: Dict, failed: int, resume: str
) -> None:
    given = {**REQUIRED, "gpus_per_node": 8, "launcher": "deepspeed", "deepspeed_config": {"zero": 1, **config}}
    given["checkpoints"] = {**given["checkpoints"], "resume": resume}
    seen = answer(checkpoint={"folder": "/mnt/c/x-1", "name": "global_step20", "world_size": saved_by})
    found = [
        check for check in preflight(seen, seen, wanted=job(**given)) if check.name == "checkpoint" and not check.ok
    ]
    assert len(found) == (0 if resume == "never" else failed)
    said = "global_step20 in /mnt/c/x-1 was saved by 4 ranks (ZeRO), and the job has 16"
    assert all(check.problem == said and "load_universal" in check.fix for check in found)
    assert all(("to begin anew" in check.fix) is (resume == "auto") for check in found)


@pytest.mark.parametrize(
    ("resume", "names", "told"),
    [
        ("auto", (None, None), 1),
        ("auto", (None, "ckpt.pt"), 0),
        ("never", (None, None), 0),
        ("required", (None, None), 0),
    ],
)
def test_that_nothing_of_what_is_there_counts_is_told(resume: str, names: tuple[str | None, ...], told: int) -> None:
    torn = "ckpt.pt is half saved: ckpt.pt lacks its end"
    reports = {
        node: NodeReport.from_dict({"checkpoint": {"folder": "/c", "name": name, "half_saved": "" if name else torn}})
        for node, name in zip("ab", names, strict=True)
    }
    said = checks.describe_torn(job(checkpoints={"resume": resume}), reports)
    assert len(said) == told and all("/c has no complete checkpoint: ckpt.pt is half saved" in text for text in said)


def test_a_run_that_is_running_is_followed_without_a_checkpoint() -> None:
    alive = answer(checkpoint={"folder": "/c", "name": None}, units={"agent": {"alive": True}})
    assert not [check for check in preflight(alive, wanted=job(**REQUIRED)) if not check.ok]


@pytest.mark.parametrize(
    ("manager", "gpus", "failed"),
    [("detached", 8, ["memory"]), ("detached", 0, []), ("system", 8, []), ("user", 8, [])],
)
def test_a_memory_limit_that_cannot_be_enforced_is_refused(manager: str, gpus: int, failed: list[str]) -> None:
    wanted = job(gpus_per_node=gpus, resources={"memory": "8Gi"})
    found = [check for check in preflight(answer(manager=manager), wanted=wanted) if not check.ok]
    assert [check.name for check in found] == failed
    assert all("the node runs no systemd" in check.problem and check.fix for check in found)


def test_the_same_problem_on_other_nodes_is_told_with_their_names() -> None:
    bad = answer(training={"executable": "/p", "version": None, "packages": {}, "problem": "/p does not run"})
    with pytest.raises(RefusedError, match=r"^a: /p does not run \(the same on b\)"):
        checks.raise_first_failure(preflight(bad, bad))


def test_a_script_that_the_nodes_python_does_not_take_is_refused_with_its_line() -> None:
    fine, bad = answer(syntax=None), answer(syntax="train.py, line 3: SyntaxError: invalid syntax")
    assert not [check for check in preflight(fine, fine) if not check.ok]
    (failed,) = [check for check in preflight(fine, bad) if not check.ok]
    assert (failed.name, failed.node) == ("syntax", "b")
    assert failed.problem == "job.script: train.py, line 3: SyntaxError: invalid syntax"


@pytest.mark.parametrize("python", ["/usr/bin/python3", "/opt/venv/bin/python"])
def test_the_system_s_python_is_not_told_to_install_packages(python: str) -> None:
    """Debian's and Ubuntu's refuse it (externally managed environment)."""
    training = {"executable": python, "version": "3.12.1", "packages": {"torch": None}, "problem": None}
    (check,) = [check for check in preflight(answer(training=training), answer()) if not check.ok]
    assert "bootstrap playbook makes one" in check.fix
    assert ("-m pip install 'torch>=2.1'" in check.fix) is (python != "/usr/bin/python3")


def test_memory_of_gpus_that_others_use_is_a_warning() -> None:
    devices = [{"memory_gib": 79.6, "memory_used_gib": used} for used in (0.5, 60.1, None)]
    busy = NodeReport.from_dict(answer(facts={"gpu": {"count": 3, "devices": devices}}))
    reports = {"a": busy, "b": NodeReport.from_dict(answer())}
    assert checks.describe_used_gpus(job(gpus_per_node=3), reports) == [
        "a: another program uses the memory of GPU 1 (60.1 of 79.6 GiB). nvidia-smi shows which"
    ]
    assert checks.describe_used_gpus(job(), reports) == []


@pytest.mark.parametrize("devices", [[], [{"uuid": None}]])
def test_a_node_whose_driver_fails_is_not_ready_whatever_its_device_files_say(devices: list[dict[str, None]]) -> None:
    failed = "nvidia-smi failed with 255: Unable to determine the device handle for GPU1: Unknown Error"
    facts = {"gpu": {"count": 8, "devices": devices}, "problems": [failed]}
    check = checks._check_gpus(job(gpus_per_node=8), "a", NodeReport.from_dict(answer(facts=facts)))
    assert not check.ok and failed in str(check)
