# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the catalogue of templates from folders, and fill one of them."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import yaml

from ....module_utils._model import job_templates, validators
from ....module_utils._model.catalogue_source import CatalogueSource, parse_sources
from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._model.job import parse_job
from ....module_utils._model.job_catalogue import (
    CatalogueTemplate,
    build_survey,
    build_train_questions,
    fill_template,
    parse_template,
)
from ....module_utils._model.launch_file import LaunchAnswers
from ....module_utils._model.run_record import RecordedTemplate
from ....module_utils._model.service import parse_services
from ..._services.components import require_deployable
from .launches import read_launch
from .sources import TemplateFile, read_source

_SHIPPED = pathlib.Path(__file__).resolve().parents[4] / "roles" / "training_job" / "files" / "catalogue"
_USES = {
    "job": "Run muster.training.{0} -e muster_template={1}",
    "services": "Run muster.training.{0} -e muster_service_template={1}",
}
Found = dict[str, tuple[CatalogueTemplate, TemplateFile]]


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateRequest:
    """What is asked of the catalogue. ``inputs``: the answers, None to fill nothing; ``inputs_path`` names them.

    ``job``: keys that are laid over the filled job. ``digest``: what the template must be, None for any. ``playbook``:
    what takes the filled template, None for any. ``launch``: a launch file whose job is taken in place of a template's,
    ``answers`` what it asks for.
    """

    name: str | None = None
    digest: str | None = None
    inputs: t.Any = None
    inputs_path: str = "inputs"
    job: t.Any = None
    playbook: str | None = None
    launch: str | None = None
    answers: LaunchAnswers = LaunchAnswers()


def read_catalogue(
    folders: t.Sequence[str], base: pathlib.Path, request: TemplateRequest, sources: t.Any = None
) -> dict[str, object]:
    """Return the templates, and of the one that is asked for its filled job and its survey.

    :param folders: folders with templates besides those of the collection, relative to ``base``.
    :param sources: more sources, as the user has written them.
    :raises InputError: for a template or an answer that is not right.
    """
    named = [(CatalogueSource(path=str(folder)), "paths") for folder in (_SHIPPED, *folders)]
    named += [(item, f"sources[{index}]") for index, item in enumerate(parse_sources(sources, "sources"))]
    found = _read_sources(named, base)
    known = {key: template for key, (template, _file) in found.items()}
    result: dict[str, object] = {
        "changed": False,
        "train_questions": build_train_questions(),
        "templates": [_describe(template, file.place) for template, file in found.values()],
        "table": [f"{item.name} {item.version}  {item.description}" for item in known.values()],
    }
    if request.launch is not None:
        return {**result, **read_launch(request.launch, base, _read_answers(request), known)}
    if request.name is None:
        return result
    template = _select(known, request.name, request.digest)
    _require_playbook(template, request)
    survey = build_survey(template)
    # AWX refuses a survey without questions.
    result |= {"table": _field_table(template), **({"survey_spec": survey} if survey["spec"] else {})}
    if request.inputs is None:
        return result
    filled = fill_template(template, request.inputs, request.inputs_path)
    if template.kind == "job":
        source = found[template.name][1].source
        return {**result, **_complete_job(filled["job"], template, request, source)}
    for service in parse_services(filled.get("services")):
        if service.mode == "deploy" and service.kind != "shared_filesystem":
            require_deployable(service, f"muster_services.{service.name}")
    return {**result, **filled}


def _read_answers(request: TemplateRequest) -> LaunchAnswers:
    """Return the answers that a launch file gets, with the keys that are laid over its job."""
    if request.name is not None:
        raise InputError("launch", "has its own job, and a template is named as well", "Leave one of them out")
    if request.inputs:
        raise InputError(request.inputs_path, "is for a template; a launch file has its answers", "Leave it out")
    return dataclasses.replace(request.answers, overrides=validators.dictionary(request.job or {}, "job"))


def _require_playbook(template: CatalogueTemplate, request: TemplateRequest) -> None:
    if request.playbook not in (None, template.playbook):
        problem = f"template {template.name} is not for the playbook {request.playbook}"
        raise InputError("name", problem, _USES[template.kind].format(template.playbook, template.name))
    if request.job and template.kind != "job":
        raise InputError("job", f"template {template.name} has services and no job", "Leave it out")


def _complete_job(
    filled: dict[str, t.Any], template: CatalogueTemplate, request: TemplateRequest, source: CatalogueSource
) -> dict[str, t.Any]:
    """Return the checked job with the keys that are laid over it, and the template as it is recorded."""
    overrides = validators.dictionary(request.job or {}, "job")
    filled = job_templates.merge(filled, overrides)
    # A team's own presets are in folders that only training_job reads, which checks the job again.
    if filled.get("template") in (None, *job_templates.PRESETS):
        parse_job(filled, job_templates.PRESETS, lambda has_image: "kubernetes" if has_image else "hosts")
    # Where a credential is differs between people, and the catalogue's own place between machines.
    known = (
        {} if source.path == str(_SHIPPED) else validators.changed_value(dataclasses.replace(source, secret_ref=None))
    )
    origin = RecordedTemplate(template.name, template.version, template.digest, request.inputs, overrides, known)
    return {"job": filled, "catalogue_template": validators.plain_value(origin)}


def _select(known: t.Mapping[str, CatalogueTemplate], name: str, digest: str | None) -> CatalogueTemplate:
    if name not in known:
        near = validators.find_nearest(name, known)
        hint = f"Did you mean '{near}'?" if near else f"Templates are: {', '.join(known)}"
        raise InputError("name", f"template '{name}' is not in the catalogue", hint)
    if digest is not None and digest != known[name].digest:
        problem = f"template {name} {known[name].version} has digest {known[name].digest}"
        raise InputError("digest", problem, "Check the template, or update the digest")
    return known[name]


def _read_sources(sources: t.Sequence[tuple[CatalogueSource, str]], base: pathlib.Path) -> Found:
    found: Found = {}
    for source, option in sources:
        for file in read_source(source, base, option):
            template = parse_template(_read_yaml(file), file.place)
            if template.name in found:
                other = found[template.name][1].place
                raise InputError(option, f"{other} and {file.place} both have template {template.name}", "Rename one")
            found[template.name] = template, file
    return found


def _read_yaml(file: TemplateFile) -> t.Any:
    try:
        return yaml.safe_load(file.content.decode())
    except (ValueError, yaml.YAMLError) as exc:
        raise RefusedError(f"{file.place}: is not readable as YAML", "Fix it or remove it") from exc


def _describe(template: CatalogueTemplate, place: str) -> dict[str, object]:
    return {
        "name": template.name,
        "version": template.version,
        "description": template.description,
        "kind": template.kind,
        "playbook": template.playbook,
        "digest": template.digest,
        "path": place,
        "inputs": {name: validators.plain_value(item) for name, item in template.fields.items()},
    }


def _field_table(template: CatalogueTemplate) -> list[str]:
    rows = [("INPUT", "TYPE", "DEFAULT", "MEANING")]
    for name, item in template.fields.items():
        default = "required" if item.required else "-" if item.default is None else str(item.default)
        rows.append((name, item.type, default, item.help))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*map(str.ljust, row[:3], widths), row[3]]).rstrip() for row in rows]
    head = f"{template.name} {template.version}, digest {template.digest}"
    # Who reads it wants to train: the playbook is named where it is another one.
    return [head if template.kind == "job" else f"{head}, for the playbook {template.playbook}", *lines]
