# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preflight of a pod before its program starts: its place in the gang, its files, disk, secrets and devices."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import re
import resource
import socket
import struct
import threading
import typing as t

from . import checkpoint_layouts, checkpoints, mount_marker
from .files import read_text

RUN_DIR = "/muster/run"
EXIT_REFUSED = 78
EXIT_NO_ROOM = 74
_SIOCGIFADDR = 0x8915
_DISK_S = 60.0


class PodRefusal(Exception):
    """The pod must not start its program. ``code`` is the container's exit code."""

    def __init__(self, problem: str, code: int = EXIT_REFUSED) -> None:
        super().__init__(problem)
        self.code = code


@dataclasses.dataclass(frozen=True)
class PodIdentity:
    """Which node of which attempt a pod is; ``uid`` tells it from a later one of its name."""

    rank: int
    node: str
    pod: str
    attempt: int
    address: str
    uid: str = ""

    def about(self) -> dict[str, t.Any]:
        """Return the fields of each marked line that name its origin."""
        return {"pod": self.pod, "node": self.node, "rank": self.rank, "attempt": self.attempt}


def identify_pod(spec: t.Mapping[str, t.Any], environ: t.Mapping[str, str]) -> PodIdentity:
    """Return this pod's identity from the variables that Kubernetes and the engine set.

    :raises PodRefusal: when no variable holds the index of this node.
    """
    host = environ.get("MUSTER_POD") or socket.gethostname()
    numbers = [environ.get(name, "") for name in ("MUSTER_NODE_RANK", "JOB_COMPLETION_INDEX", "VC_TASK_INDEX")]
    from_name = re.search(r"-([0-9]+)\Z", host) if spec.get("rank_from_name") else None
    number = next((item for item in numbers if item.isdecimal()), from_name.group(1) if from_name else None)
    if spec.get("role") == "launcher":
        # The launcher's pod is not a node of the gang.
        number = "-1"
    if number is None:
        raise PodRefusal("the pod has no index: neither JOB_COMPLETION_INDEX nor its equivalent is set")
    restarts = environ.get("MUSTER_RESTARTS", "")
    attempt = int(spec["attempt"]) + (int(restarts) if restarts.isdecimal() else 0)
    node = environ.get("MUSTER_NODE") or socket.gethostname()
    address = environ.get("MUSTER_POD_IP", "").split(",")[0] or "127.0.0.1"
    return PodIdentity(int(number), node, host, attempt, address, environ.get("MUSTER_POD_UID", ""))


def unpack_code(archive: pathlib.Path, target: pathlib.Path) -> None:
    """Unpack the job's code below ``target``: plain files only, none outside it.

    :raises PodRefusal: when the archive is damaged, hostile, or the disk is full.
    """
    # Here: hosts use this file too, for the interface that leads to a peer.
    import tarfile

    try:
        with tarfile.open(archive, "r:gz") as tar:
            for item in tar:
                where = pathlib.PurePosixPath(item.name)
                if not item.isfile() or where.is_absolute() or ".." in where.parts:
                    raise PodRefusal(
                        f"the code archive holds {ascii(item.name)}, which is not a plain file inside the archive"
                    )
                content = tar.extractfile(item)
                place = target / where
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content.read() if content else b"")
                place.chmod(0o755 if item.mode & 0o100 else 0o644)
    except (tarfile.TarError, EOFError) as exc:
        raise PodRefusal(f"the code archive {archive} is damaged ({exc})") from exc
    except OSError as exc:
        raise PodRefusal(f"the code cannot be unpacked: {exc.strerror or exc}", EXIT_NO_ROOM) from exc


def write_files(files: t.Mapping[str, str], folder: pathlib.Path, mode: int = 0o600) -> None:
    """Write the launcher's files into the run's folder."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(mode)


def write_secret_env(env: t.Mapping[str, str], folder: pathlib.Path) -> None:
    """Write the secrets for ranks that another program starts (an sshd does not forward its environment)."""
    path = folder / "secrets.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(env), encoding="utf-8")


def read_secrets(mounted: t.Sequence[t.Mapping[str, str]]) -> tuple[dict[str, str], list[str]]:
    """Return the variables of the secrets, and the values to hide in all output.

    :param mounted: ``{name, file, deliver}``: ``env`` sets the variable, ``file`` sets ``NAME_FILE`` to the file.
    :raises PodRefusal: when one is missing.
    """
    env, values = {}, []
    for item in mounted:
        try:
            text = pathlib.Path(item["file"]).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError as exc:
            raise PodRefusal(f"the secret {item['name']} is not in the pod: {exc.strerror}") from exc
        values.append(text)
        if item["deliver"] == "env":
            env[item["name"]] = text
        else:
            env[f"{item['name']}_FILE"] = item["file"]
    return env, values


def check_disk(folder: pathlib.Path, free_bytes: int, within_s: float = _DISK_S) -> None:
    """Create ``folder`` and test that it can be written and has room.

    :raises PodRefusal: naming the problem; a file system that does not answer is one.
    """
    results: list[PodRefusal | None] = []
    worker = threading.Thread(target=lambda: results.append(_disk_problem(folder, free_bytes)), daemon=True)
    worker.start()
    worker.join(within_s)
    if not results:
        raise PodRefusal(f"the file system of {folder} did not answer for {within_s:.0f} s", EXIT_NO_ROOM)
    if results[0] is not None:
        raise results[0]


def require_mounts(mounts: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Refuse to start without a shared file system of the job: its path may be on the node's own disk.

    :raises PodRefusal: naming the path.
    """
    for mount in mounts:
        problem = mount_marker.find_problem(mount["path"], mount["marker"])
        if problem:
            raise PodRefusal(problem)


def require_checkpoint(folder: pathlib.Path, rules: t.Mapping[str, t.Any]) -> None:
    """Refuse to start where the job requires a checkpoint and there is none, or so many ranks cannot load it.

    :raises PodRefusal: naming the folder.
    """
    if not rules.get("required") and not rules.get("ranks"):
        return
    found = checkpoints.list_complete(folder, rules["format"])
    saved_by = checkpoint_layouts.count_ranks(folder / found[0].name) if found else None
    if saved_by and rules.get("ranks") and saved_by not in rules["ranks"]:
        raise PodRefusal(rules["other_ranks"].format(name=found[0].name, folder=folder, saved_by=saved_by))
    if rules.get("required") and not found:
        half = checkpoints.describe_half_saved(folder, rules["format"])
        raise PodRefusal(
            f"checkpoints.resume is required, and {folder} has no complete checkpoint{f': {half}' if half else ''}"
        )


def _disk_problem(folder: pathlib.Path, free_bytes: int) -> PodRefusal | None:
    probe = folder / f".muster-{os.getpid()}-{socket.gethostname()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(f".muster-[0-9]*-{socket.gethostname()}"):
            # Of a pod of this name that was killed meanwhile.
            with contextlib.suppress(OSError):
                left.unlink()
        try:
            probe.write_bytes(b"muster")
        finally:
            # On a full disk the file is there and empty.
            with contextlib.suppress(OSError):
                probe.unlink()
        stat = os.statvfs(folder)
    except OSError as exc:
        text = f"{folder} cannot be written: {exc.strerror} (user {os.getuid()})"
        return PodRefusal(text, EXIT_NO_ROOM if exc.errno in (28, 122) else EXIT_REFUSED)
    free = stat.f_bavail * stat.f_frsize
    if free < free_bytes:
        return PodRefusal(f"{folder} has {free >> 20} MiB free, {free_bytes >> 20} MiB are needed", EXIT_NO_ROOM)
    return None


def list_devices() -> dict[str, t.Any]:
    """Return the pod's devices and limits: GPUs, RDMA devices, locked memory, shared memory, CPUs.

    GPUs are counted by device files; ``gpus`` is None where the driver does not have one file for each GPU. The
    version of the driver and the model of a GPU are the node's; None without a driver.
    """
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    shm = os.statvfs("/dev/shm") if pathlib.Path("/dev/shm").is_dir() else None
    names = os.listdir("/dev")
    verbs = pathlib.Path("/dev/infiniband")
    return {
        "gpus": count_gpus(names),
        "rdma": sorted(name for name in os.listdir(verbs) if name.startswith("uverbs")) if verbs.is_dir() else [],
        "memlock_bytes": None if soft == resource.RLIM_INFINITY else soft,
        "shm_bytes": shm.f_blocks * shm.f_frsize if shm else None,
        "cpus": len(os.sched_getaffinity(0)),
        **read_driver(pathlib.Path("/proc/driver/nvidia")),
    }


def read_driver(place: pathlib.Path) -> dict[str, str | None]:
    """Return ``{driver, gpu_model}`` as NVIDIA's driver has them below ``/proc``."""
    version = re.search(r"\s([0-9]+(?:\.[0-9]+){1,2})\s", read_text(place / "version"))
    told = "".join(read_text(path) for path in sorted(place.glob("gpus/*/information"))[:1])
    model = re.search(r"^Model:\s*(\S.*?)\s*$", told, re.MULTILINE)
    return {"driver": version[1] if version else None, "gpu_model": model[1] if model else None}


def count_gpus(names: t.Iterable[str]) -> int | None:
    """Return the number of NVIDIA GPUs by the files of /dev, None where these have other names: on WSL 2 and Tegra."""
    names = list(names)
    found = sum(1 for name in names if re.fullmatch(r"nvidia[0-9]+", name))
    return None if not found and any(re.fullmatch(r"dxg|nvhost-.+|nvgpu", name) for name in names) else found


def check_devices(spec: t.Mapping[str, t.Any], found: t.Mapping[str, t.Any]) -> list[str]:
    """Return warnings about devices.

    :raises PodRefusal: when the job needs RDMA and the pod has none, or when it has fewer GPUs than the job needs.
    """
    warnings = []
    if spec.get("rdma") and not found["rdma"]:
        raise PodRefusal("the job needs RDMA, but /dev/infiniband has no device in this pod")
    if spec.get("rdma") and found["memlock_bytes"] is not None:
        warnings.append(
            f"only {found['memlock_bytes'] >> 20} MiB of memory can be locked: RDMA needs LimitMEMLOCK=infinity"
        )
    if spec.get("gpus") and found["gpus"] is None:
        warnings.append(f"whether the pod has the {spec['gpus']} GPUs of the job cannot be told from /dev")
    elif spec.get("gpus") and found["gpus"] < spec["gpus"]:
        # Without the runtime of its vendor a node assigns GPUs that no pod can use.
        hint = "" if found["gpus"] else "; make nvidia the default container runtime of its node"
        raise PodRefusal(f"the pod has {found['gpus']} GPUs, the job needs {spec['gpus']}{hint}")
    return warnings


def require_topology_file(path: str) -> None:
    """Require the file of ``NCCL_TOPO_FILE``, which NCCL leaves out in silence where it does not exist.

    :raises PodRefusal: when it does not exist.
    """
    if path and not pathlib.Path(path).is_file():
        raise PodRefusal(f"NCCL_TOPO_FILE names {path}, which this pod does not have: mount it (job.mounts)")


def find_interface(peer: str) -> str | None:
    """Return the network interface that leads to ``peer`` (an address), or None when unknown."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # No packet is sent: the kernel only chooses the route.
            probe.connect((peer, 9))
            own = str(probe.getsockname()[0])
    except OSError:
        return None
    return next((name for name, address in _list_addresses() if address == own), None)


def _list_addresses() -> t.Iterator[tuple[str, str]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _index, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            yield name, socket.inet_ntoa(answer[20:24])
    try:
        text = pathlib.Path("/proc/net/if_inet6").read_text()
    except OSError:
        return
    for line in text.splitlines():
        raw, *_unused, name = line.split()
        yield name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(raw))
