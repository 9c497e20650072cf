# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state home on the controller: run folders, the owner's identity, and the lock of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import platform
import shutil
import time
import typing as t
import uuid

from ....module_utils._model import validators
from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._model.run_record import SCHEMA, RunRecord
from ....module_utils._model.state_store import StateConflictError, StateSetting, StateStore
from ....module_utils._node import files
from .state_lock import StoreLock

# Among an action's options: its kubeconfig is not the user's, but that of a cluster that was brought up from here.
OWN_CLUSTER = "own_cluster"
# Longest run id: a job name of 40 characters, and what is appended to it.
RUN_ID_LIMIT = 63


LOCK_S = 3.0


class StateHome:
    """One cluster's state: a folder, 0700/0600 whatever the umask says; with a store it is a working copy of that."""

    def __init__(self, setting: t.Any, cluster: str) -> None:
        self.setting = StateSetting.from_dict(setting)
        self.root = pathlib.Path(self.setting.path or default_root()).expanduser()
        if self.setting.store != "local" and not self.setting.path:
            # The working copy of a store never mixes with a local state home, nor with that of another store.
            self.root /= f"{self.setting.store}-{_digest(self.setting)}"
        self.folder = self.root / validators.name(63)(cluster, "muster_cluster")

    @functools.cached_property
    def _store(self) -> StateStore | None:
        # Late: most state homes are folders, and need neither botocore nor a cluster's client.
        if self.setting.store == "local":
            return None
        from .state_store import open_store

        return open_store(self.setting, self.folder.name)

    def store(self) -> StateStore | None:
        """Return the store that holds the state for all controllers, None where this folder is the state."""
        return self._store

    def run_folder(self, run_id: str) -> pathlib.Path:
        """Return the folder of a run (it may not exist); a run's name is a label, so that it names no other folder."""
        validators.name(RUN_ID_LIMIT)(run_id, "run_id")
        return self.folder / "runs" / run_id

    def runs(self) -> list[pathlib.Path]:
        """Return the folders of all runs, the newest first."""
        found = (self.folder / "runs").glob("*/run.json")
        return [path.parent for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]

    def owner(self, create: bool) -> dict[str, str]:
        """Return ``{owner, controller}``: a random identity of this state home and a name for people."""
        controller = f"{platform.node()}:{self.root}"
        store = self.store()
        if store is not None:
            return {"owner": ensure_owner(store, create), "controller": controller}
        place = self.root / "owner"
        try:
            identity = place.read_text().strip()
        except OSError:
            identity = ""
        if not identity and create:
            files.private_dir(self.root)
            files.write_atomic(place, uuid.uuid4().hex.encode())
            identity = place.read_text().strip()
        return {"owner": identity, "controller": controller}

    def lock(self, run_id: str, patience_s: float = LOCK_S) -> RunLock:
        """Hold the run's lock until the returned object is closed.

        :raises RefusedError: when another process holds it, on this controller or on one with the same store.
        """
        handle = self._lock_here(run_id, patience_s)
        store = self.store()
        if store is None:
            return RunLock(handle)
        try:
            return RunLock(handle, StoreLock(store, f"run-{run_id}", f"run {run_id}").__enter__())
        except BaseException:
            handle.close()
            raise

    def require_unfollowed(self, run_id: str) -> None:
        """Refuse a run that a process of this controller follows, as :meth:`lock` does, and write nothing.

        :raises RefusedError: naming the process.
        """
        try:
            with open(self.run_folder(run_id) / "lock", "rb", 0) as handle:
                try:
                    fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError as exc:
                    holder = handle.read().decode().strip() or "another process"
                    raise _describe_followed(run_id, holder) from exc
        except OSError:
            # It was never held here.
            return

    def _lock_here(self, run_id: str, patience_s: float) -> t.IO[bytes]:
        folder = files.private_dir(self.run_folder(run_id))
        # Unbuffered: on a full disk it is the write that fails, not closing the file later.
        handle = open(folder / "lock", "r+b", 0, opener=_private)  # noqa: SIM115 (held beyond this function)
        # One that was killed needs a moment to notice (see Follower.run).
        end = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as exc:
                if time.monotonic() < end:
                    time.sleep(0.05)
                    continue
                handle.seek(0)
                holder = handle.read().decode().strip() or "another process"
                handle.close()
                raise _describe_followed(run_id, holder) from exc
        handle.truncate(0)
        try:
            handle.write(f"process {os.getpid()}".encode())
        except OSError:
            handle.close()
            raise
        return handle


def _describe_followed(run_id: str, holder: str) -> RefusedError:
    """Return the refusal of a run that another command follows: two would write one record."""
    return RefusedError(
        f"run {run_id} is being followed by another command on this controller ({holder})",
        "Leave it to that one and look with the status playbook, or end that one and run this again: the run itself "
        "keeps running. A task of your own needs run_once: true",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class RunLock:
    """A held lock of a run: a locked file, and a lock in the store where the state is in one."""

    handle: t.IO[bytes]
    stored: StoreLock | None = None

    def close(self) -> None:
        """Release the lock."""
        if self.stored is not None:
            self.stored.close()
        self.handle.close()

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_unused: object) -> None:
        self.close()


def ensure_owner(store: StateStore, create: bool) -> str:
    """Return the identity of a state home that is in a store, empty where it has none and none is made."""
    for _try in range(2):
        found = store.read("owner")
        if found is not None:
            return found.data.decode().strip()
        if not create:
            return ""
        with contextlib.suppress(StateConflictError):
            store.write("owner", uuid.uuid4().hex.encode(), None)
    raise RefusedError(f"the owner in {store.title} cannot be read", "Run this again")


def _digest(setting: StateSetting) -> str:
    """Return a name for a store: what it is reached by, without how it is verified or paid for."""
    if setting.s3 is not None:
        parts = [setting.s3.endpoint, setting.s3.bucket]
    else:
        chosen = setting.kubernetes
        parts = [str(value) for value in (chosen.kubeconfig, chosen.context, chosen.namespace)] if chosen else []
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def default_root() -> pathlib.Path:
    """Return ``$XDG_STATE_HOME/muster`` or its default below the home directory."""
    base = os.environ.get("XDG_STATE_HOME")
    return (pathlib.Path(base) if base else files.home_dir() / ".local" / "state") / "muster"


def cluster_kubeconfig(home: StateHome) -> pathlib.Path:
    """Return where the kubeconfig of a cluster that was brought up from here is, or would be."""
    return home.folder / "kubeconfig"


def names_cluster(options: t.Mapping[str, t.Any]) -> bool:
    """Return whether the user named a cluster; the kubeconfig of one that was brought up from here comes by itself."""
    return bool(options.get("kubeconfig")) and not options.get(OWN_CLUSTER)


def load_record(folder: pathlib.Path) -> RunRecord | None:
    """Return the record in a run's folder, None when there is none.

    :raises RefusedError: when it is there but not readable as a record: nothing is guessed from a damaged file.
    """
    place = folder / "run.json"
    fix = "Move it away or name another run id (muster_run_id)"
    try:
        value = json.loads(place.read_bytes())
        _require_known_schema(value, place)
        return RunRecord.from_dict(value)
    except FileNotFoundError:
        return None
    except NotADirectoryError as exc:
        raise RefusedError(f"{folder} cannot be a folder", "Set muster_state.path to a folder") from exc
    except InputError as exc:
        raise RefusedError(f"{place} is damaged: {exc.message}", fix) from exc
    except (OSError, ValueError) as exc:
        raise RefusedError(f"{place} is damaged", fix) from exc


def _require_known_schema(value: t.Any, place: pathlib.Path) -> None:
    """Refuse a record of a newer version: what it means by the same words, and by others, is not known here.

    :raises RefusedError: naming both versions of the record.
    """
    schema = value.get("schema") if isinstance(value, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise RefusedError(
            f"{place} was written by a newer version of muster.training (schema {schema}, this one reads {SCHEMA})",
            "Upgrade the collection on this controller, or name another run id (muster_run_id)",
        )


def read_record(folder: pathlib.Path) -> dict[str, t.Any] | None:
    """Return the record in a run's folder as JSON types, None when there is none. Raises as :func:`load_record`."""
    record = load_record(folder)
    return record.to_dict() if record else None


def is_followed(home: StateHome, run_id: str) -> bool:
    """Return whether a process of this controller follows a run."""
    try:
        home.lock(run_id, 0.0).close()
    except RefusedError:
        return True
    return False


def find_run_folder(home: StateHome, run_id: str | None) -> pathlib.Path:
    """Return the folder of a run, of the newest one by default; raise RefusedError where it does not exist."""
    runs = home.runs()
    if run_id is None:
        if not runs:
            raise RefusedError(f"no run exists in {home.folder}", "Start one with the train playbook")
        return runs[0]
    folder = home.run_folder(run_id)
    if not (folder / "run.json").is_file():
        names = ", ".join(path.name for path in runs[:5]) or "none"
        raise RefusedError(f"run {run_id} does not exist in {home.folder}", f"The newest runs are: {names}")
    return folder


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o600)


def require_recorded_here(home: StateHome, run_id: str) -> None:
    """Refuse to follow a run that is at work and that another cluster of this state home has the record of.

    It would have two followers, each with its own restarts, and count twice in the usage.

    :raises RefusedError: naming the cluster.
    """
    for place in sorted(home.root.glob(f"*/runs/{run_id}/run.json")):
        record = load_record(place.parent) if place.parent != home.run_folder(run_id) else None
        if record is not None and not record.is_ended:
            cluster = place.parents[2].name
            problem = f"run {run_id} is at work, and is recorded in cluster {cluster} of {home.root}"
            raise RefusedError(problem, f"Name that cluster (-e muster_cluster={cluster}), or another run_id")


def delete_unstarted(folder: pathlib.Path) -> None:
    """Remove the folder of a run that never got a record, and of which no credential is left to be ended."""
    if not any((folder / name).exists() for name in ("run.json", "secret_leases.json")):
        shutil.rmtree(folder, ignore_errors=True)
