# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The few lines in which a playbook is shown: of the callback plugin ``brief``."""

from __future__ import annotations

import typing as t

from ansible.plugins.callback import CallbackBase

from ...module_utils._model.wording import name_some

_SHOWS = ("ansible.builtin.debug", "debug")
_ASSERTS = ("ansible.builtin.assert", "assert")
# What an assertion says that has no words of its own.
_PASSED = "All assertions passed"
_MOST_ITEMS = 8
# What Ansible warns of for each host whose interpreter it has looked for.
_DISCOVERY = "discovered Python interpreter"


class BriefOutput(CallbackBase):
    """Prints by Display, as the progress of tasks does."""

    def __init__(self, display: t.Any = None, options: t.Any = None) -> None:
        super().__init__(display=display, options=options)
        self._play = self._shown_play = ""
        self._is_skipped = False
        self._changed: dict[str, list[str]] = {}
        self._failed: dict[tuple[str, str], list[str]] = {}
        self._errors: set[str] = set()
        # By host, in their order.
        self._items: dict[str, dict[str, None]] = {}

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        """Note the play; it is named when something of it is shown."""
        self._say_results()
        self._play = play.get_name().strip()
        # A playbook whose plays are for some inventories alone names no host for the others.
        self._is_skipped = "all:!all" in str(play.hosts)

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        """Say what the task before changed, and where it failed."""
        self._say_results()

    def v2_playbook_on_handler_task_start(self, task: t.Any) -> None:
        """Say what the task before changed, and where it failed."""
        self._say_results()

    def v2_runner_on_ok(self, result: t.Any) -> None:
        """Show what a task shows, and note what it changed."""
        values = result.result
        self._warn(result)
        proves = result.task.action in _ASSERTS and values.get("msg") not in (None, _PASSED)
        if proves or result.task.action in _SHOWS:
            self._show({"msg": values["msg"]} if proves else values)
        elif values.get("changed"):
            self._changed.setdefault(result.task.get_name(), []).append(result.host.get_name())

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        """Say an error, once however many hosts have it and however many tasks repeat it."""
        self._warn(result)
        if not ignore_errors:
            self._fail("failed", result)
        self._items.pop(result.host.get_name(), None)

    def v2_runner_item_on_failed(self, result: t.Any) -> None:
        """Note why an item of a loop failed."""
        self._items.setdefault(result.host.get_name(), {})[_find_reason(result.result)] = None

    def v2_runner_on_skipped(self, result: t.Any) -> None:
        """Say what was found on the way to a task that was skipped."""
        self._warn(result)

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        """Say that a host does not answer."""
        self._warn(result)
        self._fail("unreachable", result)

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Say that a play has no hosts."""
        if not self._is_skipped:
            self._say("no hosts matched")

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        """Say on how many hosts something changed or failed."""
        self._say_results()
        names = sorted(stats.processed)
        bad = [name for name in names if stats.failures.get(name) or stats.dark.get(name)]
        changed = [name for name in names if stats.changed.get(name)]
        parts = [
            f"{len(names)} host{'' if len(names) == 1 else 's'}",
            f"changed on {len(changed)}",
            f"failed on {', '.join(bad)}" if bad else "no failure",
        ]
        self._display.display(" · ".join(parts), color="red" if bad else None)

    def _warn(self, result: t.Any) -> None:
        """Say each warning once, whatever module it is of; not that Ansible found the host's interpreter by itself."""
        for line in map(str, result.result.get("warnings") or ()):
            if _DISCOVERY not in line and line not in self._errors:
                self._errors.add(line)
                self._say(f"warning: {line}")

    def _fail(self, word: str, result: t.Any) -> None:
        # Of a loop the message says only that an item failed.
        items = self._items.pop(result.host.get_name(), None)
        text = "; ".join(items or [_find_reason(result.result)])
        self._failed.setdefault((f"{word}: {result.task.get_name()}", text), []).append(result.host.get_name())

    def _show(self, values: t.Mapping[str, t.Any]) -> None:
        shown = values.get("msg")
        if shown is None:
            others = {key: value for key, value in values.items() if not key.startswith("_") and key != "changed"}
            shown = [f"{key}: {self._dump_results(value)}" for key, value in others.items()]
        for line in shown if isinstance(shown, list) else [shown]:
            text = line if isinstance(line, str) else self._dump_results(line)
            if text not in self._errors:
                self._say(text)

    def _say_results(self) -> None:
        changed, self._changed = self._changed, {}
        for name, hosts in changed.items():
            self._say(f"changed: {name} ({_name_hosts(hosts)})", color="yellow")
        failed, self._failed = self._failed, {}
        for (name, text), hosts in failed.items():
            if text not in self._errors:
                self._errors.add(text)
                self._say(f"{name} ({_name_hosts(hosts)}): {text}", color="red")

    def _say(self, text: str, color: str | None = None) -> None:
        if self._play and self._play != self._shown_play:
            self._shown_play = self._play
            self._display.display(f"{self._play}:", color="blue")
        self._display.display(f"  {text}", color=color)


def _find_reason(values: t.Mapping[str, t.Any]) -> str:
    given = (values.get("msg"), values.get("stderr"), values.get("exception"), "no reason was given")
    return next(str(value).strip() for value in given if value)


def _name_hosts(hosts: t.Sequence[str]) -> str:
    return name_some(sorted(hosts), _MOST_ITEMS)
