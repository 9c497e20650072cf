# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules, by promtool: each alert is raised by its fault alone, and none by a day on which nothing is wrong."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import typing as t

import yaml

from ansible_collections.muster.training.plugins.module_utils._model import gpu_faults
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import gpu_textfile
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import lease_metrics
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.monitoring import run_figures
from ansible_collections.muster.training.tests.support.alert_cases import ABSENT, BESIDE, FAULTS, HEALTHY, list_series
from ansible_collections.muster.training.tests.support.prometheus_program import find
from ansible_collections.muster.training.tools import cited_names

Dict = dict[str, t.Any]
RULES = pathlib.Path(__file__).resolve().parents[6] / "plugins/plugin_utils/_services/monitoring/muster.rules.yml"
LISTED = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
ALERTS: dict[str, Dict] = {rule["alert"]: rule for rule in LISTED if "alert" in rule}
FIRING = 'ALERTS{alertstate="firing"}'
# An hour of series, one value a minute; all rules hold for less than 45 minutes.
MINUTES, AT = 60, "56m"


def run_tests(folder: pathlib.Path, tests: t.Sequence[Dict], every: str = "1m") -> str:
    """Return what promtool says of these tests, empty where all pass."""
    place = folder / "tests.yml"
    place.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": every, "tests": list(tests)}))
    done = subprocess.run([find("promtool"), "test", "rules", str(place)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}"


def case(name: str, faults: t.Mapping[str, str | None], expression: str, samples: t.Sequence[str]) -> Dict:
    listed = [{"labels": labels, "value": 1} for labels in samples]
    asked = {"eval_time": AT, "expr": expression, "exp_samples": listed}
    return {"interval": "1m", "name": name, "input_series": list_series(faults, MINUTES), "promql_expr_test": [asked]}


def sample(name: str, labels: t.Mapping[str, str]) -> str:
    whole = {**labels, "alertname": name, "alertstate": "firing", "severity": ALERTS[name]["labels"]["severity"]}
    return f"ALERTS{{{', '.join(f'{key}={json.dumps(value)}' for key, value in whole.items())}}}"


def test_each_alert_has_a_fault_that_raises_it() -> None:
    assert set(FAULTS) == set(ALERTS) and len(ALERTS) >= 28


def test_each_alert_is_raised_by_its_fault_alone(tmp_path: pathlib.Path) -> None:
    """With its labels; where its series are missing it is silent, but for those that tell what is missing."""
    raised = []
    for name, (faults, labels) in FAULTS.items():
        if name in BESIDE:
            raised.append(
                case(name, faults, f'ALERTS{{alertname="{name}", alertstate="firing"}}', [sample(name, labels)])
            )
            count = [{"labels": "{}", "value": 1 + len(BESIDE[name])}]
            raised[-1]["promql_expr_test"].append({"eval_time": AT, "expr": f"count({FIRING})", "exp_samples": count})
        else:
            raised.append(case(name, faults, FIRING, [sample(name, labels)]))
    missing = [
        case(f"{name}: missing", dict.fromkeys(faults), f'ALERTS{{alertname="{name}"}}', [])
        for name, (faults, _labels) in FAULTS.items()
        if name not in ABSENT
    ]
    assert run_tests(tmp_path, [*raised, *missing]) == ""


def test_where_nothing_is_told_nothing_is_raised_but_that(tmp_path: pathlib.Path) -> None:
    empty = case("empty", dict.fromkeys(HEALTHY), FIRING, [sample("NoNodeMetrics", {"job": "muster-nodes"})])
    assert run_tests(tmp_path, [empty]) == ""


def test_a_day_on_which_nothing_is_wrong_raises_none(tmp_path: pathlib.Path) -> None:
    # At the first moment groups of rules may not have what others record.
    asked = [{"eval_time": f"{hour}h", "expr": "ALERTS", "exp_samples": []} for hour in range(1, 25)]
    day = {"interval": "2m", "input_series": list_series({}, 12 * 60), "promql_expr_test": asked}
    assert run_tests(tmp_path, [day], "2m") == ""


def test_two_exporters_of_one_gpu_are_one_series(tmp_path: pathlib.Path) -> None:
    """Prometheus keeps the labels of pods apart where two exporters run, or where it renames them."""
    more = {
        'DCGM_FI_DEV_GPU_UTIL{Hostname="a", UUID="G-1", gpu="0", pod="dcgm-1", exported_pod="r-0"}': "96x{m}",
        'DCGM_FI_DEV_GPU_UTIL{Hostname="a", UUID="G-1", gpu="0", instance="second:9400"}': "95x{m}",
        'DCGM_FI_DEV_XID_ERRORS{Hostname="a", UUID="G-1", gpu="0", exported_pod="r-0", instance="x"}': "79x{m}",
        'DCGM_FI_DEV_XID_ERRORS{Hostname="a", UUID="G-1", gpu="0", instance="second:9400"}': "79x{m}",
    }
    wanted = sample("GpuXidHardware", {"node": "a", "xid": "79"})
    test = case("two", t.cast("dict[str, str | None]", more), FIRING, [wanted])
    one = [{"labels": '{__name__="muster:gpu_utilisation:percent", node="a", uuid="G-1"}', "value": 97}]
    series = 'muster:gpu_utilisation:percent{node="a"}'
    test["promql_expr_test"].append({"eval_time": AT, "expr": series, "exp_samples": one})
    assert run_tests(tmp_path, [test]) == ""


def test_a_broken_expression_and_a_fault_that_raises_nothing_are_seen(tmp_path: pathlib.Path) -> None:
    """The tests above can fail."""
    assert "FAILED" in run_tests(tmp_path, [case("x", {}, FIRING, [sample("RunStalled", {"run": "r"})])])


def test_the_classes_of_xids_are_those_of_the_collection() -> None:
    found = {
        number: name
        for name in ("GpuXidHardware", "GpuXidWatch", "GpuXidProgram")
        for number in re.search(r'xid=~"([0-9|]+)"', ALERTS[name]["expr"])[1].split("|")  # type: ignore[index]
    }
    names = {"program": "GpuXidProgram", "watch": "GpuXidWatch"}
    wanted = {str(xid): names.get(action, "GpuXidHardware") for xid, (action, _why) in gpu_faults._XIDS.items()}
    assert found == wanted


def test_the_metrics_are_those_that_something_gives() -> None:
    ours = {
        *(f"{run_figures.PREFIX}{name}" for name in (*run_figures.FIGURES, *run_figures.LISTED_FIGURES)),
        *gpu_textfile.FIELDS.values(), *gpu_textfile.OTHERS, lease_metrics.USD_PER_HOUR, lease_metrics.DEADLINE,
    }  # fmt: skip
    used = {name for rule in LISTED for name in re.findall(r"\bmuster_[a-z_]+", rule["expr"])}
    assert used and used <= ours, used - ours
    recorded = {rule["record"] for rule in LISTED if "record" in rule}
    cited = {name for rule in ALERTS.values() for name in re.findall(r"muster:[a-z_:]+", rule["expr"])}
    assert cited <= recorded


def test_each_alert_says_what_to_do_and_that_exists() -> None:
    known = cited_names.read_known()
    for name, rule in ALERTS.items():
        told = rule["annotations"]
        assert set(told) == {"summary", "fix"} and len(told["fix"]) > 25, name
        for text in told.values():
            wrong = [match[0] for match in cited_names.find_missing_names(re.sub(r"{{.*?}}", "", text), known)]
            assert not wrong, (name, wrong)
