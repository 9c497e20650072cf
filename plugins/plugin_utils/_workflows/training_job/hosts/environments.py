# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environments of a job with ``requirements``: made on all its hosts at once, before these are asked for
the plan.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from .....module_utils._model.commands import describe_installing
from .....module_utils._model.errors import InputError
from .....module_utils._model.job import Job
from ...._hosts.node_client import NodeClient, most_telling_error, on_each_node
from ...shared.progress import say_if_killed
from ...shared.request import RunRequest
from ..source import CodeSource
from .plan import TrainingHost

_NESTED = 5


def ensure_environments(
    request: RunRequest, job: Job, hosts: t.Sequence[TrainingHost], source: CodeSource
) -> list[TrainingHost]:
    """Return the hosts with the interpreter of the job's environment, which is made where it is missing.

    In check mode nothing is made; the interpreter of a host without it stays the one that it would be added to.

    :raises MusterError: the reason of the host that could not make it.
    """
    if not job.requirements:
        return list(hosts)
    lines = read_requirements(job, source)
    by_name = {host.name: host for host in hosts}

    def ask(remote: NodeClient) -> dict[str, t.Any]:
        python = by_name[remote.name].python
        return remote.call("environment", python=python, requirements=lines, check=request.check)

    request.progress.say(
        f"job.requirements: {len(lines)} {'line' if len(lines) == 1 else 'lines'} for {len(hosts)} "
        f"{'host' if len(hosts) == 1 else 'hosts'}, installed where missing"
    )
    with say_if_killed("" if request.check else describe_installing(list(by_name), "job.requirements")):
        answers, errors = on_each_node(request.connect(list(by_name)), ask)
    if errors:
        raise most_telling_error(errors)
    made = [name for name, answer in answers.items() if answer["made"]]
    if made:
        request.progress.say(f"job.requirements: installed on {', '.join(sorted(made))}")
    return [dataclasses.replace(host, python=answers[host.name]["python"] or host.python) for host in hosts]


def read_requirements(job: Job, source: CodeSource) -> list[str]:
    """Return the job's requirements as pip takes them, with the lines of the files that ``-r`` names.

    :raises InputError: naming a file that the code does not have, or an option that a node could not carry out.
    """
    return list(_expand(job.requirements, source, job.code.workdir if job.code else ".", 0))


def _expand(lines: t.Iterable[str], source: CodeSource, folder: str, depth: int) -> t.Iterator[str]:
    for line in (text.strip() for text in lines):
        option, _space, name = line.partition(" ")
        if option in ("-r", "--requirement"):
            path = (pathlib.PurePosixPath(folder) / name.strip()).as_posix()
            yield from _expand(
                _read_file(path, source, depth), source, str(pathlib.PurePosixPath(path).parent), depth + 1
            )
        elif option in ("-e", "--editable", "-c", "--constraint") or line.startswith((".", "/")):
            raise InputError("job.requirements", f"cannot install '{line}' on a node", "Name packages of an index")
        elif line and not line.startswith("#"):
            yield line


def _read_file(path: str, source: CodeSource, depth: int) -> list[str]:
    known = {file.path: file.source for item in source.placed for file in item.tree.files if item.target == "code"}
    if path not in known or depth > _NESTED:
        problem = "is nested too deeply" if path in known else "does not exist in the code"
        raise InputError("job.requirements", f"{path} {problem}")
    return known[path].read_text(encoding="utf-8", errors="replace").splitlines()
