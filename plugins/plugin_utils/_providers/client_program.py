# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of others on this machine that list hosts, each run to its end with one set of messages."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Sequence

from ...module_utils._model.errors import TransportError


@dataclasses.dataclass(frozen=True, slots=True)
class ClientProgram:
    """A program that lists hosts, in the words of its messages.

    ``name``: the command that is asked. ``owner``: whose client it is; ``option``: which option names its binary.
    """

    name: str
    owner: str
    option: str
    timeout_s: int

    def run(
        self, binary: str, arguments: Sequence[str], asked: str, slow_fix: str
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end, without input. ``asked`` and ``slow_fix`` are for one that does not answer in time.

        :raises TransportError: when it is not there, cannot be run, or does not answer.
        """
        try:
            return subprocess.run(
                [binary, *arguments], capture_output=True, timeout=self.timeout_s, check=False, stdin=subprocess.DEVNULL
            )
        except FileNotFoundError:
            fix = f"Install {self.owner}'s client, or set {self.option}"
            raise TransportError(f"{self.name}: no program '{binary}'", fix) from None
        except subprocess.TimeoutExpired:
            raise TransportError(f"{asked}: no answer in {self.timeout_s} s", slow_fix) from None
        except (OSError, ValueError):
            fix = f"Name {self.owner}'s client in {self.option}"
            raise TransportError(f"{self.name}: '{binary}' cannot be run", fix) from None
