# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The specification of a pod: built by a launcher, completed by an engine's builder, read by ``_node/pod.py``."""

from __future__ import annotations

import dataclasses
import json
import typing as t

# The folders of the collection in a pod.
ROOT = "/muster"
RUN_DIR = f"{ROOT}/run"
PROGRAM_DIR = f"{ROOT}/program"
PROGRAM = f"{PROGRAM_DIR}/muster_node/pod.py"
SPEC_DIR = f"{ROOT}/spec"
CODE_DIR = f"{ROOT}/code"
ARCHIVE = f"{CODE_DIR}/code.tar.gz"
SECRETS_DIR = f"{ROOT}/secrets"
SSH_DIR = f"{ROOT}/ssh"
# The files of ``_node`` that run in a pod.
PROGRAM_FILES = (
    "checkpoint_care.py",
    "checkpoint_choice.py",
    "checkpoint_copies.py",
    "checkpoint_ends.py",
    "checkpoint_found.py",
    "checkpoint_layouts.py",
    "checkpoint_mount.py",
    "checkpoint_reports.py",
    "checkpoint_room.py",
    "checkpoint_steps.py",
    "checkpoint_store.py",
    "checkpoint_sync.py",
    "checkpoint_table.py",
    "checkpoint_trackers.py",
    "checkpoints.py",
    "dataset_digests.py",
    "dataset_parts.py",
    "dataset_stage.py",
    "diag_stacks.py",
    "files.py",
    "host_blobs.py",
    "metric_lines.py",
    "mount_marker.py",
    "pod.py",
    "pod_discovery.py",
    "pod_environment.py",
    "pod_exit.py",
    "pod_fence.py",
    "pod_init.py",
    "pod_log.py",
    "pod_log_reader.py",
    "pod_mpi.py",
    "pod_network_test.py",
    "pod_preflight.py",
    "pod_ray.py",
    "pod_runner.py",
    "pod_shared.py",
    "pod_store.py",
    "processes.py",
    "rank.py",
    "rank_transport.py",
    "rank_watch.py",
    "s3_client.py",
    "shared_folder.py",
    "stack_reader.py",
    "usage.py",
    "versions.py",
)
# The exit code of a pod that would fail in the same way if it were started again.
EXIT_REFUSED = 78


@dataclasses.dataclass(frozen=True)
class PodSpec:
    """One role of a gang.

    Values of ``env`` may hold ``{rank} {attempt} {address} {own} {first}``, which the pod fills in; ``argv`` and
    ``workdir`` may hold ``{program}`` and ``{run_dir}``. ``network`` are classes of nodes ({nodes, variables}): a pod
    takes what the network of its node asks for. ``user_env`` overrides all other variables. ``policy`` tells which
    processes get a signal: ``torchrun`` the launcher, which forwards it; ``whole`` its process group. ``port`` is the
    rendezvous port, the one after it the discovery server's. ``begun`` is when the run was submitted (Unix seconds),
    which tells the attempts of one submission from those of the next. Within ``shared_wait_s`` seconds all pods must
    see what the first one wrote into the checkpoint folder; None where each may have its own. ``checkpoints`` is
    ``{format, keep, required, shared}``. ``store`` is the file with the signed addresses of buckets, ``mounts`` are
    shared file systems ({path, marker}) that are there before the program starts.
    """

    run_id: str
    attempt: int
    nodes: int
    port: int
    argv: tuple[str, ...]
    env: t.Mapping[str, str]
    workdir: str
    checkpoint_dir: str
    policy: str = "whole"
    mode: str = "run"
    role: str = "node"
    user_env: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    network: tuple[t.Mapping[str, t.Any], ...] = ()
    files: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    secrets: tuple[t.Mapping[str, str], ...] = ()
    fatal_exit_codes: tuple[int, ...] = ()
    coordinator: str | None = None
    rank_from_name: bool = False
    archive: str | None = None
    keep_logs: str | None = None
    free_bytes: int = 64 << 20
    grace_s: int = 30
    wait_s: int = 600
    begun: int = 0
    gpus: int = 0
    rdma: bool = False
    elastic: bool = False
    shared_wait_s: float | None = None
    checkpoints: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    store: str | None = None
    mounts: tuple[t.Mapping[str, t.Any], ...] = ()
    ssh: t.Mapping[str, t.Any] | None = None
    ray: t.Mapping[str, t.Any] | None = None

    def to_json(self) -> str:
        """Return the text that the pod reads; the same specification gives the same text."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, indent=1)
