# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A launch file: the job of a run with its code and image by digest, which another person trains again.

It has nothing of the person who made it: no reference to a secret, no folder of the controller, no place where it ran.
The person who launches it answers with their own; what would make it another job is refused.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from . import job_templates
from . import validators as f
from .errors import InputError, RefusedError
from .image_name import full_name
from .job import Job, SecretRef
from .job_catalogue import is_jinja, is_secret_name, walk_texts
from .run_record import RecordedTemplate, RunRecord

Dict = dict[str, t.Any]
SCHEMA: t.Final = 1
# Where a job runs, and until when: of each person who trains it.
_OWN: t.Final = ("placement", "python", "monitoring", "release", "max_cost_usd", "ttl_after_finished_s")
# What may be laid over the job of a launch file: besides those, where it saves and reports.
_CHANGEABLE: t.Final = (*_OWN, "checkpoints", "mounts", "tracking", "timeout_s")
# What differs between a job and the one of its launch file.
_UNEQUAL: t.Final = (*_OWN, "secret_refs", "template", "image", "code")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@dataclasses.dataclass(frozen=True, slots=True)
class AskedSecret:
    """A secret that the program wants: its name, and how it gets it (``as``, as in ``job.secret_refs``)."""

    name: str = f.field(f.text)
    deliver: str = f.field(f.choice("env", "file", "registry"), "env", key="as")


@dataclasses.dataclass(frozen=True, slots=True)
class LaunchFile:
    """What a launch file holds.

    ``job`` has the keys of ``muster_job``; a dataset that is copied from a controller has no ``path`` there.
    ``template``: the template of the catalogue that it was filled from. ``run`` names the run that it was made of.
    """

    launch: int = f.field(f.integer(1))
    job: Dict = f.field(f.dictionary)
    run: str | None = f.field(f.text, None)
    template: RecordedTemplate | None = f.field(f.section(RecordedTemplate), None)
    secrets: tuple[AskedSecret, ...] = f.field(f.list_of(f.section(AskedSecret)), ())

    @property
    def code(self) -> Dict:
        """``job.code``, empty for a job without code."""
        return t.cast(Dict, self.job.get("code") or {})

    @property
    def has_folder(self) -> bool:
        """Whether the code is a folder of the controller, of each person their own."""
        return bool(self.code) and self.code.get("from", "path") == "path"

    @property
    def folders(self) -> tuple[str, ...]:
        """The datasets that each person copies from a folder of their own."""
        return tuple(str(item.get("name")) for item in self.job.get("datasets") or () if _is_local(item))

    @property
    def bindings(self) -> tuple[str, ...]:
        """The services that the job names, which the person who launches it must have bound under these names."""
        return tuple(sorted(set(_find_bindings(self.job))))


@dataclasses.dataclass(frozen=True, slots=True)
class LaunchAnswers:
    """What a person who launches gives: their folder with the code, datasets and references to secrets by name.

    ``overrides``: keys of the job that say where it runs.
    """

    code: str | None = None
    datasets: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    secrets: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    overrides: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)


def parse_launch(value: t.Any, path: str) -> LaunchFile:
    """Return the launch file that ``value`` holds.

    :raises InputError: for what is wrong in it, and for what a launch file must not have.
    """
    launch = f.section(LaunchFile)(value, path)
    if launch.launch != SCHEMA:
        raise InputError(f"{path}.launch", f"is {launch.launch}; this version reads {SCHEMA}", "Update the collection")
    for key in ("secret_refs", *_OWN):
        if key in launch.job:
            raise InputError(f"{path}.job.{key}", "has no place in a launch file", "The person who launches it says it")
    f.section(Job)(_with_folder(launch.job), f"{path}.job")
    for place, text in walk_texts(launch.job, f"{path}.job"):
        if is_jinja(text):
            raise InputError(place, "has text that Jinja would evaluate ({{, {% or {#)", "Write it another way")
    for item in launch.job.get("datasets") or ():
        if _is_local(item) and item.get("path") is not None:
            problem = "is a folder of the controller of the person who launches it"
            raise InputError(f"{path}.job.datasets.{item.get('name')}.path", problem, "Leave it out")
    _check_pinned(launch, path)
    return launch


def _check_pinned(launch: LaunchFile, path: str) -> None:
    """Refuse code and an image that are not named by a digest."""
    if launch.has_folder and "ref" in launch.code:
        raise InputError(f"{path}.job.code.ref", "is a folder of the person who launches it", "Leave it out")
    if launch.code.get("from", "path") != "image" and launch.code and not _SHA256.match(str(launch.code.get("sha256"))):
        raise InputError(f"{path}.job.code.sha256", "must be the SHA-256 of the code, 64 digits of hexadecimal")
    image = launch.job.get("image")
    if image is not None and not _DIGEST.match(str(image).partition("@")[2]):
        raise InputError(f"{path}.job.image", "must have a digest", "Write NAME@sha256:DIGEST")


def complete_launch(launch: LaunchFile, answers: LaunchAnswers) -> Dict:
    """Return the job of a launch file with what is of the person who launches it.

    :raises InputError: for an answer that is missing, that is not asked for, or that makes it another job.
    """
    job = dict(launch.job)
    for key in answers.overrides:
        if key not in _CHANGEABLE:
            problem = "would make it another job than the one of the launch file"
            raise InputError(f"job.{key}", problem, f"May be set: {', '.join(_CHANGEABLE)}")
    if launch.code:
        job["code"] = _complete_code(launch, answers)
    elif answers.code is not None:
        raise InputError("launch_code", "is not asked for: the job has no code of a folder", "Leave it out")
    _require_same(launch.folders, answers.datasets, "launch_datasets", "Name your folder with the data")
    names = [item.name for item in launch.secrets]
    example = f'For example {{"{(names or ["HF_TOKEN"])[0]}": {{"from": "env", "key": "HF_TOKEN"}}}}'
    _require_same(names, answers.secrets, "launch_secrets", f"Say where yours is. {example}")
    if launch.folders:
        paths = answers.datasets
        job["datasets"] = [
            {**item, "path": paths[item["name"]]} if item["name"] in launch.folders else item
            for item in job["datasets"]
        ]
    if launch.secrets:
        job["secret_refs"] = [_build_reference(item, answers) for item in launch.secrets]
    return job


def _complete_code(launch: LaunchFile, answers: LaunchAnswers) -> Dict:
    code = launch.code
    if not launch.has_folder:
        if answers.code is not None:
            problem = f"is not asked for: the code comes from {code.get('ref')}"
            raise InputError("launch_code", problem, "Leave it out")
        return code
    if answers.code is None:
        problem = f"is needed: the code is a folder whose content has the SHA-256 {code.get('sha256')}"
        raise InputError("launch_code", problem, "Name your folder with it")
    return {**code, "ref": answers.code}


def _require_same(asked: t.Sequence[str], given: t.Mapping[str, t.Any], option: str, fix: str) -> None:
    for name in given:
        if name not in asked:
            near = f.find_nearest(name, asked)
            hint = f"Did you mean '{near}'?" if near else f"It asks for {', '.join(asked) or 'nothing of this kind'}"
            raise InputError(f"{option}.{name}", "is not asked for by the launch file", hint)
    for name in asked:
        if name not in given:
            raise InputError(f"{option}.{name}", "is asked for by the launch file", fix)


def _build_reference(item: AskedSecret, answers: LaunchAnswers) -> Dict:
    option = f"launch_secrets.{item.name}"
    given = answers.secrets[item.name]
    if not isinstance(given, t.Mapping):
        raise InputError(option, "takes a reference, not the secret itself", "For example {from: env, key: HF_TOKEN}")
    own = {"name": item.name, "as": item.deliver}
    f.section(SecretRef)({**given, **own}, option)
    return {**given, **own}


def build_launch(record: RunRecord, job: Job, repository: str | None = None) -> LaunchFile:
    """Return the launch file of a recorded run.

    :param job: the job of ``record``. :param repository: the address of its code without the revision, where that is
        from git.
    :raises RefusedError: where a digest is not known, or the job cannot be given away as it is.
    """
    for name in job.env:
        if is_secret_name(name):
            problem = f"run {record.run_id}: job.env.{name} has a secret's name, and a launch file shows its value"
            raise RefusedError(problem, "Put it in job.secret_refs, and train again")
    content = {
        key: value for key, value in f.changed_value(job).items() if key not in (*_OWN, "secret_refs", "template")
    }
    if job.image is not None:
        content["image"] = _pin_image(record, job.image)
    if job.code is not None:
        content["code"] = _pin_code(record, content["code"], repository)
    if "datasets" in content:
        content["datasets"] = [_strip_path(item) for item in content["datasets"]]
    secrets = tuple(AskedSecret(ref.name, ref.deliver) for ref in job.secret_refs)
    launch = LaunchFile(SCHEMA, content, record.run_id, _strip_template(record.catalogue_template), secrets)
    try:
        return parse_launch(to_values(launch), "launch")
    except InputError as exc:
        raise RefusedError(f"run {record.run_id}: {exc.message}", exc.fix) from exc


def to_values(launch: LaunchFile) -> Dict:
    """Return a launch file as the values that are written."""
    return t.cast(Dict, f.changed_value(launch))


def list_needs(launch: LaunchFile) -> list[str]:
    """Return what a person needs who launches it, a line each."""
    lines = []
    if launch.has_folder:
        lines.append(f"muster_launch_code: a folder with the code (SHA-256 {launch.code.get('sha256')})")
    lines += [f"muster_launch_datasets.{name}: a folder with the dataset" for name in launch.folders]
    lines += [f"muster_launch_secrets.{item.name}: where their own is" for item in launch.secrets]
    lines += [f"the service {name}, bound under this name" for name in launch.bindings]
    return lines


def is_filled_from(launch: LaunchFile, filled: t.Any) -> bool:
    """Return whether the job is the one that its template and answers make, but for digests and what is each person's.

    :param filled: the job that they make, with the overrides.
    """
    try:
        first, second = (_compare_as(job) for job in (launch.job, f.dictionary(filled, "job")))
    except InputError:
        return False
    return first == second


def _compare_as(job: t.Mapping[str, t.Any]) -> Dict:
    parsed = f.section(Job)(job_templates.apply_template(_with_folder(job), job_templates.PRESETS), "job")
    found = {key: value for key, value in f.changed_value(parsed).items() if key not in _UNEQUAL}
    return {**found, "datasets": [_strip_path(item) for item in found.get("datasets", ())]}


def build_devcontainer(launch: LaunchFile) -> Dict:
    """Return ``devcontainer.json`` (containers.dev) of the job's image: its variables, secrets and hardware.

    Secrets are read from the variables of the person's own machine that have their names.

    :raises RefusedError: for a job without an image.
    """
    job = f.section(Job)(_with_folder(launch.job), "launch.job")
    if job.image is None:
        raise RefusedError(
            f"run {launch.run}: its job has no image, which a dev container needs", "Train it in an image"
        )
    secrets = {item.name: f"${{localEnv:{item.name}}}" for item in launch.secrets if item.deliver == "env"}
    wanted: Dict = {}
    if job.gpus_per_node:
        wanted["gpu"] = True
    if job.resources.cpu is not None:
        wanted["cpus"] = max(1, round(job.resources.cpu))
    if job.resources.memory is not None:
        wanted["memory"] = f"{max(1, round(job.resources.memory / 2**30))}gb"
    arguments = [f"--shm-size={job.resources.shm}"] if job.resources.shm is not None else []
    arguments += ["--gpus=all"] if job.gpus_per_node else []
    found: Dict = {"name": job.name, "image": job.image}
    more = {
        "containerEnv": dict(job.env),
        "remoteEnv": secrets,
        "hostRequirements": wanted,
        "runArgs": arguments,
    }
    return found | {key: value for key, value in more.items() if value}


def _pin_image(record: RunRecord, image: str) -> str:
    """Return the image by the digest that the run had."""
    if _DIGEST.match(image.partition("@")[2]):
        return image
    for found in (record.image, record.image_digest):
        name, _at, digest = str(found or "").rpartition("@")
        if name and _DIGEST.match(digest):
            return f"{full_name(image)}@{digest}"
    problem = f"run {record.run_id}: no registry's digest of the image {image} is known"
    raise RefusedError(problem, "Push it to a registry, bind that, and train again; or name it by digest in job.image")


def _pin_code(record: RunRecord, code: Dict, repository: str | None) -> Dict:
    source = code.get("from", "path")
    if source == "image":
        return code
    if record.code_sha256 is None:
        raise RefusedError(f"run {record.run_id}: the digest of its code is not known", "Train it again")
    pinned = {**code, "sha256": record.code_sha256}
    if source == "path":
        del pinned["ref"]
    elif repository and record.versions.get("commit"):
        pinned["ref"] = f"{repository}@{record.versions['commit']}"
    return pinned


def _with_folder(job: t.Mapping[str, t.Any]) -> Dict:
    """Return the job with a folder for code that has none here, so that it can be read as a whole."""
    code = job.get("code")
    return {**job, "code": {"ref": ".", **code}} if isinstance(code, t.Mapping) else dict(job)


def _strip_template(found: RecordedTemplate | None) -> RecordedTemplate | None:
    """Leave out references to secrets: where one is differs between people."""
    if found is None:
        return None
    inputs = {key: value for key, value in found.inputs.items() if not isinstance(value, t.Mapping)}
    overrides = {key: value for key, value in found.overrides.items() if key not in ("secret_refs", *_OWN)}
    return dataclasses.replace(found, inputs=inputs, overrides=overrides, extra={})


def _is_local(item: t.Any) -> bool:
    return isinstance(item, t.Mapping) and item.get("mode", "stage") == "stage" and item.get("binding") is None


def _strip_path(item: Dict) -> Dict:
    return {key: value for key, value in item.items() if key != "path"} if _is_local(item) else item


def _find_bindings(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, t.Mapping):
        for key, item in value.items():
            if key == "binding" and isinstance(item, str):
                yield item
            yield from _find_bindings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _find_bindings(item)
