# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the checkpoints of a run are, and which of their options need what: rules on a job."""

from __future__ import annotations

import re
import typing as t

from . import job_backends
from .errors import InputError

if t.TYPE_CHECKING:
    from .job import Job
    from .node_report import SeenCheckpoint
# Each rank loads a part of its own: a checkpoint of DeepSpeed's ZeRO is for as many ranks as saved it.
OTHER_RANKS: t.Final = "{name} in {folder} was saved by {saved_by} ranks (ZeRO), and the job has {asked}"
RANKS_FIX: t.Final = "Ask for as many ranks, or convert it (ds_to_universal.py) and set checkpoint.load_universal"


# Within what time a file that one node wrote must be seen by the others. They look after it was written, and a network
# file system asks its server for a name that it does not know; longer would only be needed behind a cache that answers
# for the whole folder, and listing the folder renews that.
VISIBLE_S = 15.0
# Of the names of checkpoints: which rank's part it is, and other numbers, among them the step.
_RANK: t.Final = re.compile(r"(?:rank|proc|process)[-_]?[0-9]+", re.IGNORECASE)
_NUMBER: t.Final = re.compile("[0-9]+")


def checkpoint_folder(job: Job, run_id: str) -> str | None:
    """Return the run's own folder below ``checkpoints.path``, None when the job names no path."""
    return _join(job.checkpoints.path, run_id)


def folder_of_start(job: Job, attempt: int) -> str:
    """Return the part of the run's checkpoint folder that a start uses: with ``resume: never`` an empty one of its own.

    :param attempt: the number of the first attempt of the start.
    """
    return f"attempt-{attempt}" if job.checkpoints.resume == "never" else ""


def folder_on_hosts(job: Job, run_id: str, attempt: int) -> str:
    """Return where hosts keep the checkpoints of a start, relative to the run's own folder where the job names none."""
    part, own = folder_of_start(job, attempt), checkpoint_folder(job, run_id) or "checkpoints"
    return f"{own}/{part}" if part else own


def kept_logs_folder(job: Job, run_id: str) -> str | None:
    """Return where the run's pods keep their logs: beside the checkpoints, None when these are in the pod."""
    kept = job.checkpoints.path if job_backends.checkpoint_mount(job) else None
    return _join(kept, f".muster/{run_id}/logs")


def node_rules(job: Job) -> dict[str, t.Any]:
    """Return what nodes and pods do about checkpoints: ``{format, keep, required, shared, apart, resume}``.

    ``pattern`` is that of printed lines that report a checkpoint, where checkpoints are stored in a bucket. ``ranks``:
    how many ranks the job may have, where a folder of all nodes is looked into and DeepSpeed loads no universal one;
    ``other_ranks`` says that a checkpoint is of another number; its ``name``, ``folder`` and ``saved_by`` come into it.
    ``apart``: whether several nodes have a folder each, and so may have parts of a checkpoint.
    """
    wanted = job.checkpoints
    rules: dict[str, t.Any] = {"format": wanted.format, "keep": wanted.keep, "required": wanted.resume == "required"}
    if wanted.binding and job.metrics.checkpoint_pattern:
        rules["pattern"] = job.metrics.checkpoint_pattern
    if wanted.shared and wanted.resume != "never" and not loads_universal(job):
        rules["ranks"] = sorted(job.world_sizes)
        rules["other_ranks"] = refuse_other_ranks(rules["ranks"])
    shared = must_be_shared(job)
    return {**rules, "shared": shared, "apart": job.nodes > 1 and not shared, "resume": wanted.resume}


def refuse_other_ranks(ranks: t.Iterable[int]) -> str:
    """Return what a pod says of a checkpoint of other numbers of ranks, with what it finds to be filled in."""
    return f"{OTHER_RANKS.replace('{asked}', ' or '.join(map(str, ranks)))}. {RANKS_FIX}"


def loads_universal(job: Job) -> bool:
    """Return whether DeepSpeed loads a checkpoint that any number of ranks has saved."""
    return bool((job.deepspeed_config.get("checkpoint") or {}).get("load_universal"))


def checkpoint_to_find(job: Job, run_id: str) -> dict[str, t.Any] | None:
    """Return the folder and the format in which a host looks for the newest checkpoint, None where none is wanted."""
    if job.checkpoints.resume == "never":
        return None
    return {"folder": checkpoint_folder(job, run_id), "format": job.checkpoints.format, "apart": are_copied(job)}


class LeftCheckpoint(t.NamedTuple):
    """What the nodes of a run have of its checkpoints, beside the step that it reported last.

    :ivar kind: ``reported``: that of the step; ``other``: one of another step; ``unnamed``: one whose name has no step,
        ``partly`` where a node has none; ``none``: no node has one. :ivar place: name and node, or the folder.
    """

    kind: t.Literal["reported", "other", "unnamed", "partly", "none"]
    place: str


def find_left(step: int | None, seen: t.Mapping[str, SeenCheckpoint]) -> LeftCheckpoint | None:
    """Return what is left of a run's checkpoints, None where no node was asked."""
    if not seen:
        return None
    names = {node: item.name for node, item in seen.items() if item.name}
    if not names:
        return LeftCheckpoint("none", next(iter(seen.values())).folder)
    steps = {node: _list_numbers(name) for node, name in names.items()}
    node = max(names, key=lambda node: (step in steps[node], max(steps[node], default=-1)))
    place = f"{names[node]} on {node}"
    if step in steps[node]:
        return LeftCheckpoint("reported", place)
    return LeftCheckpoint("other" if steps[node] else "unnamed" if len(names) == len(seen) else "partly", place)


def find_whole(step: int, names: t.Iterable[str], newer: t.Iterable[str]) -> int | None:
    """Return the step of the newest whole checkpoint where the one of ``step`` lacks parts; None where it is whole.

    :param names: of the newest whole one on all nodes. :param newer: what there is of later ones.
    """
    whole, parts = ({number for name in some for number in _list_numbers(name)} for some in (names, newer))
    return None if step in whole or step not in parts else max(whole - parts, default=None)


def _list_numbers(name: str) -> list[int]:
    return [int(found) for found in _NUMBER.findall(_RANK.sub("", name))]


def must_be_shared(job: Job) -> bool:
    """Return whether one folder for the checkpoints must be seen by all nodes."""
    checkpoints = job.checkpoints
    if job.nodes < 2 or checkpoints.path is None or not checkpoints.shared:
        return False
    # What lies in the pod is lost with it; a warning says so.
    return not job.on_kubernetes or job_backends.checkpoint_mount(job) is not None


def are_copied(job: Job) -> bool:
    """Return whether hosts copy to each other, before ranks begin, what one of them alone has saved."""
    return job.nodes > 1 and not job.on_kubernetes and not must_be_shared(job)


def describe_folder(job: Job) -> str:
    """Return where checkpoints go in a gang whose nodes do not share them, empty where nothing is to be said."""
    if job.nodes < 2:
        return ""
    copied = "what one node alone saved is copied to the others before a restart"
    if are_copied(job) and job.checkpoints.copy_every_s and not job.checkpoints.binding:
        copied += f", and to the next node every {job.checkpoints.copy_every_s} s"
    if job.checkpoints.path is None:
        return "" if job.on_kubernetes else f"checkpoints in each node's own run folder; {copied}"
    if not job.checkpoints.shared:
        kept = f"each node keeps its part of the checkpoints in {job.checkpoints.path} (checkpoints.shared: false)"
        return f"{kept}; {copied}" if are_copied(job) else kept
    if must_be_shared(job) and job.launcher == "ray":
        return f"{job.checkpoints.path} is not tested to be one folder for all nodes with launcher ray"
    return ""


def describe_unlimited(job: Job) -> str:
    """Return that ``keep`` cannot remove checkpoints of which a printed line says the step alone, empty otherwise."""
    keep, form = job.checkpoints.keep, job.checkpoints.format
    if keep is None or job.metrics.checkpoint_pattern is None or form not in ("auto", "files"):
        return ""
    which = "no" if form == "files" else "only checkpoints of a known layout (checkpoints.format), no other"
    return (
        f"checkpoints.keep: {keep} removes {which} file that metrics.checkpoint_pattern tells of: it does not say the "
        'path. Have the program append {"checkpoint_step": N, "path": "..."} to MUSTER_METRICS_FILE, or remove old '
        "ones itself (MUSTER_CHECKPOINT_KEEP)"
    )


def describe_vanishing(job: Job, rented: t.Mapping[str, float | None]) -> str:
    """Return that the checkpoints of a job go with its pods or rented machines, empty where they do not.

    :param rented: dollars an hour of each rented machine that it may run on, None where that is not known.
    """
    if job.checkpoints.binding or must_be_shared(job):
        return ""
    mount = job_backends.checkpoint_mount(job)
    if job.on_kubernetes and mount is None:
        price = f": training for {_describe_price(job, rented)} is lost with them" if rented else ""
        return (
            f"{job.checkpoints.path or 'the checkpoint folder'} is not on a mount: checkpoints do not survive a lost "
            f"or replaced pod, and go with the pods after the run{price}. Name a claim in mounts and a path below it "
            "in checkpoints.path, or an object store in checkpoints.binding"
        )
    if not rented or any(item.pvc or item.binding for item in job.mounts if item.name == mount):
        return ""
    names = sorted(rented)
    where = f"{names[0]} and {len(names) - 1} more" if len(names) > 2 else " and ".join(names)
    when = "are deleted" if job.release == "never" else f"are deleted after the run (release: {job.release})"
    folder = job.checkpoints.path or "the folder of the run"
    return (
        f"checkpoints are in {folder} on {where}, rented machines, and go with them when they {when}: training "
        f"for {_describe_price(job, rented)} is lost with them. Set checkpoints.binding, or fetch them before "
        "(playbook fetch)"
    )


def _describe_price(job: Job, rented: t.Mapping[str, float | None]) -> str:
    """Return what a run's rented machines cost; of more than it takes, the dearest ones."""
    known = sorted((price for price in rented.values() if price is not None), reverse=True)
    if not known:
        return "a price that is not known"
    total = sum(known[: job.nodes] if job.on_kubernetes else known)
    about = "at least " if len(known) < len(rented) else "up to " if len(rented) > job.nodes else ""
    most = f", up to ${total * job.timeout_s / 3600:.2f} until timeout_s" if job.timeout_s else ""
    return f"{about}${total:.2f} an hour{most}"


def check_checkpoints(job: Job) -> None:
    """Refuse checkpoint options that cannot take effect.

    :raises InputError: naming the option.
    """
    in_pod = job.on_kubernetes and job_backends.checkpoint_mount(job) is None
    if in_pod and job.checkpoints.resume == "required" and not job.checkpoints.binding:
        raise InputError(
            "job.checkpoints.resume",
            "required needs checkpoints on a mount or in a bucket: a new pod has none",
            "Name a claim in mounts and a path below it in checkpoints.path, or an object store in checkpoints.binding",
        )


def _join(folder: str | None, path: str) -> str | None:
    return f"{folder.rstrip('/')}/{path}" if folder else None
