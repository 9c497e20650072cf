# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a launch file, from a folder or by its link, and complete its job with what is of the person who launches it."""

from __future__ import annotations

import pathlib
import typing as t

import yaml

from ....module_utils._model import launch_file, validators
from ....module_utils._model.catalogue_source import parse_sources
from ....module_utils._model.errors import InputError, MusterError
from ....module_utils._model.job_catalogue import CatalogueTemplate, fill_template
from ....module_utils._model.job_templates import merge
from ....module_utils._model.launch_file import LaunchAnswers, LaunchFile
from ....module_utils._model.run_record import RecordedTemplate
from .sources import read_source

_DIGEST = "#sha256="


def read_launch(
    place: str, base: pathlib.Path, answers: LaunchAnswers, known: t.Mapping[str, CatalogueTemplate]
) -> dict[str, object]:
    """Return the ``job`` of a launch file, and its ``catalogue_template`` where the catalogue has that very template.

    :param place: a file, relative to ``base``, or ``https://…#sha256=DIGEST``. :param known: the catalogue.
    :raises InputError: for what is wrong in the file or in the answers.
    """
    launch = launch_file.parse_launch(_read_yaml(place, base), place)
    job = merge(launch_file.complete_launch(launch, answers), answers.overrides)
    result: dict[str, object] = {"job": job, "launch_needs": launch_file.list_needs(launch)}
    if launch.template is None:
        return result
    differs = _find_difference(launch, launch.template, known)
    if differs:
        named = f"{launch.template.name} {launch.template.version}"
        said = f"{place} says that its job is of the template {named}, and {differs}"
        result["warnings"] = [f"{said}: it is trained as the file has it, and its run is recorded without a template"]
    else:
        result["catalogue_template"] = validators.plain_value(launch.template)
    return result


def _read_yaml(place: str, base: pathlib.Path) -> t.Any:
    address, _mark, digest = place.partition(_DIGEST)
    if "://" in place:
        if not digest:
            fix = f"The playbook launch prints it: {address}{_DIGEST}…"
            raise InputError("launch", "is a link without the digest of the file", fix)
        source = {"url": address, "sha256": digest}
        try:
            (file,) = read_source(parse_sources([source], "launch")[0], base, "launch")
        except InputError as exc:
            # The keys of a source are not the user's here.
            raise InputError("launch", exc.message.partition(": ")[2], exc.fix) from exc
        content = file.content
    else:
        try:
            content = pathlib.Path(base, place).expanduser().read_bytes()
        except OSError as exc:
            reason = (exc.strerror or "failed").lower()
            raise InputError("launch", f"{place} cannot be read ({reason})", "Name a launch file or its link") from exc
    try:
        return yaml.safe_load(content.decode())
    except (ValueError, yaml.YAMLError) as exc:
        raise InputError("launch", f"{place} is not readable as YAML", "Write it anew by the playbook launch") from exc


def _find_difference(launch: LaunchFile, recorded: RecordedTemplate, known: t.Mapping[str, CatalogueTemplate]) -> str:
    """Return why the job is not what the catalogue's template makes of the recorded answers, empty where it is."""
    found = known.get(recorded.name)
    if found is None:
        return "the catalogue has none of this name (muster_catalogue_sources names more)"
    if found.digest != recorded.digest:
        return f"the catalogue has another one of this name ({found.version}, digest {found.digest[:12]}…)"
    # Of secrets a launch file has the names alone; where one is does not count in the comparison.
    secrets = {name: {"from": "env"} for name, item in found.fields.items() if item.type == "secret" and item.required}
    try:
        filled = fill_template(found, {**secrets, **recorded.inputs})["job"]
    except MusterError as error:
        return f"the template does not take its answers ({error.message})"
    same = launch_file.is_filled_from(launch, merge(filled, recorded.overrides))
    return "" if same else "the template makes another job of its answers"
