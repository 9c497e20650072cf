# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Python's own hook at its start: lets time pass faster in a whole process, for tests that wait for providers.

``MUSTER_TEST_TIME`` is ``BASE:SCALE:SHIFT``: since the Unix time BASE every second is SCALE seconds, and SHIFT more
have gone by. Sockets keep real time.
"""

from __future__ import annotations

import concurrent.futures
import os
import time
import typing as t

_SETTING = os.environ.get("MUSTER_TEST_TIME", "")


def _install(base: float, scale: float, shift: float) -> None:
    real_time, real_monotonic, real_sleep, real_wait = time.time, time.monotonic, time.sleep, concurrent.futures.wait
    began = real_monotonic()

    def wait(
        pending: t.Any, timeout: float | None = None, return_when: str = concurrent.futures.ALL_COMPLETED
    ) -> t.Any:
        return real_wait(pending, None if timeout is None else timeout / scale, return_when)

    module: t.Any = time
    module.time = lambda: base + (real_time() - base) * scale + shift
    module.monotonic = lambda: began + (real_monotonic() - began) * scale
    module.sleep = lambda seconds: real_sleep(seconds / scale)
    futures: t.Any = concurrent.futures
    futures.wait = wait


if _SETTING:
    _install(*map(float, _SETTING.split(":")))
