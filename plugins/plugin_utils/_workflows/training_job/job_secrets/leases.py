# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials that Vault or OpenBao makes for a run: made at its start, renewed while it is followed, ended with it.

The run's folder says which there are (``secret_leases.json``, without a value), so that a later controller ends those
of one that was killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import threading
import time
import typing as t

from .....module_utils._model import validators as f
from .....module_utils._model.errors import InputError, MusterError, RefusedError
from .....module_utils._model.job import SecretRef
from .....module_utils._node import files
from ...._services import vault
from ...shared import bindings, credentials
from ...shared.progress import Progress
from ...shared.request import RunRequest
from ...shared.state_dir import StateHome, delete_unstarted, load_record
from . import values as secrets

LEASES_FILE: t.Final = "secret_leases.json"
_RETRY_S: t.Final = 15.0
_SHORTEST_S: t.Final = 0.5
_LONGEST_S: t.Final = 3600.0


@dataclasses.dataclass(frozen=True, slots=True)
class HeldLease:
    """A credential of a run: the secret that it is, where it was made, what ends it, and when it ends by itself."""

    name: str = f.field(f.text)
    source: str = f.field(f.choice("vault", "openbao"))
    address: str = f.field(f.text)
    kind: str = f.field(f.choice("lease", "token"))
    id: str = f.field(f.text)
    ends_at: float = f.field(f.decimal(0))
    renewable: bool = f.field(f.boolean)
    binding: str | None = f.field(f.text, None)

    @property
    def lease(self) -> vault.VaultLease:
        """What the service knows it by."""
        return vault.VaultLease(t.cast("t.Literal['lease', 'token']", self.kind), self.id, 0.0, self.renewable)

    def describe(self) -> str:
        """Return what people call it."""
        return f"the {self.kind} of secret {self.name} at {self.address}"


@contextlib.contextmanager
def hold(
    request: RunRequest, home: StateHome, run_id: str, resolved: secrets.JobSecrets
) -> t.Iterator[secrets.JobSecrets]:
    """Have the run's credentials made, renew them, and end them unless the run continues without this controller.

    The caller holds the run's lock.
    """
    folder = home.run_folder(run_id)
    if not resolved.leased and not (folder / LEASES_FILE).exists():
        yield resolved
        return
    leases = RunCredentials(home, folder, request.progress)
    try:
        for ref in resolved.leased:
            resolved = secrets.add_value(resolved, ref, leases.issue(ref, run_id))
        with leases:
            yield resolved
    finally:
        leases.end_if_over()


def end_due(request: RunRequest, home: StateHome) -> None:
    """End the credentials of runs that have ended: their controller was killed, or did not follow them."""
    for place in sorted((home.folder / "runs").glob(f"*/{LEASES_FILE}")):
        folder = place.parent
        try:
            lock = home.lock(folder.name, 0.0)
        except RefusedError:
            # Another controller holds the run.
            continue
        try:
            RunCredentials(home, folder, request.progress).end_if_over()
        except MusterError as error:
            request.progress.say(f"warning: the credentials of run {folder.name} could not be ended: {error}")
        finally:
            delete_unstarted(folder)
            lock.close()


class RunCredentials:
    """The credentials of one run. As a context it renews them by a thread of its own."""

    def __init__(self, home: StateHome, folder: pathlib.Path, progress: Progress) -> None:
        self._home, self._folder, self._progress = home, folder, progress
        known = files.read_json(folder / LEASES_FILE) or []
        self._held: list[HeldLease] = [f.section(HeldLease)(item, LEASES_FILE) for item in known]
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._silent: set[str] = set()

    def issue(self, ref: SecretRef, run_id: str) -> bytes:
        """Have a credential made; return the value that ``ref`` names."""
        option = f"job.secret_refs.{ref.name}"
        access = secrets.open_vault(ref, self._home)
        values, lease = vault.issue(access, str(ref.path), option, {"muster_run": run_id})
        now = time.time()
        held = HeldLease(
            ref.name,
            ref.source,
            access.address,
            lease.kind,
            lease.id,
            now + lease.lasts_s,
            lease.renewable,
            ref.binding,
        )
        # Known here before anything else can fail.
        self._held.append(held)
        self._write()
        return secrets.pick_value(ref, {str(key): str(value).encode() for key, value in values.items()})

    def __enter__(self) -> RunCredentials:
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_unused: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        if self._held:
            self._write()

    def end_if_over(self) -> None:
        """End all credentials of a run that has ended or was never started; what cannot be ended stays listed."""
        record = load_record(self._folder)
        if record is not None and not record.is_ended:
            return
        left = []
        for held in self._held:
            try:
                vault.revoke(self._open(held), held.lease, f"secret {held.name}")
            except MusterError as error:
                if held.ends_at > time.time():
                    left.append(held)
                    when = "the next command tries again, and it ends by itself"
                    self._progress.say(f"warning: {held.describe()} could not be ended; {when}: {error}")
        self._held = left
        self._write()

    def _write(self) -> None:
        place = self._folder / LEASES_FILE
        if not self._held:
            place.unlink(missing_ok=True)
            return
        files.private_dir(self._folder)
        files.write_json(place, [dataclasses.asdict(held) for held in self._held])

    def _open(self, held: HeldLease) -> vault.VaultAccess:
        option = f"secret {held.name}"
        binding = bindings.load_binding(self._home, held.binding, option) if held.binding else None
        access = credentials.vault_access(held.source, option, binding)
        if held.binding is None and access.address != held.address:
            # Variables name another service since then, whose token is not for this one.
            raise RefusedError(
                f"{option}: {held.address} made it, and the token is for {access.address}",
                f"Give the address {held.address} and a token for it",
            )
        return dataclasses.replace(access, address=held.address)

    def _keep(self) -> None:
        """Renew each credential, and the token that does it, half-way to its end; say of each that it has ended."""
        now = time.time()
        due = {held.id: (now + held.ends_at) / 2 if held.renewable else held.ends_at for held in self._held}
        own = {held.address: now for held in self._held}
        while due:
            wait = min(*due.values(), *own.values()) - time.time()
            if self._done.wait(min(max(wait, _SHORTEST_S), _LONGEST_S)):
                return
            for address in [address for address, at in own.items() if at <= time.time()]:
                own[address] = self._renew_own(address)
            for number, held in enumerate(self._held):
                if due.get(held.id, float("inf")) <= time.time():
                    self._held[number] = renewed = self._renew(held)
                    if renewed.ends_at <= time.time():
                        del due[held.id]
                    else:
                        due[held.id] = _next_time(held, renewed)

    def _renew_own(self, address: str) -> float:
        held = next(held for held in self._held if held.address == address)
        with contextlib.suppress(MusterError):
            lasts = vault.renew_own(self._open(held), f"secret {held.name}")
            return time.time() + lasts / 2 if lasts else float("inf")
        return time.time() + _RETRY_S

    def _renew(self, held: HeldLease) -> HeldLease:
        """Return the credential with its new end; one that has ended has it in the past."""
        now, reason = time.time(), "its time is over"
        if held.renewable:
            try:
                ends_at = now + vault.renew(self._open(held), held.lease, f"secret {held.name}")
                self._silent.discard(held.id)
                if ends_at > now:
                    return dataclasses.replace(held, ends_at=ends_at)
            except InputError as error:
                reason, held = error.message, dataclasses.replace(held, ends_at=now)
            except MusterError as error:
                reason = error.message
                if held.ends_at > now and held.id not in self._silent:
                    self._silent.add(held.id)
                    self._progress.say(f"warning: {held.describe()} was not renewed; trying again: {reason}")
        if held.ends_at <= now:
            self._tell_end(held, reason)
        return held

    def _tell_end(self, held: HeldLease, reason: str) -> None:
        detail = (
            f"{held.describe()} has ended while the run continues ({reason}): what it opens refuses the program now"
        )
        fix = "Allow it a longer time where it is made (max_ttl), then run the job again"
        files.append_json(
            self._folder / "events.jsonl",
            {"at": time.time(), "kind": "secret_ended", "secret": held.name, "detail": detail},
        )
        self._progress.say(f"warning: {detail}. {fix}")


def _next_time(before: HeldLease, renewed: HeldLease) -> float:
    now = time.time()
    if renewed.ends_at == before.ends_at:
        return min(now + _RETRY_S, renewed.ends_at)
    return (now + renewed.ends_at) / 2
