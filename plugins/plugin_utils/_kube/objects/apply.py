# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies many objects by server-side apply: in stages, eight at a time, and only those that differ."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Sequence

from ....module_utils._model.errors import MusterError, RefusedError, TransportError
from ....module_utils._model.wording import name_some
from ..api.client import MANAGER, Client
from ..api.errors import NO_PATH, KubeError, ends_soon
from ..api.kinds import DEFINITIONS, Condition, KubeObject
from . import apply_plan, manifests
from . import diff as texts
from .apply_noop import applied_fields
from .apply_plan import ApplyStep, ApplyTarget, Prune

Action = t.Literal["created", "configured", "adopted", "unchanged", "pruned"]
# How long a transient refusal is retried.
_SOON_S = 10.0
_SHOWN_ERRORS = 3
# How admission webhooks say that another object does not exist (compiled at the first use).
_MISSING = r"""['"]([a-z0-9.-]+)['"] not found|not found: ['"]?([a-z0-9.-]+)"""


class Change(t.NamedTuple):
    """The change of one object. ``adopted``: its content was as wanted, and our field manager now owns its fields."""

    target: ApplyTarget
    action: Action
    before: KubeObject | None = None
    after: KubeObject | None = None

    def __repr__(self) -> str:
        return f"Change(target={self.target.title!r}, action={self.action!r})"

    def to_dict(self) -> dict[str, str | None]:
        """Return the change as an entry of a module's result."""
        resource = self.target.resource
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "namespace": self.target.namespace,
            "name": self.target.name,
            "action": self.action,
        }


class ApplyResult(t.NamedTuple):
    """The changes of an apply in the order of the objects, then the pruned ones.

    ``requests`` counts all requests, ``writes`` those that were not reads (in check mode these were dry runs).
    """

    changed: bool
    changes: tuple[Change, ...]
    requests: int
    writes: int

    def diff(self) -> list[dict[str, str]]:
        """Return Ansible's diff of what changed; values of Secrets are not shown."""
        changes = [change for change in self.changes if change.action != "unchanged"]
        return [texts.diff_entry(change.target.title, change.before, change.after) for change in changes]

    def objects(self) -> list[KubeObject | None]:
        """Return the objects as the server has them, in the order they were given."""
        return [change.after for change in self.changes if change.action != "pruned"]


def apply(
    client: Client,
    objects: object,
    manager: str = MANAGER,
    force: bool = False,
    check: bool = False,
    *,
    namespace: str | None = None,
    prune: Prune | None = None,
    validate: bool = False,
    timeout_s: float = 60.0,
) -> ApplyResult:
    """Apply ``objects`` (objects, lists of them, or YAML text) and return the changes.

    Namespaces are applied first, then definitions (which are waited for, ``timeout_s`` at most), then parts, work and
    admission webhooks. An object that is as wanted is not sent. ``force`` takes over fields from other managers. With
    ``check`` everything that differs is sent as a dry run and nothing is changed; ``validate`` does that first and then
    the real thing. ``namespace`` is for objects that name none.

    Raises :class:`KubeError` (conflicts, refusals), :class:`RefusedError` (being deleted) and :class:`TransportError`;
    the message names the object, and how many were applied before.
    """
    before = client.requests, client.writes
    targets = apply_plan.resolve_targets(client, manifests.collect(objects, "objects"), namespace)
    plan = apply_plan.make_plan(client, targets, manager, prune)
    run = ApplyRun(client, plan, manager, force, timeout_s)
    if check or validate:
        changes = run.dry_run()
    if not check:
        changes = run.execute()
    changed = any(change.action != "unchanged" for change in changes)
    return ApplyResult(changed, tuple(changes), client.requests - before[0], client.writes - before[1])


class ApplyRun:
    """Executes a plan, or sends it as a dry run."""

    def __init__(self, client: Client, plan: apply_plan.ApplyPlan, manager: str, force: bool, timeout_s: float) -> None:
        self._client = client
        self._plan = plan
        self._manager = manager
        self._force = force
        self._timeout_s = timeout_s
        self._new = {step.target.key for step in plan.steps if step.live is None}

    def dry_run(self) -> list[Change]:
        """Send everything as a dry run; all refusals are reported together."""
        outcomes = apply_plan.run_parallel(self._dry_run_step, self._plan.steps)
        removals = apply_plan.run_parallel(self._dry_run_removal, self._plan.removals)
        self._raise_errors([*outcomes, *removals], applied=0)
        return t.cast("list[Change]", [*outcomes, *removals])

    def execute(self) -> list[Change]:
        """Apply stage after stage; after a refusal no later stage is sent."""
        changes: dict[tuple[str, str, str, str], Change] = {}
        for stage in sorted({step.target.stage for step in self._plan.steps}):
            steps = [step for step in self._plan.steps if step.target.stage == stage]
            outcomes = apply_plan.run_parallel(self._apply_one, steps)
            applied = [outcome for outcome in outcomes if isinstance(outcome, Change)]
            changes |= {change.target.key: change for change in applied}
            self._raise_errors(outcomes, applied=sum(change.action != "unchanged" for change in changes.values()))
            if stage == DEFINITIONS:
                self._await_definitions(applied)
        in_order = [changes[step.target.key] for step in self._plan.steps]
        return [*in_order, *apply_plan.run_parallel(self._remove, self._plan.removals)]

    def _dry_run_step(self, step: ApplyStep) -> Change | MusterError:
        if not step.needed:
            return Change(step.target, "unchanged", step.live, step.live)
        try:
            return self._make_change(step, self._send(step.target, dry_run=True))
        except KubeError as error:
            # The namespace, definition or other object that it needs is among the objects of this apply.
            if step.live is None and self._needs_new_object(step.target, error):
                return Change(step.target, "created", None, step.target.value)
            return error
        except MusterError as error:
            return error

    def _needs_new_object(self, target: ApplyTarget, error: KubeError) -> bool:
        if error.status in (403, 422):
            # Admission checks that it exists, as Kubeflow's does for the runtime of a TrainJob.
            missing = {name for names in re.findall(_MISSING, error.detail) for name in names if name}
            return any(key[3] in missing for key in self._new - {target.key})
        if error.status != 404:
            return False
        resource = target.resource
        namespace = ("", "Namespace", "", target.namespace or "")
        definition = ("apiextensions.k8s.io", "CustomResourceDefinition", "", f"{resource.plural}.{resource.group}")
        return namespace in self._new or definition in self._new

    def _apply_one(self, step: ApplyStep) -> Change | MusterError:
        if not step.needed:
            return Change(step.target, "unchanged", step.live, step.live)
        clock = self._client.transport.clock
        end, pause = clock.monotonic() + _SOON_S, 0.2
        while True:
            try:
                return self._make_change(step, self._send(step.target, dry_run=False))
            except KubeError as error:
                if clock.monotonic() + pause > end or not self._is_worth_repeating(step.target, error):
                    return error
            except MusterError as error:
                return error
            clock.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _is_worth_repeating(self, target: ApplyTarget, error: KubeError) -> bool:
        if error.status == 404:
            # An API server serves a definition a moment after it is established.
            return target.stage > DEFINITIONS and error.reason == NO_PATH
        return ends_soon(error.detail)

    def _send(self, target: ApplyTarget, *, dry_run: bool) -> KubeObject:
        return self._client.apply(target.value, self._manager, force=self._force, dry_run=dry_run)

    def _make_change(self, step: ApplyStep, after: KubeObject) -> Change:
        if step.live is None:
            return Change(step.target, "created", None, after)
        if texts.strip_server_fields(step.live) != texts.strip_server_fields(after):
            return Change(step.target, "configured", step.live, after)
        api_version = step.target.resource.api_version
        same = applied_fields(step.live, self._manager, api_version) == applied_fields(
            after, self._manager, api_version
        )
        return Change(step.target, "unchanged" if same else "adopted", step.live, after)

    def _dry_run_removal(self, target: ApplyTarget) -> Change | MusterError:
        try:
            return self._remove(target, dry_run=True)
        except MusterError as error:
            return error

    def _remove(self, target: ApplyTarget, dry_run: bool = False) -> Change:
        uid = str(target.value["metadata"].get("uid") or "")
        self._client.delete(target.resource, target.name, target.namespace, uid=uid, dry_run=dry_run)
        return Change(target, "pruned", target.value)

    def _raise_errors(self, outcomes: Sequence[Change | MusterError], *, applied: int) -> None:
        """Raise one error for all objects that were refused; ``applied``: how many were changed before."""
        errors = [outcome for outcome in outcomes if not isinstance(outcome, Change)]
        if not errors:
            return
        state = f"{applied} of {len(self._plan.steps)} were applied" if applied else "nothing was changed"
        if len(errors) == 1:
            raise _with_context(errors[0], state, self._explain(errors[0]))
        if all(isinstance(error, KubeError) and error.is_terminating for error in errors):
            # One reason for all of them.
            spaces = {step.target.namespace for step in self._plan.steps if step.target.namespace}
            named = f"namespace {', '.join(sorted(spaces))}"
            raise RefusedError(f"{named} is being deleted ({self._explain(errors[0])}); {state}", errors[0].fix)
        shown = name_some([error.message for error in errors], _SHOWN_ERRORS, "; ")
        raise RefusedError(f"{len(errors)} objects were refused ({state}): {shown}", errors[0].fix)

    def _explain(self, error: MusterError) -> str:
        """Return what a terminating namespace waits for, empty for other errors."""
        namespace = next((step.target.namespace for step in self._plan.steps if step.target.namespace), None)
        if not isinstance(error, KubeError) or not any(cause[0] == "NamespaceTerminating" for cause in error.causes):
            return ""
        try:
            live = self._client.get("v1/Namespace", namespace or "")
        except MusterError:
            return ""
        return apply_plan.deletion_blockers(live) if live else ""

    def _await_definitions(self, changes: Sequence[Change]) -> None:
        waiting = {
            change.target.name: change.after or {} for change in changes if not is_established(change.after or {})
        }
        if not waiting:
            return
        versions = [int(item["metadata"]["resourceVersion"]) for item in waiting.values()]
        kind = changes[0].target.resource
        with self._client.watch(kind, since=str(min(versions)), timeout_s=self._timeout_s) as events:
            for event in events:
                name = (event.object.get("metadata") or {}).get("name") or ""
                if name in waiting:
                    waiting[name] = event.object
                    if is_established(event.object):
                        del waiting[name]
                if not waiting:
                    return
        name, item = next(iter(waiting.items()))
        conditions = "; ".join(f"{c.get('type')}={c.get('status')} {c.get('message', '')}" for c in _conditions(item))
        message = f"CustomResourceDefinition {name} is not established after {self._timeout_s:g} s: {conditions}"
        raise TransportError(message)


def is_established(definition: KubeObject) -> bool:
    """Return whether the server serves what a CustomResourceDefinition defines."""
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in _conditions(definition))


def _conditions(item: KubeObject) -> list[Condition]:
    return (item.get("status") or {}).get("conditions") or []


def _with_context(error: MusterError, state: str, more: str) -> MusterError:
    """Return the error with ``more`` and the state of the apply at the end of its message."""
    message = f"{error.message}{f' ({more})' if more else ''} ({state})"
    if isinstance(error, KubeError):
        detail = message[len(error.what) + 2 :]
        return KubeError(error.what, detail, error.fix, status=error.status, reason=error.reason, causes=error.causes)
    return TransportError(message, error.fix) if isinstance(error, TransportError) else MusterError(message, error.fix)
