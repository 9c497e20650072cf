# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every action plugin of the collection shares: options are parsed, work is done in process, errors are
one line.
"""

from __future__ import annotations

import pathlib
import re
import typing as t

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ...module_utils._model.errors import InputError
from .._ansible import supported as _supported  # noqa: F401  # pylint: disable=unused-import
from .._workflows.shared import progress
from .._workflows.shared.state_dir import OWN_CLUSTER, StateHome, cluster_kubeconfig
from . import errors as error_boundary
from . import variable_names

if t.TYPE_CHECKING:
    from .._hosts.node_client import NodeClient
    from .._workflows.shared import request

Dict = dict[str, t.Any]
_PLAYBOOKS = pathlib.Path(__file__).resolve().parents[3] / "playbooks"
STATE_HOME: dict[str, Dict] = {
    "cluster": {"type": "str", "default": "default"},
    "state_home": {"type": "dict", "default": {}},
}

# The strategy loads an action in the process that prints, before it forks the one in which the action runs.
progress.flush_each_line()
progress.keep_last_word()
variable_names.check_command_line()


class WorkflowAction(ActionBase):
    """Base of the action plugins: ``OPTIONS`` (and ``RULES`` between them) and a ``work`` that returns the result."""

    OPTIONS: t.ClassVar[dict[str, Dict]] = {}
    RULES: t.ClassVar[Dict] = {}
    # Whether it spends money or deletes what the user may need: then a misspelt variable is an error.
    REQUIRES_KNOWN_VARIABLES: t.ClassVar[bool] = False
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def work(self, options: Dict, variables: Dict) -> Dict:
        """Return the module's result; raise MusterError for what the user must know."""
        raise NotImplementedError

    def is_ending(self, options: Dict) -> bool:
        """Return whether it ends what bills, as far as this machine knows of it: then no store has to be there."""
        return False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Dict:
        """Parse the options and return what ``work`` returns, or a failure of one line."""
        super().run(tmp, task_vars)
        parse: t.Any = self.validate_argument_spec
        try:
            _unused, options = parse(self.OPTIONS, **self.RULES)
        except AnsibleActionFail as error:
            raise self._name_variables(error) from None
        # An empty answer of a survey means that the question was left open.
        cleaned = {key: None if value == "" else value for key, value in options.items()}
        variables = task_vars or {}
        return error_boundary.run_guarded(lambda: self._name_variable(cleaned, variables))

    def _variables(self) -> dict[str, str]:
        """Return, by option, the variable from which the playbook takes it: users of the playbooks know no option."""
        # Tasks that are made without a playbook were not written anywhere.
        read = getattr(self._task, "get_ds", None)
        written = read() if read else None
        arguments = written.get(self._task.action) if written else None
        return variable_names.find_variables(arguments) if isinstance(arguments, dict) else {}

    def _name_variables(self, error: AnsibleActionFail) -> AnsibleActionFail:
        text = str(error)
        named = {name: option for option, name in self._variables().items() if re.search(rf"\b{option}\b", text)}
        lines = [f"{option} is the variable {name}" for name, option in named.items() if name not in text]
        return AnsibleActionFail(f"{text} ({', '.join(lines)})") if lines else error

    def _name_variable(self, options: Dict, variables: Dict) -> Dict:
        try:
            return self._check_and_work(options, variables)
        except InputError as error:
            raise variable_names.name_variable(error, self._variables()) from None

    def _check_and_work(self, options: Dict, variables: Dict) -> Dict:
        """Refuse what no work may begin with: a number below 0, and a misspelt variable where it costs."""
        for name, value in options.items():
            if isinstance(value, int | float) and value < 0:
                raise InputError(name, f"must be at least 0, not {value:g}")
        check = variable_names.require_known if self.REQUIRES_KNOWN_VARIABLES else variable_names.warn_of_misspelt
        check(variables)
        return self._work_on_state(options, variables)

    def _work_on_state(self, options: Dict, variables: Dict) -> Dict:
        """Work on the state home, which is brought here and stored again where it is in a store."""
        home = (
            StateHome(options["state_home"], options.get("cluster") or "default") if "state_home" in options else None
        )
        store = home.store() if home else None
        if home is None or store is None:
            return self.work(self._add_kubeconfig(options, variables), variables)
        # Late: it is of use for remote states alone.
        from .._workflows.shared.state_sync import StateSync

        state = StateSync(store, home.folder, is_read_only=self.check, may_be_away=self.is_ending(options))
        try:
            with state:
                result = self.work(self._add_kubeconfig(options, variables), variables)
        except Exception:
            for problem in state.problems:
                self._display.warning(problem)
            raise
        if state.problems:
            result = {**result, "warnings": [*result.get("warnings", []), *state.problems]}
        return result

    def _add_kubeconfig(self, options: Dict, variables: Dict) -> Dict:
        """Return the options with the kubeconfig of a cluster that was brought up from here, where none is named."""
        if "kubeconfig" not in options or any(options.get(name) for name in ("kubeconfig", "context", "host")):
            return options
        setting, cluster = (self._templar.template(variables.get(name)) for name in ("muster_state", "muster_cluster"))
        home = StateHome(options.get("state_home") or setting, options.get("cluster") or cluster or "default")
        place = cluster_kubeconfig(home)
        return {**options, "kubeconfig": str(place), OWN_CLUSTER: True} if place.is_file() else options

    @property
    def check(self) -> bool:
        """Return whether nothing may be changed."""
        return bool(self._task.check_mode)

    @property
    def base(self) -> pathlib.Path:
        """Return the folder that relative paths of options are relative to.

        It is the playbook's; with a playbook of the collection itself it is the working directory, for nothing of the
        user's lies beside that one.
        """
        folder = pathlib.Path(self._loader.get_basedir())
        return pathlib.Path.cwd() if folder.resolve() == _PLAYBOOKS else folder

    def connect(self, variables: Dict) -> t.Callable[[t.Sequence[str]], list[NodeClient]]:
        """Return a function from host names to remotes over Ansible's own connections."""
        # Imported late: most actions need no connection to a host.
        from . import connections

        return lambda names: connections.open_remotes(self._task, self._play_context, variables, names)

    def request(self, options: Dict, variables: Dict, hosts: t.Sequence[str]) -> request.RunRequest:
        """Return what runners of jobs take: ``options``, and the play's hosts that ``hosts`` names."""
        # Late: most actions need nothing of jobs.
        from .._workflows.shared import request
        from . import command_line

        return request.RunRequest(
            options=options,
            hosts=hosts,
            hostvars=variables["hostvars"],
            base=self.base,
            check=self.check,
            connect=self.connect(variables),
            progress=self.reporter(),
            command_line=command_line.read_options(context.CLIARGS),
            unrepeated=command_line.read_unrepeated(context.CLIARGS),
        )

    def reporter(self) -> progress.Reporter:
        """Return where progress goes."""
        return progress.Reporter(Display().display)
