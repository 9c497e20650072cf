# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply against a real API server: what is sent, what is not, in which order, and what is refused how."""

from __future__ import annotations

import concurrent.futures
import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import apply as apply_module
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

Object = dict[str, t.Any]


def config_map(name: str, namespace: str = "", labels: Object | None = None, **data: str) -> Object:
    meta: Object = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**meta, **({"labels": labels} if labels else {})},
        "data": data,
    }


def many(namespace: str, number: int) -> list[Object]:
    """Objects of six kinds, as many of each."""
    made: list[Object] = []
    for n in range(number):
        meta = {"name": f"o{n}", "namespace": namespace, "labels": {"set": "many"}}
        made += [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": str(n)}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"a": f"value-{n}"}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": meta,
                "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]},
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": meta,
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
            },
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": meta,
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {
                        "metadata": {"labels": {"a": "b"}},
                        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"cpu": 0.5}}}]},
                    },
                },
            },
        ]
    return made


def versions(client: Client, objects: list[Object]) -> list[str]:
    found = [client.get(item, item["metadata"]["name"], item["metadata"].get("namespace")) for item in objects]
    return [item["metadata"]["resourceVersion"] if item else "" for item in found]


def test_requests_of_the_first_and_second_run(client: Client, namespace: str) -> None:
    objects = many(namespace, 8)
    first = apply(client, objects)
    assert first.changed and {change.action for change in first.changes} == {"created"}
    assert first.requests <= len(objects) + 6 + 3 and first.writes == len(objects)
    before = versions(client, objects)
    second = apply(client, objects)
    assert not second.changed and second.writes == 0 and second.requests <= 6 + 2
    assert versions(client, objects) == before


def test_what_the_server_writes_differently_is_not_sent_again(client: Client, awkward: str) -> None:
    first = apply(client, awkward, namespace="awkward")
    kinds = {change.target.resource for change in first.changes}
    assert first.requests <= len(first.changes) + len(kinds) + 3
    second = apply(client, awkward, namespace="awkward")
    assert [c.target.title for c in second.changes if c.action != "unchanged"] == []
    assert second.writes == 0 and second.requests <= len(kinds) + 2


CHANGES: list[tuple[str, t.Callable[[Object], None]]] = [
    ("a value", lambda o: o["spec"].update(replicas=2)),
    ("a label more", lambda o: o["metadata"]["labels"].update(x="y")),
    ("a label less", lambda o: o["metadata"].pop("labels")),
    ("a limit", lambda o: pod(o)["containers"][0]["resources"]["limits"].update(cpu="0.75")),
    ("a container more", lambda o: pod(o)["containers"].append({"name": "d", "image": "y"})),
    ("an argument", lambda o: pod(o)["containers"][0].update(args=["a"])),
    ("a key that was defaulted", lambda o: pod(o).update(terminationGracePeriodSeconds=5)),
    ("a toleration", lambda o: pod(o).update(tolerations=[{"key": "a", "operator": "Exists"}])),
    ("true for false", lambda o: pod(o).update(hostNetwork=True)),
    ("an empty label", lambda o: o["metadata"]["labels"].update(empty="")),
    ("a false that is none", lambda o: pod(o).update(automountServiceAccountToken=False)),
    ("a zero that is none", lambda o: o["spec"].update(revisionHistoryLimit=0)),
]


def pod(value: Object) -> Object:
    return t.cast(Object, value["spec"]["template"]["spec"])


@pytest.mark.parametrize(("what", "change"), CHANGES, ids=[name for name, _ in CHANGES])
def test_every_change_is_seen_and_undone(
    client: Client, namespace: str, what: str, change: t.Callable[[Object], None]
) -> None:
    original = many(namespace, 1)[5]
    apply(client, [original])
    altered = json.loads(json.dumps(original))
    change(altered)
    for value, expected in ((altered, "configured"), (altered, "unchanged"), (original, "configured")):
        result = apply(client, [value])
        assert [c.action for c in result.changes] == [expected], what
    assert not apply(client, [original]).changed


def test_drift_by_others_is_seen(client: Client, namespace: str, api: ApiServer) -> None:
    value = config_map("drift", namespace, a="1")
    apply(client, [value])
    api.kubectl("-n", namespace, "patch", "configmap", "drift", "-p", '{"data":{"a":"2","b":"3"}}')
    with pytest.raises(KubeError) as caught:
        apply(client, [value])
    assert "kubectl-patch owns .data.a" in str(caught.value) and caught.value.status == 409
    assert apply(client, [value], force=True).changed
    live = client.get("ConfigMap", "drift", namespace)
    assert live and live["data"] == {"a": "1", "b": "3"}, "what is not ours stays"
    assert not apply(client, [value]).changed


def test_objects_made_by_kubectl_are_adopted_once(client: Client, namespace: str, api: ApiServer) -> None:
    value = config_map("foreign", namespace, a="1")
    api.kubectl("create", "-f", "-", stdin=json.dumps(value))
    assert [c.action for c in apply(client, [value]).changes] == ["adopted"]
    assert apply(client, [value]).writes == 0


def test_check_mode_changes_nothing_and_predicts_what_comes(client: Client, namespace: str) -> None:
    objects = many(namespace, 2)
    apply(client, objects[:3])
    before = versions(client, objects)
    altered = [{**objects[0], "data": {"a": "other"}}, *objects[1:]]
    predicted = apply(client, altered, check=True)
    assert versions(client, objects) == before
    real = apply(client, altered)
    assert [c.action for c in predicted.changes] == [c.action for c in real.changes]
    assert predicted.diff() and len(predicted.diff()) == len(real.diff())


def test_check_mode_of_an_empty_world_with_definitions(client: Client, awkward: str) -> None:
    text = awkward.replace("awkward", "nowhere")
    result = apply(client, text, namespace="nowhere", check=True)
    assert {change.action for change in result.changes} == {"created"}
    assert client.get("Namespace", "nowhere") is None
    assert client.get("CustomResourceDefinition", "things.nowhere.example") is None


def test_validate_refuses_everything_before_anything(client: Client, namespace: str) -> None:
    objects = [config_map("good", namespace, a="1"), {**config_map("bad", namespace), "dta": {}}]
    with pytest.raises(KubeError, match=r"ConfigMap test-\d+/bad: .*\.dta: field not declared.*nothing was changed"):
        apply(client, objects, validate=True)
    assert client.get("ConfigMap", "good", namespace) is None


def test_refusals_of_several_objects_come_together(client: Client, namespace: str) -> None:
    bad = [{**config_map(f"bad-{n}", namespace), "data": {"a": n}} for n in range(5)]
    with pytest.raises(MusterError, match=r"5 objects were refused \(nothing was changed\).*and 2 more"):
        apply(client, bad, check=True)


def test_invalid_and_immutable_fields_are_named(client: Client, namespace: str) -> None:
    bad = many(namespace, 1)[5]
    bad["spec"]["selector"]["matchLabels"] = {"other": "one"}
    with pytest.raises(KubeError, match=r"Deployment .*is not valid: .*`selector` does not match template"):
        apply(client, [bad])
    job: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": namespace},
        "spec": {
            "completionMode": "NonIndexed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}},
        },
    }
    apply(client, [job])
    job["spec"]["completionMode"] = "Indexed"
    with pytest.raises(KubeError, match=r"Job .*immutable.*A new|Job .*immutable") as caught:
        apply(client, [job])
    assert caught.value.status == 422 and "needs a new object" in str(caught.value)


def test_a_definition_that_another_server_does_not_serve_yet_is_waited_for(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a balancer each API server learns of it by itself."""
    group = f"{namespace}.example.com"
    names = {"kind": "Late", "plural": "lates", "singular": "late", "listKind": "LateList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"lates.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
    }
    wanted = {"apiVersion": f"{group}/v1", "kind": "Late", "metadata": {"name": "x", "namespace": namespace}}
    monkeypatch.setattr(apply_module.ApplyRun, "_await_definitions", lambda *_given: None)
    result = apply(client, [definition, wanted])
    assert [change.action for change in result.changes] == ["created", "created"]


def test_a_terminating_namespace_is_named_with_what_holds_it(client: Client, namespace: str) -> None:
    held = config_map("held", namespace)
    held["metadata"]["finalizers"] = ["example.com/never"]
    client.create(held)
    client.delete("Namespace", namespace)
    with pytest.raises(MusterError, match=r"ConfigMap .*namespace is being deleted") as caught:
        apply(client, [config_map("late", namespace)])
    assert "\n" not in str(caught.value)
    # The objects of a run have one reason, too.
    with pytest.raises(
        MusterError, match=rf"^namespace {namespace} is being deleted \(.*\); nothing was changed\. Wait"
    ):
        apply(client, [config_map("late", namespace), config_map("later", namespace)], check=True)
    with pytest.raises(MusterError, match=r"Namespace .* is being deleted and waits for"):
        apply(
            client, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"a": "b"}}}]
        )
    client.patch("ConfigMap", "held", {"metadata": {"finalizers": None}}, namespace)


def test_an_admission_policy_is_named(client: Client, namespace: str) -> None:
    policy: list[Object] = [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": f"no-forbidden-{namespace}"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE", "UPDATE"],
                            "resources": ["configmaps"],
                        }
                    ],
                },
                "validations": [{"expression": "object.metadata.name != 'forbidden'", "message": "that name is taken"}],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": f"no-forbidden-{namespace}"},
            "spec": {"policyName": f"no-forbidden-{namespace}", "validationActions": ["Deny"]},
        },
    ]
    apply(client, policy)
    assert apply(client, policy).writes == 0

    def refused() -> str:
        try:
            apply(client, [config_map("forbidden", namespace, a="1")], check=True)
        except KubeError as error:
            return str(error)
        return ""

    # The policy takes effect a moment after it was made.
    for _ in range(100):
        text = refused()
        if text:
            break
        client.transport.clock.sleep(0.1)
    assert "that name is taken" in text and f"no-forbidden-{namespace}" in text and "\n" not in text


def test_a_webhook_that_is_down_is_named_within_ten_seconds(client: Client, namespace: str) -> None:
    hook: Object = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": f"down-{namespace}"},
        "webhooks": [
            {
                "name": "down.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": 1,
                "clientConfig": {"url": "https://127.0.0.1:1/x"},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
                ],
            }
        ],
    }
    apply(client, [hook])
    clock = client.transport.clock
    clock.sleep(1.5)
    began = clock.monotonic()
    with pytest.raises(KubeError, match=r"the admission webhook down\.example\.com does not answer"):
        apply(client, [config_map("x", namespace)])
    assert clock.monotonic() - began < 12
    client.delete("ValidatingWebhookConfiguration", f"down-{namespace}")


def test_a_kind_that_is_not_served_and_a_name_given_twice(client: Client, namespace: str) -> None:
    with pytest.raises(MusterError, match=r"jobset.x-k8s.io/v1alpha2 JobSet: the API server does not serve this kind"):
        apply(client, [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "a"}}])
    with pytest.raises(MusterError, match="it has Deployment in apps/v1|It has Deployment in apps/v1"):
        apply(client, [{"apiVersion": "extensions/v1beta1", "kind": "Deployment", "metadata": {"name": "a"}}])
    with pytest.raises(MusterError, match="given twice"):
        apply(client, [config_map("a", namespace), config_map("a", namespace)])


def reader(
    client: Client, api: ApiServer, namespace: str, *verbs: str, resources: tuple[str, ...] = ("configmaps",)
) -> Client:
    """Return a client that may do this with such objects of a namespace, and nothing else there."""
    rules = [{"apiGroups": [""], "resources": list(resources), "verbs": list(verbs)}]
    meta = {"name": "writer", "namespace": namespace}
    apply(
        client,
        [
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": rules},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
                "subjects": [{"kind": "User", "name": "reader"}],
            },
        ],
    )
    client.transport.clock.sleep(0.5)
    return connect({"kubeconfig": api.config({"token": "reader-token-0123456789"})})


def test_a_limited_user_applies_in_its_namespaces(client: Client, api: ApiServer, namespace: str) -> None:
    limited = reader(client, api, namespace, "get", "list", "patch", "create")
    both = [config_map("a", namespace, x="1"), config_map("b", namespace, x="1")]
    assert apply(limited, both).changed and apply(limited, both).writes == 0
    with pytest.raises(KubeError, match=r'User "reader" cannot'):
        apply(limited, [config_map("a", "default", x="1")])


def test_who_may_not_list_is_asked_for_no_list(client: Client, api: ApiServer, namespace: str) -> None:
    limited = reader(client, api, namespace, "get", "patch", "create")
    both = [config_map("a", namespace, x="1"), config_map("b", namespace, x="1")]
    assert apply(limited, both).writes == 2
    assert not apply(limited, both).changed


def test_many_at_once_keep_to_eight_connections(client: Client, namespace: str) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        sets = [[config_map(f"c{n}-{m}", namespace, a="1") for m in range(10)] for n in range(4)]
        results = list(pool.map(lambda objects: apply(client, objects), sets))
    assert all(result.changed for result in results)
    assert len(client.list("ConfigMap", namespace).items) == 40
