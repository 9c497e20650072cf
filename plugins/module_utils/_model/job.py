# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job: what to run, never where. Parsed from ``muster_job``; every rule on it is here.

Options that the job's backend does not support, or not yet, are refused by name in ``job_backends.py``: no option is
ever ignored.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from . import (
    job_backends,
    job_checkpoints,
    job_datasets,
    job_templates,
    job_tracking,
    launchers,
    on_hang,
    parallel_sizes,
    stop_on,
)
from . import validators as f
from .binding import SECRET_SERVICES
from .errors import InputError
from .launchers import LAUNCHERS, TORCHRUN_FAMILY
from .metric_presets import PRESETS, guessed_forms, preset_patterns
from .rdma_resources import parse_request

Engine = t.Literal["jobset", "indexed_job", "trainjob", "mpijob", "rayjob", "volcano"]
ENGINES: tuple[str, ...] = t.get_args(Engine)
NAME_LIMIT = 40
# The names after the first two are those of layouts (``_node/checkpoint_table.py``, which this may not import).
CHECKPOINT_FORMATS: tuple[str, ...] = (
    *("auto", "files"),
    *("orbax", "deepspeed", "megatron", "mmengine", "lightning", "dcp", "accelerate", "transformers", "torchtune"),
    *("fairseq", "verl", "tensorflow", "safetensors"),
)
# What stands in the arguments of a program for paths that only its node knows.
PLACEHOLDERS = ("run_dir", "checkpoint_dir", "deepspeed_config")
_IN_BRACES = re.compile(r"\{( *[A-Za-z][A-Za-z_-]* *)\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """Which backend and which nodes. ``allow_slow_network`` permits a synchronous job on lane D.

    ``start_wait_s``: so long may what can pass by itself, such as a registry that is away, keep pods from starting.
    ``share_machines``: pods of the gang may be on one machine; otherwise each is on its own.
    """

    backend: str = f.field(f.choice("auto", "hosts", "kubernetes"), "auto")
    island: str | None = f.field(f.text, None)
    network_mode: str = f.field(f.choice("auto", "host", "pod"), "auto")
    required_network_types: tuple[str, ...] = f.field(f.list_of(f.choice("mesh", "lan", "public")), ())
    allow_slow_network: bool = f.field(f.boolean, False)
    engine: str | None = f.field(f.choice(*ENGINES), None)
    cluster: str | None = f.field(f.text, None)
    namespace: str | None = f.field(f.name(63), None)
    queue: str | None = f.field(f.name(63), None)
    priority: str | None = f.field(f.text, None)
    start_wait_s: int = f.field(f.integer(10, 86400), 180)
    share_machines: bool = f.field(f.boolean, False)


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """Where the program comes from.

    ``ref`` is a folder on the controller (path), ``URL@REVISION`` (git) or a folder inside the image (image).
    """

    ref: str = f.field(f.text)
    source: str = f.field(f.choice("path", "git", "image", "binding"), "path", key="from")
    sha256: str | None = f.field(f.text, None)
    workdir: str = f.field(f.text, ".")


@dataclasses.dataclass(frozen=True, slots=True)
class GpuRequest:
    """What a GPU must be; null means any."""

    model: str | None = f.field(f.text, None)
    memory_gib_min: int | None = f.field(f.integer(1), None)
    arch: str | None = f.field(f.text, None)


@dataclasses.dataclass(frozen=True, slots=True)
class Resources:
    """Limits per node; memory and shm in bytes after parsing."""

    cpu: float | None = f.field(f.cores, None)
    memory: int | None = f.field(f.quantity, None)
    shm: int | None = f.field(f.quantity, None)
    rdma: bool | str | None = f.field(parse_request, None)


@dataclasses.dataclass(frozen=True, slots=True)
class SecretRef:
    """A secret by reference. For ``env``, ``key`` is the variable on the controller; for ``file``, ``path``.

    For services, ``path`` is the place there, ``key`` the key in it, and ``binding`` the service that is asked. For
    ``kubernetes`` the path is the name of a Secret, on Kubernetes one in the job's namespace. ``store`` is the store by
    which External Secrets reads it: ``NAME`` in that namespace, or ``cluster/NAME``.
    """

    name: str = f.field(f.text)
    source: str = f.field(f.choice("env", "file", *SECRET_SERVICES, "external_secrets"), key="from")
    path: str | None = f.field(f.text, None)
    key: str | None = f.field(f.text, None)
    deliver: str = f.field(f.choice("env", "file", "registry"), "env", key="as")
    binding: str | None = f.field(f.text, None)
    store: str | None = f.field(f.text, None)


@dataclasses.dataclass(frozen=True, slots=True)
class Dataset:
    """Data for the program.

    ``stage``: the file or folder ``path`` of the controller, or the objects below ``prefix`` of a binding's bucket,
    come to the nodes. ``stream``: the program reads the bucket itself. ``mount``: the nodes have it at ``path``.
    ``cache``: the folder of a mount in which the pods of a node stage it once for all of them.
    """

    name: str = f.field(f.name(NAME_LIMIT))
    path: str | None = f.field(f.text, None)
    mode: str = f.field(f.choice("stage", "mount", "stream"), "stage")
    read_only: bool = f.field(f.boolean, True)
    binding: str | None = f.field(f.text, None)
    prefix: str | None = f.field(f.text, None)
    cache: str | None = f.field(f.text, None)

    @property
    def is_local(self) -> bool:
        """Return whether it is copied from the controller."""
        return self.mode == "stage" and self.binding is None


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """A volume at ``path``: a claim (``pvc``), a folder of the node (``host_path``) or a service's (``binding``).

    Of a shared file system, ``host_path`` is where nodes have it, and ``marker`` the one that it was checked with.
    """

    name: str = f.field(f.name(NAME_LIMIT))
    path: str = f.field(f.text)
    host_path: str | None = f.field(f.text, None)
    read_only: bool = f.field(f.boolean, False)
    binding: str | None = f.field(f.text, None)
    pvc: str | None = f.field(f.text, None)
    marker: str | None = f.field(f.text, None)


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoints:
    """Where checkpoints go (``path`` on the nodes; default inside the run's folder) and how long saving may take.

    ``shared``: all nodes must see one folder. ``keep``: complete checkpoints that are kept, None for all of them.
    ``copy_every_s``: how often a node looks for what another one alone has saved, 0 for only before a restart.
    ``resume_args``: what the program gets besides its arguments where there is a checkpoint to resume from.
    """

    path: str | None = f.field(f.text, None)
    format: str = f.field(f.choice(*CHECKPOINT_FORMATS), "auto")
    resume: str = f.field(f.choice("auto", "never", "required"), "auto")
    shared: bool = f.field(f.boolean, True)
    keep: int | None = f.field(f.integer(1), None)
    grace_s: int = f.field(f.integer(1, 3600), 30)
    interval_steps: int | None = f.field(f.integer(1), None)
    binding: str | None = f.field(f.text, None)
    copy_every_s: int = f.field(f.integer(0, 86400), 30)
    resume_args: tuple[str, ...] = f.field(f.list_of(f.text), ())


@dataclasses.dataclass(frozen=True, slots=True)
class Elastic:
    """A world that may shrink to ``min`` nodes and grow to ``max`` (the job's ``nodes``)."""

    min: int | None = f.field(f.integer(1, 100_000), None)
    max: int | None = f.field(f.integer(1, 100_000), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Restart:
    """Separate budgets for a program that crashes and for nodes that go away.

    ``on_hang``: what follows once a gang has hung for ``hang_s`` seconds.
    """

    REMOVED: t.ClassVar[t.Mapping[str, str]] = {"warm": "Leave it out: each rank imports torch by itself"}

    max_crashes: int = f.field(f.integer(0, 1000), 3)
    max_lost_nodes: int = f.field(f.integer(0, 1000), 3)
    on_lost_node: str = f.field(f.choice("wait", "fail", "replace", "shrink"), "wait")
    wait_s: int = f.field(f.integer(1, 86400), 600)
    fatal_exit_codes: tuple[int, ...] = f.field(f.list_of(f.integer(1, 255)), ())
    on_hang: str = f.field(f.choice("report", "restart", "stop"), "report")
    hang_s: int = f.field(f.integer(10, 86400), 60)


@dataclasses.dataclass(frozen=True, slots=True)
class Metrics:
    """Regular expressions for lines that the program prints: those of a preset, and own ones instead.

    ``step_pattern`` has a group ``step`` and may have groups such as ``loss`` and ``tokens_per_s`` too; those of
    ``figures_pattern`` are of the last step that was printed before.
    """

    preset: str | None = f.field(f.choice(*PRESETS), None)
    figures_pattern: str | None = f.field(f.figures_pattern, None)
    step_pattern: str | None = f.field(f.step_pattern, None)
    checkpoint_pattern: str | None = f.field(f.step_pattern, None)
    resume_pattern: str | None = f.field(f.step_pattern, None)

    @property
    def patterns(self) -> dict[str, str]:
        """The patterns that are set, by the key of the metrics that their step is."""
        given = {
            "step": self.step_pattern,
            "figures": self.figures_pattern,
            "checkpoint_step": self.checkpoint_pattern,
            "resumed_from_step": self.resume_pattern,
        }
        own = {key: pattern for key, pattern in given.items() if pattern is not None}
        preset = preset_patterns(self.preset)
        if "figures" in own:
            preset.pop("figures_next", None)
        return {**preset, **own}

    @property
    def forms(self) -> dict[str, dict[str, str]]:
        """The patterns by the preset that they are of: those that are set, without a name, else all with a sign."""
        return {"": self.patterns} if self.patterns else guessed_forms()


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """The user's own numbers, only for the advice shown before launch."""

    per_rank: int | None = f.field(f.integer(1), None)
    accumulation: int = f.field(f.integer(1), 1)
    base_learning_rate: float | None = f.field(f.decimal(0), None)
    base_batch: int | None = f.field(f.integer(1), None)
    parameters: int | None = f.field(f.integer(1), None)
    bytes_per_gradient: int = f.field(f.integer(1, 8), 4)


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A training job. Units are in the names; unknown is null."""

    name: str = f.field(f.name(NAME_LIMIT))
    nodes: int = f.field(f.integer(1, 100_000), 1)
    template: str | None = f.field(f.text, None)
    placement: Placement = f.field(f.section(Placement), Placement())
    launcher: str = f.field(launchers.parse, "torchrun")
    image: str | None = f.field(f.text, None)
    python: str | None = f.field(f.text, None)
    code: Code | None = f.field(f.section(Code), None)
    script: str | None = f.field(f.text, None)
    module: str | None = f.field(f.text, None)
    command: tuple[str, ...] = f.field(f.list_of(f.argument), ())
    args: tuple[str, ...] = f.field(f.list_of(f.argument), ())
    env: dict[str, str] = f.field(f.environment, {})
    gpus_per_node: int = f.field(f.integer(0, 64), 0)
    processes_per_node: int | None = f.field(f.integer(1, 4096), None)
    groups: tuple[dict[str, t.Any], ...] = f.field(f.list_of(f.dictionary), ())
    gpu: GpuRequest = f.field(f.section(GpuRequest), GpuRequest())
    resources: Resources = f.field(f.section(Resources), Resources())
    secret_refs: tuple[SecretRef, ...] = f.field(f.list_of(f.section(SecretRef)), ())
    datasets: tuple[Dataset, ...] = f.field(f.list_of(f.section(Dataset)), ())
    mounts: tuple[Mount, ...] = f.field(f.list_of(f.section(Mount)), ())
    checkpoints: Checkpoints = f.field(f.section(Checkpoints), Checkpoints())
    deepspeed_config: dict[str, t.Any] = f.field(f.dictionary, {})
    parallel: parallel_sizes.Parallel = f.field(f.section(parallel_sizes.Parallel), parallel_sizes.Parallel())
    requires: dict[str, str] = f.field(f.packages, {})
    requirements: tuple[str, ...] = f.field(f.list_of(f.text), ())
    restart: Restart = f.field(f.section(Restart), Restart())
    elastic: Elastic = f.field(f.section(Elastic), Elastic())
    stop_on: stop_on.StopOn = f.field(f.section(stop_on.StopOn), stop_on.StopOn())
    timeout_s: int | None = f.field(f.integer(1), None)
    ttl_after_finished_s: int | None = f.field(f.integer(0), None)
    release: str = f.field(f.choice("never", "success", "always"), "never")
    max_cost_usd: float | None = f.field(f.decimal(0), None)
    tracking: job_tracking.Tracking | None = f.field(job_tracking.parse, None)
    monitoring: str | None = f.field(f.name(NAME_LIMIT), None)
    metrics: Metrics = f.field(f.section(Metrics), Metrics())
    batch: Batch = f.field(f.section(Batch), Batch())

    @property
    def nproc(self) -> int:
        """Processes per node: as set, else one per GPU, else one. A command is one process that sees all GPUs."""
        if self.launcher == "command":
            return 1
        return self.processes_per_node or self.gpus_per_node or 1

    @property
    def lost_budget(self) -> int:
        """How many lost nodes the run survives: none with on_lost_node: fail, or for a command on hosts."""
        restarted = self.on_kubernetes or self.launcher != "command"
        return self.restart.max_lost_nodes if restarted and self.restart.on_lost_node != "fail" else 0

    @property
    def on_kubernetes(self) -> bool:
        """Whether the job runs in pods."""
        return self.placement.backend == "kubernetes"

    @property
    def engine(self) -> str:
        """The engine that runs the job on Kubernetes: as set, else the launcher's own."""
        return self.placement.engine or LAUNCHERS[self.launcher].engines[0]

    @property
    def world_size(self) -> int:
        """Number of ranks over all nodes."""
        return self.nodes * self.nproc

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """The world sizes that the job may have: several for an elastic one."""
        return tuple(nodes * self.nproc for nodes in range(self.elastic.min or self.nodes, self.nodes + 1))


def parse_job(
    value: t.Any,
    presets: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
    choose_backend: t.Callable[[bool], str] = lambda _has_image: "hosts",
) -> Job:
    """Return the job that ``value`` describes, with its template resolved.

    :param value: mapping as written by the user (``muster_job``).
    :param presets: template name -> partial job; the job's own keys win, mappings are merged key by key.
    :param choose_backend: what ``placement.backend: auto`` stands for, by whether the job names an image.
    :raises InputError: naming the option, the problem and the nearest valid key.
    """
    options = job_templates.apply_template(f.dictionary(value, "job"), presets or {})
    job = f.section(Job)(options, "job")
    if job.placement.backend == "auto":
        placement = dataclasses.replace(job.placement, backend=choose_backend(job.image is not None))
        job = dataclasses.replace(job, placement=placement)
    _check_job(job)
    return job


def to_yaml_names(job: Job) -> dict[str, t.Any]:
    """Return the job as a mapping with the keys that users write, for the run record."""
    return t.cast("dict[str, t.Any]", f.plain_value(job))


def drop_removed(recorded: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return a recorded job without the options that earlier versions had."""
    restart = recorded.get("restart")
    if not isinstance(restart, t.Mapping):
        return dict(recorded)
    return {**recorded, "restart": {key: value for key, value in restart.items() if key not in Restart.REMOVED}}


# Option -> its default before and now: a run that was recorded with the one is of the same job as one with the other.
_CHANGED_DEFAULTS: t.Final[t.Mapping[str, tuple[object, object]]] = {"checkpoints.format": ("files", "auto")}


def is_changed_default(option: str, recorded: object, requested: object) -> bool:
    """Return whether an option differs only because its default was another one when a run was recorded.

    :param option: its path without ``job``, such as ``checkpoints.format``.
    """
    return _CHANGED_DEFAULTS.get(option) == (recorded, requested)


def _check_job(job: Job) -> None:
    job_backends.check_backend(job)
    job_checkpoints.check_checkpoints(job)
    stop_on.check_stop_on(job)
    on_hang.check_on_hang(job)
    if job.groups:
        raise InputError(
            "job.groups",
            "unequal groups cannot share one torchrun world",
            "Use one process per node with gpus_per_node: 1, or two jobs",
        )
    _check_program(job)
    _check_numbers(job)
    _check_secret_names(job)
    job_datasets.check_datasets(job)
    _check_variables(job)
    job_tracking.check_variables(job)
    job_tracking.check_model(job)


def _check_program(job: Job) -> None:
    programs = [key for key in ("script", "module", "command") if getattr(job, key)]
    if len(programs) != 1:
        problem = (
            "one of script, module and command is required"
            if not programs
            else f"{' and '.join(programs)} exclude each other"
        )
        raise InputError("job.script", problem)
    if job.launcher == "command" and not job.command:
        raise InputError(
            "job.command", "the launcher 'command' needs the argument list to run", "Write it as a YAML list"
        )
    if job.launcher in TORCHRUN_FAMILY and job.command:
        raise InputError(
            "job.command", f"the launcher '{job.launcher}' runs a script or a module", "Use launcher: command"
        )
    if job.script and not job.script.startswith("/") and job.code is None:
        raise InputError(
            "job.code",
            "is required for a relative script",
            "Name the folder that holds it: code: {from: path, ref: DIR}",
        )
    _check_placeholders(job)
    if job.checkpoints.resume_args and job.launcher == "ray":
        raise InputError(
            "job.checkpoints.resume_args",
            "is not possible with launcher 'ray', whose workers are functions of the program",
            "Look in MUSTER_CHECKPOINT_DIR in the program",
        )
    if job.launcher in TORCHRUN_FAMILY:
        parallel_sizes.check(job.args, job.world_sizes)
        parallel_sizes.check_batch(job.deepspeed_config, job.args, job.world_sizes)
    parallel_sizes.check_parallel(job)
    if job.deepspeed_config and job.launcher not in ("deepspeed", "accelerate"):
        raise InputError(
            "job.deepspeed_config", f"has no effect with launcher '{job.launcher}'", "Use launcher: deepspeed"
        )
    if job.deepspeed_config and job.launcher == "accelerate" and not job.gpus_per_node:
        raise InputError(
            "job.deepspeed_config",
            "has no effect with launcher 'accelerate' without GPUs: Accelerate uses DeepSpeed on GPUs only",
            "Set gpus_per_node, or use launcher: deepspeed",
        )


def _check_placeholders(job: Job) -> None:
    """Refuse a misspelt placeholder: the program would get it as it is, and save in a folder of that name."""
    for option, items in (("job.command", job.command), ("job.args", job.args)):
        for index, word in ((index, word) for index, item in enumerate(items) for word in _IN_BRACES.findall(item)):
            near = f.find_nearest(word.strip().replace("-", "_"), PLACEHOLDERS, cutoff=0.85)
            path = f"{option}[{index}]"
            if near and word != near:
                raise InputError(path, f"{{{word}}} is not a placeholder", f"Did you mean {{{near}}}?")
            if word == "checkpoint_dir" and job.launcher == "ray":
                fix = "Read the environment variable MUSTER_CHECKPOINT_DIR in the program"
                raise InputError(path, "{checkpoint_dir} is not filled in with launcher 'ray'", fix)
            if word == "deepspeed_config" and not job.deepspeed_config:
                raise InputError(path, "{deepspeed_config} needs job.deepspeed_config", "Set it, or name a file")
    for name, value in job.env.items():
        if found := next((word for word in PLACEHOLDERS if f"{{{word}}}" in value), None):
            fix = "Use it in job.args, or read MUSTER_CHECKPOINT_DIR or MUSTER_DEEPSPEED_CONFIG in the program"
            raise InputError(f"job.env.{name}", f"{{{found}}} is filled in arguments only", fix)


def _check_numbers(job: Job) -> None:
    if job.gpus_per_node and (job.processes_per_node or 1) > job.gpus_per_node:
        raise InputError(
            "job.processes_per_node",
            f"{job.processes_per_node} processes cannot share {job.gpus_per_node} GPUs per node",
        )
    if job.launcher == "command" and (job.processes_per_node or 1) > 1:
        raise InputError("job.processes_per_node", "the launcher 'command' starts one process per node")
    if job.launcher == "mpi" and job.restart.max_lost_nodes and job.restart.on_lost_node == "fail":
        raise InputError("job.restart.max_lost_nodes", "must be 0 with on_lost_node: fail")


def _check_secret_names(job: Job) -> None:
    names = [ref.name for ref in job.secret_refs]
    for number, ref in enumerate(job.secret_refs):
        try:
            f.environment({ref.name: ""}, "job.secret_refs.name")
        except InputError:
            # The name is not shown: a user may have written the secret's value in its place.
            fix = "Write the name alone; the value comes from where `from` says"
            raise InputError(
                f"job.secret_refs[{number}].name", "is not a valid environment variable name", fix
            ) from None
        if names.count(ref.name) > 1:
            raise InputError("job.secret_refs", f"'{ref.name}' is listed twice")
        if ref.binding and ref.source in ("env", "file", "kubernetes", "external_secrets"):
            raise InputError(
                f"job.secret_refs.{ref.name}.binding", f"has no effect with from: {ref.source}", "Leave it out"
            )
        if ref.name in job.env:
            raise InputError(f"job.env.{ref.name}", "is also the name of a secret", "Leave one of them out")


def _check_variables(job: Job) -> None:
    for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        if key in job.env:
            raise InputError(f"job.env.{key}", "is set by the launcher and must not be set in env")
