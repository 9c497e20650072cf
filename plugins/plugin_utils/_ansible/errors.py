# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one place where an error becomes a result: one line, scrubbed, no traceback."""

from __future__ import annotations

import errno
import typing as t

from ...module_utils._model.errors import MusterError, one_line
from ...module_utils._secrets.scrubber import scrub

Result = dict[str, t.Any]
_WORDS = ("msg", "detail")
_OWN = "ansible_collections.muster.training."
# The only way to a part of the collection that cannot be imported is one that fits no more what was imported before.
_REPLACED = (
    "the files of the collection were replaced or removed while this command ran: what it began is as it was. Run the "
    "same command again"
)
# What a disk of the controller that cannot be written says: not a defect of ours, and without a text of others.
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


def run_guarded(work: t.Callable[[], Result]) -> Result:
    """Return what ``work`` returns, or a failed result with the error's one line, without any known secret."""
    try:
        return _scrub_result(work())
    except MusterError as exc:
        return {"failed": True, "changed": False, "msg": one_line(scrub(str(exc)))}
    except (KeyboardInterrupt, SystemExit):
        raise
    except Exception as exc:
        if isinstance(exc, OSError) and exc.errno in _DISK:
            return {"failed": True, "changed": False, "msg": scrub(_describe_disk(exc))}
        if isinstance(exc, ImportError) and str(exc.name).startswith(_OWN):
            return {"failed": True, "changed": False, "msg": _REPLACED}
        # A defect of ours. The text of a foreign exception may quote anything, so only its kind and place are shown.
        return {"failed": True, "changed": False, "msg": f"internal error: {scrub(_raised_at(exc))}. Please report it"}


def _scrub_result(result: Result) -> Result:
    """Return a result whose words for people are single lines: they may quote what a program or a server said."""
    told = {key: one_line(value) for key, value in result.items() if key in _WORDS and isinstance(value, str)}
    return {**result, **told}


def _describe_disk(exc: OSError) -> str:
    what = f"{exc.filename} cannot be written" if exc.filename else "a file of the controller cannot be written"
    return f"{what}: {exc.strerror}. Free space on the controller's disk, or set muster_state.path to another one"


def _raised_at(exc: BaseException) -> str:
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}" if trace else ""
    return f"{type(exc).__name__}{where}"
