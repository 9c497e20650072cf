# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is true of a run: read from what its ranks noted for themselves, from the disks, and from the bucket.

Nothing of it comes from the collection's records.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import typing as t

Outcome = t.Literal["succeeded", "failed", "cancelled", "lost", "running", "refused"]


@dataclasses.dataclass(frozen=True, slots=True)
class Save:
    """A file that a rank saved whole."""

    step: int
    rank: int
    path: str
    sha256: str


@dataclasses.dataclass(frozen=True, slots=True)
class Life:
    """One start of one rank: from where, which steps with which loss (None: not a number), and its last words."""

    rank: int
    attempt: int
    resumed_from: int | None
    steps: tuple[int, ...]
    losses: tuple[float | None, ...]
    saves: tuple[Save, ...]
    acts: tuple[tuple[str, t.Any], ...]
    code: int | None
    pid: int = 0

    @property
    def last_step(self) -> int | None:
        return self.steps[-1] if self.steps else None


@dataclasses.dataclass(frozen=True, slots=True)
class Truth:
    """All that a judge of one run needs.

    ``kept`` are whole saves that are on a node's disk now, ``stored`` those that are in the bucket now, by digest.
    ``outcomes`` are the words that are right for how it ended; ``needs`` are what must be said (see judge.NEEDS).
    """

    outcomes: frozenset[str]
    ranks: int
    lives: tuple[Life, ...]
    kept: tuple[Save, ...]
    bucket: bool = False
    stored: frozenset[str] = frozenset()
    machines: int = 1
    nodes: int = 2
    needs: frozenset[str] = frozenset()
    # A node, a record or a log was hurt, so that less than all may be known; what is missing must be named.
    hurt: bool = False
    alive: frozenset[int] = frozenset()
    # What there was when the run ended, where that was changed afterwards.
    kept_then: tuple[Save, ...] | None = None
    stored_then: frozenset[str] | None = None
    # Steps of saves that the program reported, written or not.
    reported: frozenset[int] = frozenset()

    @property
    def kept_at_end(self) -> tuple[Save, ...]:
        return self.kept if self.kept_then is None else self.kept_then

    @property
    def stored_at_end(self) -> frozenset[str]:
        return self.stored if self.stored_then is None else self.stored_then

    @property
    def newest_reported(self) -> int | None:
        """The step of the newest save that the program spoke of."""
        return max((step for step in (*self.reported, self.newest_saved) if step is not None), default=None)

    @property
    def kept_newest_at_end(self) -> int | None:
        return max((save.step for save in self.kept_at_end), default=None)

    @property
    def stored_newest_at_end(self) -> int | None:
        return self._newest(self.stored_at_end)

    @property
    def available_at_end(self) -> int | None:
        """The newest step that was where it had been promised when the run ended: in the bucket where there is one."""
        return self.stored_newest_at_end if self.bucket else self.kept_newest_at_end

    @property
    def starts(self) -> int:
        """How often the gang began: the most lives of a rank."""
        return max((sum(life.rank == rank for life in self.lives) for rank in range(self.ranks)), default=0)

    def of(self, rank: int) -> list[Life]:
        """Return a rank's lives in their order."""
        return [life for life in self.lives if life.rank == rank]

    @property
    def seen(self) -> int:
        """How many ranks ever began in the newest start."""
        return len({life.rank for life in self.lives if len(self.of(life.rank)) >= self.starts})

    @property
    def told(self) -> list[Life]:
        """Rank 0's lives, whose figures the collection reads."""
        return self.of(0)

    @property
    def last_step(self) -> int | None:
        """The last step that rank 0 made, in its newest life that made one."""
        return next((life.last_step for life in reversed(self.told) if life.steps), None)

    @property
    def last_loss(self) -> float | None:
        return next((life.losses[-1] for life in reversed(self.told) if life.steps), None)

    @property
    def made(self) -> frozenset[int]:
        """All steps that rank 0 ever made."""
        return frozenset(step for life in self.told for step in life.steps)

    @property
    def saves(self) -> list[Save]:
        return [save for life in self.lives for save in life.saves]

    @property
    def newest_saved(self) -> int | None:
        """The step that was saved last, wherever it is now."""
        return max((save.step for save in self.saves), default=None)

    @property
    def newest_kept(self) -> int | None:
        return max((save.step for save in self.kept), default=None)

    @property
    def newest_stored(self) -> int | None:
        """The newest step of which all files that its ranks saved are in the bucket."""
        return self._newest(self.stored)

    def _newest(self, stored: frozenset[str]) -> int | None:
        by_step: dict[int, set[str]] = {}
        for save in self.saves:
            by_step.setdefault(save.step, set()).add(save.sha256)
        return max((step for step, digests in by_step.items() if digests <= stored), default=None)

    @property
    def available(self) -> int | None:
        """The newest step that can still be had from a node or from the bucket."""
        return max((step for step in (self.newest_kept, self.newest_stored) if step is not None), default=None)

    @property
    def steps_lost(self) -> int:
        """Steps that were made again, from the last of one life to the first of the next (rank 0)."""
        told = [life for life in self.told if life.steps]
        return sum(
            max(0, int(one.last_step or 0) - (other.steps[0] - 1)) for one, other in zip(told, told[1:], strict=False)
        )


def read_lives(folder: pathlib.Path) -> tuple[Life, ...]:
    """Return what all ranks noted, in the order of their starts."""
    found = []
    for path in sorted(folder.glob("rank-*.jsonl")):
        notes: list[list[dict[str, t.Any]]] = []
        for line in path.read_text().splitlines():
            note = json.loads(line)
            if note["kind"] == "began":
                notes.append([])
            notes[-1].append(note)
        found += [(life[0]["at"], _life(life)) for life in notes]
    return tuple(life for _, life in sorted(found, key=lambda pair: pair[0]))


def _life(notes: list[dict[str, t.Any]]) -> Life:
    def of(kind: str) -> list[dict[str, t.Any]]:
        return [note for note in notes if note["kind"] == kind]

    steps = of("step")
    return Life(
        rank=notes[0]["rank"],
        attempt=int(notes[0]["attempt"]),
        resumed_from=next((note["step"] for note in of("resumed")), None),
        steps=tuple(note["step"] for note in steps),
        losses=tuple(note["loss"] for note in steps),
        saves=tuple(Save(note["step"], note["rank"], note["path"], note["sha256"]) for note in of("saved")),
        acts=tuple((note["do"], note["value"]) for note in of("acts")),
        code=next((note["code"] for note in of("ended")), None),
        pid=notes[0]["pid"],
    )


def still_there(saves: t.Iterable[Save]) -> tuple[Save, ...]:
    """Return the saves whose files are on the disk and whole."""
    found = []
    for save in saves:
        path = pathlib.Path(save.path)
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == save.sha256:
            found.append(save)
    return tuple(found)
