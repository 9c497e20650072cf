# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the launch file of a recorded run, its link, and a dev container of its image."""

from __future__ import annotations

import hashlib
import json
import pathlib
import typing as t

import yaml

from ....module_utils._model import launch_file
from ....module_utils._model.catalogue_source import check_url
from ....module_utils._model.errors import RefusedError
from ..._hosts.git_checkout import split_ref
from ..shared.state_dir import StateHome, find_run_folder, load_record
from ..training_job.load import load_recorded_job

_HEAD = "# Made of the run {run}. Train it: ansible-playbook -i INVENTORY muster.training.train -e muster_launch=FILE\n"
_DEVCONTAINER = pathlib.PurePath(".devcontainer", "devcontainer.json")


def make_launch(
    home: StateHome, run_id: str | None, path: pathlib.Path, url: str | None, devcontainer: pathlib.Path | None
) -> dict[str, object]:
    """Return ``{run_id, path, text, sha256, needs, link, devcontainer_path, devcontainer_text}`` of a run.

    :param path: where the file is to be written, a folder or a file. :param url: where it will be read from, for the
        link. :param devcontainer: the folder of a project that gets a dev container.
    :raises RefusedError: for a run that cannot be given away as it is.
    """
    if url is not None:
        check_url(url, "url")
    folder = find_run_folder(home, run_id)
    record = load_record(folder)
    if record is None:
        raise RefusedError(f"run {folder.name} has no record any more", "Name another run")
    job = load_recorded_job(record)
    repository = split_ref(job.code.ref)[0] if job.code is not None and job.code.source == "git" else None
    launch = launch_file.build_launch(record, job, repository)
    text = _HEAD.format(run=record.run_id) + yaml.safe_dump(launch_file.to_values(launch), sort_keys=False, width=120)
    digest = hashlib.sha256(text.encode()).hexdigest()
    result: dict[str, object] = {
        "changed": False,
        "run_id": record.run_id,
        "path": str(path / f"{record.run_id}.launch.yml" if path.is_dir() else path),
        "text": text,
        "sha256": digest,
        "needs": launch_file.list_needs(launch),
    }
    if url is not None:
        result["link"] = f"{url}#sha256={digest}"
    if devcontainer is not None:
        content: t.Any = launch_file.build_devcontainer(launch)
        result["devcontainer_path"] = str(devcontainer / _DEVCONTAINER)
        result["devcontainer_text"] = json.dumps(content, indent=2) + "\n"
    return result
