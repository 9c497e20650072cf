# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof, in every attempt, that the pods of a gang see one checkpoint folder: the first writes, all others read.

The pods that found the first one ask it for the name of its file, look for it, and answer that they saw it. A pod that
does not see it refuses to start its program.
"""

from __future__ import annotations

import contextlib
import pathlib
import time
import typing as t

from . import pod_discovery, shared_folder
from .pod_preflight import PodRefusal

_AGAIN_S = 0.25


class FirstPodProof:
    """The first pod's side: its file is there as long as a pod looks for it."""

    def __init__(self, folder: pathlib.Path, nodes: int) -> None:
        self.folder, self.others = folder, nodes - 1
        self.proof = shared_folder.new_proof()
        self.seen: set[int] = set()
        self._looking: set[int] = set()
        self._write()

    @property
    def is_complete(self) -> bool:
        """Whether all other pods saw the file."""
        return len(self.seen) >= self.others

    def answer(self, rank: int, word: object) -> dict[str, t.Any]:
        """Return the answer to a pod: to ``ask`` the file's name and content."""
        if word == "ask":
            self._looking.add(rank)
            with contextlib.suppress(PodRefusal):
                # A pod that was replaced comes after all others have seen it.
                self._write()
            return {"proof": self.proof}
        self._looking.discard(rank)
        self.seen.add(rank)
        if self.is_complete and not self._looking:
            self.close()
        return {}

    def wait(self, until: float, pause: t.Callable[[float], bool]) -> None:
        """Wait until all other pods saw the file.

        :raises TimeoutError: naming how many did not.
        """
        while not self.is_complete:
            if time.monotonic() > until or not pause(_AGAIN_S):
                raise TimeoutError(f"{self.others - len(self.seen)} of {self.others} other nodes did not connect")

    def close(self) -> None:
        """Remove the file."""
        shared_folder.remove_proof(self.folder, self.proof)

    def _write(self) -> None:
        try:
            shared_folder.write_proof(self.folder, self.proof)
        except OSError as exc:
            raise PodRefusal(f"{self.folder} cannot be written: {exc.strerror}") from exc


def begin_proof(spec: t.Mapping[str, t.Any]) -> FirstPodProof | None:
    """Write the proof of the first pod, where the job's checkpoints must be shared.

    :raises PodRefusal: when the folder cannot be written.
    """
    return (
        FirstPodProof(pathlib.Path(spec["checkpoint_dir"]), int(spec["nodes"])) if spec.get("shared_wait_s") else None
    )


def require_shared(
    spec: t.Mapping[str, t.Any],
    first: tuple[str, int],
    hello: t.Mapping[str, t.Any],
    until: float,
    pause: t.Callable[[float], bool],
) -> None:
    """Refuse to start where this pod does not see what the first pod wrote into the checkpoint folder.

    :param first: address and port at which the first pod answers.
    :param hello: the run, the attempt, and this pod's ``rank`` and ``node``.
    :raises PodRefusal: with the way on.
    :raises TimeoutError: when the first pod stopped answering.
    """
    if not spec.get("shared_wait_s"):
        return
    folder = pathlib.Path(spec["checkpoint_dir"])
    asked = _ask(first, {**hello, "shared": "ask"}, until, pause)
    writer = str(asked.get("node") or "the first pod")
    within_s = float(spec["shared_wait_s"])
    problem = shared_folder.find_problem(folder, asked.get("proof") or {}, writer, within_s, pause)
    if problem:
        raise PodRefusal(f"{problem}. {shared_folder.ADVICE}")
    _ask(first, {**hello, "shared": "seen"}, until, pause)


def _ask(
    first: tuple[str, int], hello: t.Mapping[str, t.Any], until: float, pause: t.Callable[[float], bool]
) -> dict[str, t.Any]:
    while True:
        with contextlib.suppress(OSError, ValueError):
            answer = pod_discovery.exchange(*first, hello)
            if answer.get("ok"):
                return answer
        if time.monotonic() > until or not pause(_AGAIN_S):
            raise TimeoutError(f"the first node at {first[0]}:{first[1]} stopped answering")
