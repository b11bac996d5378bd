"""The Python client against a server: KUBECONFIG names it. Run by scripts/clients-test.sh."""

import threading
import unittest

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

NAMESPACE = "python-client"
GROUP, PLURAL = "python.example.com", "boats"


def config_map(name, **data):
    return client.V1ConfigMap(
        metadata=client.V1ObjectMeta(name=name, labels={"test": "python"}), data=data or {"a": "1"}
    )


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        config.load_kube_config()
        cls.core = client.CoreV1Api()
        cls.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))

    def refused(self, status, reason, call, *args, **kwargs):
        with self.assertRaises(ApiException) as caught:
            call(*args, **kwargs)
        self.assertEqual(caught.exception.status, status)
        self.assertIn(f'"reason":"{reason}"', caught.exception.body.replace('": "', '":"'))

    def test_versions_and_discovery(self):
        version = client.VersionApi().get_code()
        self.assertEqual((version.major, version.minor.rstrip("+")), ("1", "36"))
        groups = client.ApisApi().get_api_versions().groups
        self.assertIn("apps", [group.name for group in groups])
        kinds = [resource.kind for resource in self.core.get_api_resources().resources]
        self.assertIn("ConfigMap", kinds)

    def test_objects_are_made_read_changed_and_deleted(self):
        made = self.core.create_namespaced_config_map(NAMESPACE, config_map("crud"))
        self.assertIsNotNone(made.metadata.creation_timestamp.tzinfo)
        self.refused(409, "AlreadyExists", self.core.create_namespaced_config_map, NAMESPACE, config_map("crud"))
        stale = self.core.read_namespaced_config_map("crud", NAMESPACE)
        made.data["a"] = "2"
        self.core.replace_namespaced_config_map("crud", NAMESPACE, made)
        self.refused(409, "Conflict", self.core.replace_namespaced_config_map, "crud", NAMESPACE, stale)
        self.core.patch_namespaced_config_map("crud", NAMESPACE, {"data": {"b": "3"}})
        patch = [{"op": "remove", "path": "/data/a"}]
        patched = self.core.patch_namespaced_config_map("crud", NAMESPACE, patch)
        self.assertEqual(patched.data, {"b": "3"})
        self.core.delete_namespaced_config_map("crud", NAMESPACE)
        self.refused(404, "NotFound", self.core.read_namespaced_config_map, "crud", NAMESPACE)
        self.refused(422, "Invalid", self.core.create_namespaced_config_map, NAMESPACE, config_map("Not_A_Name"))

    def test_lists_have_pages_and_selectors(self):
        for i in range(7):
            self.core.create_namespaced_config_map(NAMESPACE, config_map(f"page-{i}", n=str(i)))
        names, token = [], None
        while token != "":
            page = self.core.list_namespaced_config_map(NAMESPACE, limit=3, _continue=token, label_selector="test=python")
            self.assertLessEqual(len(page.items), 3)
            names += [item.metadata.name for item in page.items]
            token = page.metadata._continue or ""
        self.assertEqual([name for name in names if name.startswith("page-")], [f"page-{i}" for i in range(7)])
        one = self.core.list_namespaced_config_map(NAMESPACE, field_selector="metadata.name=page-4")
        self.assertEqual([item.data for item in one.items], [{"n": "4"}])

    def test_watches_tell_of_changes_and_go_on_where_they_were(self):
        start = self.core.list_namespaced_config_map(NAMESPACE).metadata.resource_version

        def change():
            self.core.create_namespaced_config_map(NAMESPACE, config_map("watched"))
            self.core.patch_namespaced_config_map("watched", NAMESPACE, {"data": {"a": "2"}})
            self.core.delete_namespaced_config_map("watched", NAMESPACE)

        changes = threading.Thread(target=change)
        changes.start()
        seen, stream = [], watch.Watch()
        for event in stream.stream(
            self.core.list_namespaced_config_map,
            NAMESPACE,
            field_selector="metadata.name=watched",
            resource_version=start,
            timeout_seconds=30,
        ):
            seen.append((event["type"], event["object"].data["a"]))
            if event["type"] == "DELETED":
                stream.stop()
        changes.join()
        self.assertEqual(seen, [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")])

    def test_workloads_keep_their_defaults_and_scales(self):
        labels = {"app": "web"}
        container = client.V1Container(name="web", image="registry.example.com/web:1")
        template = client.V1PodTemplateSpec(
            metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
        )
        spec = client.V1DeploymentSpec(selector=client.V1LabelSelector(match_labels=labels), template=template)
        apps = client.AppsV1Api()
        made = apps.create_namespaced_deployment(
            NAMESPACE, client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec)
        )
        self.assertEqual(made.spec.replicas, 1)
        self.assertEqual(made.spec.strategy.rolling_update.max_surge, "25%")
        scale = apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 3}})
        self.assertEqual(scale.spec.replicas, 3)
        self.assertEqual(apps.read_namespaced_deployment("web", NAMESPACE).metadata.generation, 2)

    def test_custom_resources_and_the_dynamic_client(self):
        definitions = client.ApiextensionsV1Api()
        schema = {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {"oars": {"type": "integer", "default": 2}}}},
        }
        definitions.create_custom_resource_definition(
            {
                "metadata": {"name": f"{PLURAL}.{GROUP}"},
                "spec": {
                    "group": GROUP,
                    "scope": "Namespaced",
                    "names": {"plural": PLURAL, "kind": "Boat"},
                    "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
                },
            }
        )
        for event in watch.Watch().stream(
            definitions.list_custom_resource_definition, field_selector=f"metadata.name={PLURAL}.{GROUP}", timeout_seconds=30
        ):
            conditions = event["object"].status.conditions or []
            if any(one.type == "Established" and one.status == "True" for one in conditions):
                break
        boat = {"apiVersion": f"{GROUP}/v1", "kind": "Boat", "metadata": {"name": "one"}, "spec": {}}
        custom = client.CustomObjectsApi()
        made = custom.create_namespaced_custom_object(GROUP, "v1", NAMESPACE, PLURAL, boat)
        self.assertEqual(made["spec"], {"oars": 2})
        boats = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version=f"{GROUP}/v1", kind="Boat")
        applied = boats.server_side_apply(
            body={**boat, "spec": {"oars": 4}}, namespace=NAMESPACE, field_manager="python", force_conflicts=True
        )
        self.assertEqual(applied.spec.oars, 4)
        managers = [one.manager for one in applied.metadata.managedFields]
        self.assertIn("python", managers)


if __name__ == "__main__":
    unittest.main(verbosity=2)
