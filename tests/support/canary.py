# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One list of the sinks into which a secret could leak, and a search that reads them all in every encoding.

A search that cannot fail proves nothing: :func:`seed` puts a value into each sink, and a test asserts that it is found.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import gzip
import json
import os
import pathlib
import subprocess
import sys
import typing as t
import urllib.parse
import zlib

Chunks = t.Iterator[tuple[str, bytes]]


@dataclasses.dataclass(frozen=True)
class Places:
    """Where a run left something: folders of controller and nodes, output, and what the processes of the run are.

    ``reports``: the folder of :func:`loud`, and of what a test saved of the journal and of a cluster (:data:`REPORTS`).
    """

    controller: pathlib.Path
    nodes: pathlib.Path
    outputs: tuple[pathlib.Path, ...]
    own_pids: frozenset[int] = frozenset()
    reports: pathlib.Path | None = None


# What is below ``Places.reports``, by sink.
REPORTS: t.Final = {
    "log file": "log",
    "JUnit": "junit",
    "results by host": "tree",
    "fact cache": "facts",
    "journal and syslog": "journal",
    "pod specs, objects and events": "cluster",
    "job events of ansible-runner": "runner",
}


def loud(reports: pathlib.Path) -> dict[str, str]:
    """Return the environment in which ansible-playbook writes into everything that it can write into."""
    (reports / REPORTS["log file"]).mkdir(parents=True, exist_ok=True)
    return {
        "ANSIBLE_LOG_PATH": str(reports / REPORTS["log file"] / "ansible.log"),
        "ANSIBLE_CALLBACKS_ENABLED": "ansible.builtin.junit,ansible.builtin.tree",
        "ANSIBLE_CALLBACK_TREE_DIR": str(reports / REPORTS["results by host"]),
        "JUNIT_OUTPUT_DIR": str(reports / REPORTS["JUnit"]),
        "ANSIBLE_CACHE_PLUGIN": "jsonfile",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(reports / REPORTS["fact cache"]),
        "ANSIBLE_INJECT_INVOCATION": "1",
    }


def encodings(value: str) -> dict[str, bytes]:
    """Return the forms in which a value could be written, by name."""
    raw = value.encode()
    return {
        "raw": raw,
        "base64": base64.b64encode(raw).rstrip(b"="),
        "base64 with newline": base64.b64encode(raw + b"\n").rstrip(b"="),
        "url": urllib.parse.quote(value, safe="").encode(),
        "json": json.dumps(value)[1:-1].encode(),
        "hex": raw.hex().encode(),
    }


def _files(top: pathlib.Path) -> Chunks:
    for path in sorted(top.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield str(path), path.read_bytes()


def _processes(name: str) -> t.Callable[[Places], Chunks]:
    def read(places: Places) -> Chunks:
        own = {os.getpid(), *places.own_pids}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) not in own:
                with contextlib.suppress(OSError):
                    yield f"/proc/{entry}/{name}", pathlib.Path("/proc", entry, name).read_bytes()

    return read


def _report(name: str) -> t.Callable[[Places], Chunks]:
    return lambda places: _files(places.reports / name) if places.reports else iter(())


SINKS: t.Final[dict[str, t.Callable[[Places], Chunks]]] = {
    "output": lambda places: ((str(path), path.read_bytes()) for path in places.outputs),
    "controller files (ledger, bindings, run record, events, logs, report)": lambda places: _files(places.controller),
    "node files": lambda places: _files(places.nodes),
    "argv of all processes": _processes("cmdline"),
    "environment of other processes": _processes("environ"),
    **{sink: _report(name) for sink, name in REPORTS.items()},
}

# Every file of the collection that has a secret in its hands -> the test that searches the sinks with it.
_RENT = "tests/e2e/test_renting_secrets.py::test_no_canary_anywhere"
_BAO = "tests/e2e/test_secrets_of_services.py::test_a_token_from_openbao_is_in_the_ranks_and_nowhere_else"
_SOURCES = "tests/e2e/test_secret_sources.py::test_values_of_aws_and_infisical_reach_the_ranks_and_nothing_else"
_SETUP = "tests/e2e/test_secret_sources.py::test_what_a_deployment_sets_up_serves_a_job"
_HOST = "tests/lab/test_openbao.py::test_it_is_deployed_bound_and_its_material_is_nowhere_else"
_PODS = "tests/lab/test_kube_secrets.py::test_a_token_from_openbao_is_read_by_pods_and_is_nowhere_else"
_CLUSTER = "tests/lab/test_kube_secrets.py::test_it_is_deployed_in_the_cluster_and_again_with_no_write"
_TAILNET = "tests/e2e/test_renting_secrets.py::test_keys_of_a_tailnet_are_in_their_file_only"
_MODULES = "tests/kube_api/test_modules.py::test_the_life_of_a_secret"
_ALERTS = "tests/unit/plugins/plugin_utils/_workflows/services/test_alert_parts.py"
_GRAFANA = "tests/unit/plugins/plugin_utils/_services/monitoring/test_grafana.py::test_no_one_is_let_in_without_a_login_and_no_secret_is_a_variable"
_PROMETHEUS = "tests/unit/plugins/plugin_utils/_services/monitoring/test_component.py::test_it_is_bound_and_takes_the_metrics_of_a_run"
_CHOICES = "tests/kube_api/test_service_choices.py::test_a_choice_is_made_in_a_cluster_once"
_VAULT = "tests/e2e/test_service_choices.py::test_vault_is_set_up_once_and_unsealed_after_each_start"
_TRACKED = (
    "tests/unit/plugins/plugin_utils/_workflows/training_job/trackers/test_tracking.py"
    "::test_a_program_finds_its_tracker_and_the_record_has_no_secret"
)
_PINNED = "tests/kube_api/test_registry_images.py::test_a_tag_that_moves_is_one_digest_for_a_start"
_REGISTRY = "tests/e2e/test_registry.py::test_a_registry_with_tls_and_a_user_is_bound_once"
HOLDERS: t.Final = {
    "module_utils/_secrets/auth.py": _RENT,
    "module_utils/_secrets/scrubber.py": _RENT,
    "module_utils/_secrets/secret.py": _RENT,
    "plugin_utils/_kube/api/auth_provider.py": _PODS,
    "plugin_utils/_kube/api/credentials.py": _PODS,
    "plugin_utils/_kube/api/kubeconfig.py": _PODS,
    "plugin_utils/_kube/objects/manifests.py": _MODULES,
    "plugin_utils/_kube/objects/secrets.py": _MODULES,
    "plugin_utils/_providers/tailscale/client.py": _TAILNET,
    "plugin_utils/_services/aws_secrets.py": _SOURCES,
    "plugin_utils/_services/component.py": _CHOICES,
    "plugin_utils/_services/hashicorp_vault.py": _VAULT,
    "plugin_utils/_services/infisical.py": _SOURCES,
    "plugin_utils/_services/minio.py": _CHOICES,
    "plugin_utils/_services/monitoring/grafana.py": _GRAFANA,
    "plugin_utils/_services/monitoring/web_login.py": _PROMETHEUS,
    "plugin_utils/_services/openbao.py": _SETUP,
    "plugin_utils/_services/registry/client.py": _REGISTRY,
    "plugin_utils/_services/registry/distribution.py": _CHOICES,
    "plugin_utils/_services/rustfs.py": _CHOICES,
    "plugin_utils/_services/s3_addresses.py": _BAO,
    "plugin_utils/_services/s3_state.py": "tests/e2e/test_stored_state.py",
    "plugin_utils/_services/seaweedfs.py": "tests/lab/test_object_store.py",
    "plugin_utils/_services/tracking/mlflow.py": "tests/e2e/test_tracker_deployed.py",
    "plugin_utils/_services/vault.py": _BAO,
    "plugin_utils/_services/vault_set_up.py": _VAULT,
    "plugin_utils/_workflows/cluster_backup/sealed.py": "tests/e2e/test_control_plane_backup.py",
    "plugin_utils/_workflows/k3s_node/node.py": "tests/lab/test_k3s_cluster.py",
    "plugin_utils/_workflows/k3s_node/tokens.py": "tests/lab/test_k3s_cluster.py",
    "plugin_utils/_workflows/kubeconfig.py": "tests/kube_api/test_access.py",
    "plugin_utils/_workflows/mesh_node/node.py": "tests/lab/test_mesh.py::test_machines_join_with_a_key_each",
    "plugin_utils/_workflows/node_pool/present.py": _RENT,
    "plugin_utils/_workflows/services/alert_parts.py": _ALERTS,
    "plugin_utils/_workflows/services/bind.py": _SETUP,
    "plugin_utils/_workflows/services/deploy.py": _HOST,
    "plugin_utils/_workflows/services/deploy_cluster.py": _CLUSTER,
    "plugin_utils/_workflows/services/deploy_host.py": _HOST,
    "plugin_utils/_workflows/services/deploy_volume.py": "tests/e2e/test_juicefs_deployed.py",
    "plugin_utils/_workflows/shared/credentials.py": _TRACKED,
    "plugin_utils/_workflows/shared/deployed.py": _HOST,
    "plugin_utils/_workflows/tailscale.py": _TAILNET,
    "plugin_utils/_workflows/training_job/image_pin.py": _PINNED,
    "plugin_utils/_workflows/training_job/object_stores/store_stream.py": "tests/e2e/test_datasets.py",
    "plugin_utils/_workflows/training_job/job_secrets/values.py": _SOURCES,
}


def find_leaks(value: str, places: Places, sinks: t.Collection[str] = tuple(SINKS)) -> list[str]:
    """Return ``sink: place (encoding)`` for each place that holds the value in any encoding, packed or not."""
    wanted = encodings(value)
    found = []
    for sink in sinks:
        for place, data in SINKS[sink](places):
            for packing, text in (("", data), *_unpack(data)):
                found += [f"{sink}: {place} ({name}{packing})" for name, form in wanted.items() if form in text]
    return found


def _unpack(data: bytes) -> t.Iterator[tuple[str, bytes]]:
    if data[:2] == b"\x1f\x8b":
        with contextlib.suppress(OSError, EOFError, zlib.error):
            yield " in gzip", gzip.decompress(data)


@contextlib.contextmanager
def seed(sink: str, text: bytes, places: Places) -> t.Iterator[None]:
    """Put ``text`` where a sink looks, for as long as the block runs."""
    if sink.startswith(("argv", "environment")):
        code = "import sys; print(flush=True); sys.stdin.read()"
        extra = [os.fsdecode(text)] if sink.startswith("argv") else []
        environment = {"LEAK": os.fsdecode(text)} if sink.startswith("environment") else {}
        argv = [sys.executable, "-I", "-S", "-c", code, *extra]
        with subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            t.cast("t.IO[bytes]", process.stdout).readline()
            yield
            t.cast("t.IO[bytes]", process.stdin).close()
        return
    top = {"output": places.outputs[0].parent, "node files": places.nodes}.get(sink, places.controller)
    if sink in REPORTS:
        assert places.reports is not None
        top = places.reports / REPORTS[sink]
        top.mkdir(parents=True, exist_ok=True)
    place = places.outputs[0] if sink == "output" else top / "seeded-leak"
    before = place.read_bytes() if place.exists() else None
    place.write_bytes(text if text[:2] == b"\x1f\x8b" else (before or b"") + b"x " + text)
    try:
        yield
    finally:
        if before is None:
            place.unlink()
        else:
            place.write_bytes(before)
