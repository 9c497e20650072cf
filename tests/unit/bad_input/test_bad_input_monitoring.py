# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad input of monitoring: the items of the list and the tests that show them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.tests.unit.bad_input import test_bad_input_more_services as listed

_UNIT: t.Final = "tests/unit/plugins/plugin_utils/_services/monitoring"
_PUSH: t.Final = "tests/unit/plugins/plugin_utils/_workflows/training_job/monitoring/test_push.py"
_DEPLOY: t.Final = "tests/unit/plugins/plugin_utils/_workflows/services/test_deploy"
_STACK: t.Final = "tests/kube_api/test_exporter_stack.py"
_BOARDS: t.Final = "tests/unit/roles/monitoring_files/test_dashboards.py"
_REAL: t.Final = f"{_UNIT}/test_prometheus.py::test_a_real_one_takes_figures_once_its_receiver_is_on"
# Item -> the test that shows it, and words that are in it.
ITEMS: t.Final[dict[str, tuple[str, str]]] = {
    "rules without a series": (f"{_UNIT}/test_rules.py::test_where_nothing_is_told_nothing_is_raised_but_that", "NoNodeMetrics"),
    "two exporters of one GPU, labels that clash": (
        f"{_UNIT}/test_rules.py::test_two_exporters_of_one_gpu_are_one_series", "exported_pod"),
    "no targets": (f"{_UNIT}/test_rules.py::test_where_nothing_is_told_nothing_is_raised_but_that", "NoNodeMetrics"),
    "a point older than the window": (_REAL, "too old"),
    "a clock that is ahead": (_REAL, "too far in the future"),
    "a receiver that is off": (f"{_PUSH}::test_what_cannot_be_bound_is_named", "HTTP 404"),
    "an answer that a client would ask for ever": (
        f"{_UNIT}/test_prometheus.py::test_what_refuses_figures_is_asked_once", "invalid temporality"),
    "another server at the address": (f"{_UNIT}/test_prometheus.py::test_an_answer_is_judged", "not as Prometheus"),
    "credentials that are wrong": (
        f"{_UNIT}/test_component.py::test_it_is_bound_and_takes_the_metrics_of_a_run", "refuses the credentials"),
    "Prometheus away while a run trains": (
        f"{_PUSH}::test_a_run_ends_as_it_would_while_prometheus_is_away", "dropped meanwhile"),
    "two dashboards of one uid, a data source of elsewhere": (
        f"{_BOARDS}::test_no_two_dashboards_have_one_uid", "uid"),
    "a webhook that answers 500": (
        f"{_UNIT}/test_alerts.py::test_eight_faults_arrive_at_a_webhook_and_a_healthy_time_brings_none", "500"),
    "a GPU that does not tell all": (
        f"{_UNIT}/test_gpu_textfile.py::test_what_a_gpu_does_not_tell_has_no_figure", "SPARK"),
    "retention larger than the disk": (
        f"{_DEPLOY}_host.py::test_a_disk_that_metrics_would_fill_is_refused_before_anything_is_stored", "has room for 4.8 GB"),
    "retention larger than the claim": (
        f"{_DEPLOY}_cluster.py::test_metrics_that_would_fill_their_claim_are_refused", "has room for 4.3 GB"),
    "a scrape over a relay that is slow": (
        "tests/unit/roles/monitoring_files/test_role.py::test_prometheus_reads_what_the_role_writes", "scrape_timeout: 14s"),
    "a port that another program has": (
        "tests/unit/roles/exporters/test_role.py::test_another_program_at_its_port_is_refused", "port"),
    "a node_exporter that is there already": (
        "tests/unit/roles/exporters/test_role.py::test_a_node_exporter_that_is_there_is_kept", "kept"),
    "kube-prometheus-stack with the operator's definitions": (
        f"{_STACK}::test_exporters_of_others_are_kept_and_an_operator_gets_rules_and_dashboards", "muster-rules"),
    "an operator asked for where there is none": (
        f"{_STACK}::test_exporters_of_others_are_kept_and_an_operator_gets_rules_and_dashboards", "serves no PrometheusRule"),
    "a Prometheus that is only to be read": (
        f"{_UNIT}/test_prometheus.py::test_what_refuses_figures_is_asked_once", "405"),
    "a GPU for which nothing answers": (f"{_UNIT}/test_gpu_textfile.py::test_gpus_that_nothing_answers_for", "readable"),
}  # fmt: skip


@pytest.mark.parametrize("item", sorted(ITEMS))
def test_each_item_has_a_test(item: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "ITEMS", ITEMS)
    listed.test_each_item_has_a_test(item)
