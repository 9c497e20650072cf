# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a refusal says to do leads on: bad input, the edit that its sentence names, and the next try.

Fifty of the 446 refusals with a fix in words were drawn (``random.Random(37)``, in proportion to the parts of
``plugins``): those of pure rules are tried here, others by the tests that :data:`WALKED` names.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
import types
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._http.client import HttpResponse
from ansible_collections.muster.training.plugins.module_utils._model import drill, driver_waves, firewall, k3s, service
from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.gpu_driver_plan import DriverOptions
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._secrets.sources import SecretSource
from ansible_collections.muster.training.plugins.modules import kube_secret
from ansible_collections.muster.training.plugins.plugin_utils._hosts import agent_package
from ansible_collections.muster.training.plugins.plugin_utils._inventory import source_file
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import supporting_objects
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import apply_plan, manifests
from ansible_collections.muster.training.plugins.plugin_utils._kube.placement import volume_claims
from ansible_collections.muster.training.plugins.plugin_utils._providers.tailscale import local
from ansible_collections.muster.training.plugins.plugin_utils._services import aws_secrets
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import prometheus
from ansible_collections.muster.training.plugins.plugin_utils._workflows.diagnose import logs
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify.kubernetes_gang import UserJob
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify.kubernetes_target import (
    find_kubernetes_job,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.mesh_node import node as mesh_node
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.digest_lock import DigestLock
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import image_pin, notify
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    plan as kube_plan,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_fetch import run as fetch_run

Dict = dict[str, t.Any]
TESTS = pathlib.Path(__file__).resolve().parents[1]
UNITS = "unit/plugins/plugin_utils"
JOB: Dict = {"name": "x", "script": "/t.py"}
STORE: Dict = {
    "name": "store",
    "kind": "object_store",
    "mode": "bind",
    "endpoint": "https://s3.example",
    "resources": [{"purpose": "checkpoints", "ref": "bucket"}],
}
MADE: Dict = {
    "name": "store",
    "kind": "object_store",
    "mode": "deploy",
    "deploy": {"host": "h"},
    "resources": STORE["resources"],
}
TRACKER: Dict = {"name": "runs", "kind": "tracking", "mode": "deploy", "deploy": {"host": "h"}}
SHARE: Dict = {
    "name": "disk",
    "kind": "shared_filesystem",
    "mode": "bind",
    "provider": "smb",
    "endpoint": "smb://nas/share",
    "filesystem": {"path": "/mnt/nas", "mount": True},
}
POD_JOB: Dict = {**JOB, "image": "python:3.13", "placement": {"backend": "kubernetes"}}


@dataclasses.dataclass(frozen=True)
class Way:
    """A refusal: ``bad`` raises it, saying ``problem``; each edit that its words name, and the next try with that."""

    bad: t.Callable[[], object]
    problem: str
    edits: t.Mapping[str, t.Callable[[], object]]


def services(entry: Dict, **changes: t.Any) -> t.Callable[[], object]:
    """Parse ``muster_services`` with one entry; a key that is None is left out."""
    changed = {key: value for key, value in {**entry, **changes}.items() if value is not None}
    return lambda: service.parse_services([changed])


def job(**changes: t.Any) -> t.Callable[[], object]:
    return lambda: parse_job({**JOB, **changes})


def waves(limit: str, *machines: driver_waves.WaveMachine) -> t.Callable[[], object]:
    return lambda: driver_waves.plan_waves(machines, limit)


def claim(mode: str) -> t.Callable[[], object]:
    """Check a claim of a job of two pods."""
    wanted = parse_job({**POD_JOB, "nodes": 2, "mounts": [{"name": "data", "path": "/d", "pvc": "data"}]})
    live = {"metadata": {"name": "data"}, "spec": {"accessModes": [mode], "volumeName": "v"}}
    return lambda: volume_claims.check_volumes(wanted, {"data": live}, "n", None)


def queue(wanted: str | None, *there: str) -> t.Callable[[], object]:
    placement = {"backend": "kubernetes", **({"queue": wanted} if wanted else {})}
    facts: t.Any = types.SimpleNamespace(queues=dict.fromkeys(there), priorities=None)
    asked = {**POD_JOB, "placement": placement, "resources": {"cpu": 1, "memory": "1Gi"}}
    return lambda: kube_plan._require_queue(parse_job(asked), facts, "n")


def image(*architectures: str) -> t.Callable[[], object]:
    pin = image_pin.JobImage("r.example/i:1", t.cast(t.Any, None), t.cast(t.Any, None), "sha256:0", architectures)
    node: Dict = {"metadata": {"name": "n1", "labels": {"kubernetes.io/arch": "arm64"}}}
    return lambda: pin.require_fitting(*pin.split([node]))


def code(size: int) -> t.Callable[[], object]:
    plan: t.Any = types.SimpleNamespace(name="r", archive=b"x" * size, metadata=lambda *_words, **_more: {"name": "r"})
    return lambda: supporting_objects.build_code(plan)


def applied(**live: t.Any) -> t.Callable[[], object]:
    target: t.Any = types.SimpleNamespace(title="Job n/r", value={})
    found: Dict | None = {"metadata": live} if live else None
    return lambda: apply_plan._plan_step(target, found, "muster")


def fetched(binding: str | None, source: str | None) -> t.Callable[[], object]:
    record: t.Any = types.SimpleNamespace(backend="kubernetes", run_id="r")
    of_run: t.Any = types.SimpleNamespace(checkpoints=types.SimpleNamespace(binding=binding))
    wanted: t.Any = types.SimpleNamespace(source=source, patterns=())
    return lambda: fetch_run._check_source(wanted, record, of_run)


def pushed(status: int) -> t.Callable[[], object]:
    """Judge what Prometheus answers to figures."""

    def judge() -> None:
        problem = prometheus._judge_push(HttpResponse(status, {}, b""), "https://p", "job.monitoring")
        if problem is not None:
            raise problem

    return judge


def cut(connection: str, target: str = "cut") -> t.Callable[[], object]:
    from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import run

    wanted = parse_job({**JOB, "nodes": 2, "checkpoints": {"interval_steps": 5}, "metrics": {"preset": "nanogpt"}})
    hosts: t.Any = [types.SimpleNamespace(name=name, connection=connection) for name in ("a", "b")]
    request: t.Any = types.SimpleNamespace(options={"drill": {"at_step": 5, "target": target}})
    source: t.Any = types.SimpleNamespace(folder=None, files=())
    return lambda: run._parse_drill(request, wanted, hosts, source)


def pulled(ref: Dict) -> t.Callable[[], object]:
    return lambda: UserJob.from_dict({**POD_JOB, "secret_refs": [ref]})


def answered(rc: int, err: str, out: str = "") -> t.Callable[[], object]:
    return lambda: agent_package.parse_answer("n1", rc, out, err)


OBJECT = "kind: B\napiVersion: v1\nmetadata: {name: b}\n"
KEY = "canary-key-0001"
WHOLE = agent_package.MARK + '{"ok": true}\n'
DRILL: Dict = {"at_step": 5, "target": "agent"}
BUSY = driver_waves.WaveMachine("a", closed="NotReady")
STALE = driver_waves.WaveMachine("b", stale=True)
KEPT = {"from": "env", "keys": {"username": "A", "password": "B"}}
ROLES = {"a": "server", "b": "server", "c": "agent"}
WAYS: t.Final[t.Mapping[str, Way]] = {
    "drill.node": Way(
        lambda: drill.parse_drill({**DRILL, "node": "c"}, 2, ["a", "b"], 1),
        "'c' is not a node of the job",
        {"Its nodes are: a, b": lambda: drill.parse_drill({**DRILL, "node": "a"}, 2, ["a", "b"], 1)},
    ),
    "driver_waves": Way(
        waves("1", BUSY, STALE),
        "so many take no pods: a (NotReady)",
        {
            "Let them take pods": waves("1", dataclasses.replace(BUSY, closed=""), STALE),
            "leave them out with --limit": waves("1", STALE),
            "raise max_unavailable": waves("2", BUSY, STALE),
        },
    ),
    "filesystem keys": Way(
        services(SHARE, secret_ref={"from": "env", "keys": {"token": "A"}}),
        "secret_ref.keys.token: is not a credential",
        {"Known are: username, password": services(SHARE, secret_ref=KEPT)},
    ),
    "job_ports": Way(
        lambda: firewall._parse_port("4791"),
        "'4791' is not a port",
        {
            "4791/udp": lambda: firewall._parse_port("4791/udp"),
            "30000/tcp": lambda: firewall._parse_port("20000-30000/tcp"),
        },
    ),
    "gpu_driver_version": Way(
        lambda: DriverOptions(version="newest"),
        "gpu_driver_version: is 'newest'",
        {"595.91.07": lambda: DriverOptions(version="595.91.07")},
    ),
    "secret twice": Way(
        job(env={"TOKEN": "x"}, secret_refs=[{"name": "TOKEN", "from": "env"}]),
        "job.env.TOKEN: is also the name of a secret",
        {"Leave one of them out": job(env={}, secret_refs=[{"name": "TOKEN", "from": "env"}])},
    ),
    "k3s servers": Way(
        lambda: k3s.check_roles(ROLES),
        "2 servers (a, b) have no majority",
        {
            "Set server on one machine": lambda: k3s.check_roles({**ROLES, "b": "agent"}),
            "or on three": lambda: k3s.check_roles({**ROLES, "c": "server"}),
        },
    ),
    "filesystem of a bucket": Way(
        services(STORE, filesystem={"path": "/mnt"}),
        "store.filesystem: is for kind: shared_filesystem",
        {"Leave it out": services(STORE)},
    ),
    "deployed endpoint": Way(
        services(MADE, endpoint="https://h:9000"),
        "store.endpoint: is for mode: bind",
        {"Leave it out": services(MADE)},
    ),
    "filesystem of a deployed store": Way(
        services(MADE, filesystem={"path": "/mnt"}),
        "store.filesystem: is for kind: shared_filesystem",
        {"Leave it out": services(MADE)},
    ),
    "endpoint": Way(
        services(STORE, endpoint="s3.example"),
        "store.endpoint: is not the address of a server",
        {"Write https://HOST:PORT": services(STORE, endpoint="https://s3.example:443")},
    ),
    "deploy.python": Way(
        services(TRACKER, deploy={"host": "h", "python": "python3"}),
        "deploy.python: must be an absolute path",
        {"Write /PATH/bin/python": services(TRACKER, deploy={"host": "h", "python": "/opt/bin/python"})},
    ),
    "deploy.database": Way(
        services(TRACKER, deploy={"host": "h", "database": {"from": "env", "keys": {"host": "A"}}}),
        "database.keys.host: is not part of",
        {"Known are: url": services(TRACKER, deploy={"host": "h", "database": {"from": "env", "keys": {"url": "A"}}})},
    ),
    "filesystem.marker": Way(
        services(SHARE, secret_ref=KEPT, filesystem={**SHARE["filesystem"], "marker": "m"}),
        "filesystem.marker: is read from the file system",
        {"Leave it out": services(SHARE, secret_ref=KEPT)},
    ),
    "secret source": Way(
        lambda: SecretSource("api_key", "api_key_file", ("X_KEY",)).need(environ={}),
        "api_key: is missing",
        {
            "Set api_key": lambda: SecretSource("api_key", "", ("X_KEY",)).need(KEY, environ={}),
            "environment variable X_KEY": lambda: SecretSource("api_key", "", ("X_KEY",)).need(environ={"X_KEY": KEY}),
        },
    ),
    "job.code": Way(
        code(1 << 20),
        "job.code: is 1024 KiB when packed",
        {"Leave out data": code(1 << 10), "put the code in the image (from: image)": code(0)},
    ),
    "object being deleted": Way(
        applied(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["keep"]),
        "is being deleted and waits for: keep",
        {"Wait until it is deleted": applied()},
    ),
    "key twice": Way(
        lambda: manifests.parse(f"kind: A\n{OBJECT}", "definition"),
        "gives the key kind twice (line 2, column 1)",
        {"Leave one of them out": lambda: manifests.parse(OBJECT, "definition")},
    ),
    "claim of one node": Way(
        claim("ReadWriteOnce"),
        "allows ReadWriteOnce, but 2 pods",
        {"access mode ReadWriteMany": claim("ReadWriteMany")},
    ),
    "secret of a fabric test": Way(
        pulled({"name": "r", "as": "registry", "from": "env"}),
        "pulls its image with a Secret that exists",
        {
            "{from: kubernetes, path: SECRET, as: registry}": pulled(
                {"from": "kubernetes", "path": "s", "as": "registry"}
            )
        },
    ),
    "job of a fabric test": Way(
        lambda: find_kubernetes_job({"job": "image"}, t.cast(t.Any, None)),
        "job: must be a mapping",
        {
            "Give the keys of a job: image, placement, mounts, resources": lambda: find_kubernetes_job(
                {"job": {**POD_JOB, "mounts": [], "resources": {}}}, t.cast(t.Any, None)
            )
        },
    ),
    "drill that cuts the controller": Way(
        cut("local"),
        "cut would cut off this controller: b has ansible_connection: local",
        {"a node that is reached over SSH": cut("ssh"), "use target: host": cut("local", "host")},
    ),
    "image of another architecture": Way(
        image("amd64"),
        "is made for amd64, and nodes are n1 (arm64)",
        {"Build it for their architecture": image("arm64"), "push an index of both": image("amd64", "arm64")},
    ),
    "queue": Way(
        queue("team", "other"),
        "no LocalQueue team in the namespace n (there are: other)",
        {
            "Name another one": queue("other", "other"),
            "create it (playbook team)": queue("team", "other", "team"),
            "leave it out where the cluster has no Kueue": queue(None),
        },
    ),
    "notify": Way(
        lambda: notify.check_target({"slack": "x"}),
        "notify.slack: is not an option",
        {
            "webhook": lambda: notify.check_target({"webhook": "https://hooks.example/T000/B000"}),
            "mail, on": lambda: notify.check_target(
                {"mail": {"to": "a@b.c", "from": "d@b.c", "host": "m"}, "on": "end"}
            ),
        },
    ),
    "source of a fetch": Way(
        fetched(None, "bucket"),
        "the job of run r has no checkpoints.binding",
        {"Leave source out": fetched(None, None)},
    ),
    "python too old": Way(
        answered(1, "muster: Python 3.8 is too old\n"),
        "n1: Python 3.8 is too old",
        {"Install Python 3.10 or newer, or set ansible_python_interpreter": answered(0, "", WHOLE)},
    ),
    "no python": Way(
        answered(127, "sh: python3: not found\n"),
        "n1: python3 is not installed",
        {"Install Python 3.10 or newer, or set ansible_python_interpreter": answered(0, "", WHOLE)},
    ),
    "prometheus without OTLP": Way(
        pushed(404), "takes no metrics of jobs (HTTP 404)", {"Start it with --web.enable-otlp-receiver": pushed(200)}
    ),
}
# What needs more than a rule: the test that refuses, does what is said, and goes on; by a word of the refusal.
WALKED: t.Final = {
    "is not a complete JSON document": (
        f"{UNITS}/_fabric/bench/test_result.py",
        "test_a_torn_result_is_followed_by_a_whole_one",
    ),
    "names 2 clusters": (f"{UNITS}/_workflows/test_coreweave_node_pool.py", "test_the_cluster_may_be_named"),
    "has no API server yet": (f"{UNITS}/_workflows/test_coreweave_node_pool.py", "test_the_cluster_may_be_named"),
    "has other keys than": (
        f"{UNITS}/_workflows/services/test_deploy_host.py",
        "test_a_controller_that_slept_does_not_replace_the_keys",
    ),
    "there is no claim": (
        f"{UNITS}/_workflows/services/test_service_claim.py",
        "test_a_claim_that_is_created_or_named_is_used",
    ),
    "may still be running on": ("e2e/test_cut_links.py", "test_cancel_with_a_dead_host_says_what_runs_on"),
    "still exists after": (
        f"{UNITS}/_workflows/training_job/kubernetes/test_delete.py",
        "test_an_object_that_stays_is_named_with_its_finalizers",
    ),
    "do not reach each other": (
        f"{UNITS}/_workflows/training_job/kubernetes/test_network_preflight.py",
        "test_a_program_that_linux_cannot_run_is_no_network",
    ),
    "is not made for the architecture of its node": (
        f"{UNITS}/_workflows/training_job/kubernetes/test_network_preflight.py",
        "test_a_program_that_linux_cannot_run_is_no_network",
    ),
    "KiB of signed addresses": (
        f"{UNITS}/_workflows/training_job/object_stores/test_pod_store.py",
        "test_more_than_a_secret_holds_is_refused",
    ),
    "Files there are": (
        f"{UNITS}/_workflows/training_job_fetch/test_run.py",
        "test_a_pattern_without_a_match_names_the_files_that_are_there",
    ),
    "gave no secret at": (f"{UNITS}/_services/test_infisical.py", "test_a_path_that_is_mended_is_read"),
    "MLflow's answer to": (f"{UNITS}/_services/tracking/test_mlflow_runs.py", "test_what_is_no_mlflow_is_told"),
    "does not exist in": (f"{UNITS}/_workflows/training_job/test_run.py", "test_a_run_that_is_listed_is_cancelled"),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_a_refusal_says_leads_on(way: Way) -> None:
    with pytest.raises(MusterError) as refused:
        way.bad()
    assert way.problem in refused.value.message
    for words, edited in way.edits.items():
        assert words in str(refused.value)
        edited()


@pytest.mark.parametrize(("file", "test"), WALKED.values(), ids=WALKED)
def test_a_longer_way_has_its_test(file: str, test: str) -> None:
    assert f"def {test}(" in (TESTS / file).read_text()


def test_fifty_were_drawn() -> None:
    in_files = ("tailscale_binary", "tailscaled", "inventory source", "logs", "auth key", "lock", "botocore")
    assert len(WAYS) + len(WALKED) + len(in_files) == 50


def test_the_secret_that_a_fabric_test_asks_for_can_be_made() -> None:
    assert {"type", "name"} <= set(yaml.safe_load(kube_secret.DOCUMENTATION)["options"])


def test_programs_and_files_that_are_mended(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "tailscale"
    with pytest.raises(MusterError, match="Install Tailscale's client, or set tailscale_binary"):
        local.run_status(str(program))
    program.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(MusterError, match="Name Tailscale's client in tailscale_binary"):
        local.run_status(str(program))
    program.chmod(0o755)
    with pytest.raises(MusterError, match="exit code 1. Check that tailscaled runs"):
        local.run_status(str(program))
    program.write_text("#!/bin/sh\necho '{}'\n")
    assert local.run_status(str(program)) == b"{}\n"

    source = tmp_path / "big.yml"
    source.write_text("plugin: x\n" + "# x\n" * (source_file.MAX_BYTES // 4))
    with pytest.raises(MusterError, match="Name a source of an inventory plugin, or put this file elsewhere"):
        source_file.check_file(str(source))
    source.write_text("plugin: muster.training.local\n")
    source_file.check_file(str(source))

    with pytest.raises(MusterError, match="Name the folder that holds the logs"):
        logs.diagnose_folder(str(tmp_path / "none"))
    (tmp_path / "logs").mkdir()
    assert logs.diagnose_folder(str(tmp_path / "logs"))["diagnoses"] == []

    key = tmp_path / "key"
    key.write_text("\n")
    with pytest.raises(MusterError, match="Write a key of the tailnet into it"):
        mesh_node._read_key("key", tmp_path)
    key.write_text("tskey-auth-0001\n")
    assert mesh_node._read_key("key", tmp_path) is not None

    lock = tmp_path / "lock.json"
    lock.write_text("{<<<<<<< HEAD")
    download: t.Any = types.SimpleNamespace(sha256="", key="k")
    with pytest.raises(MusterError, match="Restore it from version control"):
        DigestLock(lock).find_digest(download)
    lock.write_text('{"k": "abc"}')
    assert DigestLock(lock).find_digest(download) == "abc"


def test_a_package_that_is_installed_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is there, the next refusal is of something else. The package is a stand-in: it is an optional one."""
    access: t.Any = types.SimpleNamespace(region=None)
    monkeypatch.delenv("AWS_REGION", raising=False)
    asked = aws_secrets._open_client(access, "secretsmanager", "o")
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(MusterError, match="pip install botocore"), asked:
        pass
    session = types.SimpleNamespace(get_config_variable=lambda _name: None)
    for name in ("botocore", "botocore.config", "botocore.exceptions", "botocore.session"):
        module: t.Any = types.ModuleType(name)
        module.Session = lambda: session
        monkeypatch.setitem(sys.modules, name, module)
        if "." in name:
            setattr(sys.modules["botocore"], name.partition(".")[2], module)
    with (
        pytest.raises(MusterError, match="AWS has no region"),
        aws_secrets._open_client(access, "secretsmanager", "o"),
    ):
        pass
