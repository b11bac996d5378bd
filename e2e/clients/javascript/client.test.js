// The JavaScript client against a server: KUBECONFIG names it. Run by scripts/clients-test.sh.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as k8s from "@kubernetes/client-node";

const namespace = "javascript-client";
const kubeconfig = new k8s.KubeConfig();
kubeconfig.loadFromDefault();
const core = kubeconfig.makeApiClient(k8s.CoreV1Api);

const configMap = (name, data = { a: "1" }) => ({ metadata: { name, labels: { test: "javascript" } }, data });
const refused = (code, reason, call) =>
  assert.rejects(call, (error) => error.code === code && JSON.parse(error.body).reason === reason);

before(() => core.createNamespace({ body: { metadata: { name: namespace } } }));
after(() => core.deleteNamespace({ name: namespace }));

test("versions and discovery", async () => {
  const version = await kubeconfig.makeApiClient(k8s.VersionApi).getCode();
  assert.equal(`${version.major}.${version.minor.replace("+", "")}`, "1.36");
  const resources = await core.getAPIResources();
  assert.ok(resources.resources.some((one) => one.kind === "ConfigMap"));
});

test("objects are made, read, changed and deleted", async () => {
  const at = { name: "crud", namespace };
  const made = await core.createNamespacedConfigMap({ namespace, body: configMap("crud") });
  assert.ok(made.metadata.creationTimestamp instanceof Date);
  await refused(409, "AlreadyExists", () => core.createNamespacedConfigMap({ namespace, body: configMap("crud") }));
  const stale = await core.readNamespacedConfigMap(at);
  await core.replaceNamespacedConfigMap({ ...at, body: { ...made, data: { a: "2" } } });
  await refused(409, "Conflict", () => core.replaceNamespacedConfigMap({ ...at, body: stale }));
  const patched = await core.patchNamespacedConfigMap({ ...at, body: [{ op: "add", path: "/data/b", value: "3" }] });
  assert.deepEqual(patched.data, { a: "2", b: "3" });
  await core.deleteNamespacedConfigMap(at);
  await refused(404, "NotFound", () => core.readNamespacedConfigMap(at));
});

test("objects of any kind are applied", async () => {
  const objects = k8s.KubernetesObjectApi.makeApiClient(kubeconfig);
  const body = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "applied", namespace }, data: { a: "1" } };
  const apply = (data, manager, force) =>
    objects.patch({ ...body, data }, undefined, undefined, manager, force, k8s.PatchStrategy.ServerSideApply);
  await apply({ a: "1", b: "1" }, "one", false);
  await refused(409, "Conflict", () => apply({ a: "2" }, "two", false));
  const forced = await apply({ a: "2" }, "two", true);
  assert.deepEqual(forced.data, { a: "2", b: "1" });
  assert.equal((await objects.read(body)).data.a, "2");
});

test("lists have pages", async () => {
  for (let i = 0; i < 5; i++) {
    await core.createNamespacedConfigMap({ namespace, body: configMap(`page-${i}`, { n: String(i) }) });
  }
  const names = [];
  let token;
  do {
    const page = await core.listNamespacedConfigMap({ namespace, limit: 2, _continue: token, labelSelector: "test=javascript" });
    names.push(...page.items.map((item) => item.metadata.name));
    token = page.metadata._continue;
  } while (token);
  assert.deepEqual(names.filter((name) => name.startsWith("page-")), [0, 1, 2, 3, 4].map((i) => `page-${i}`));
});

test("an informer follows objects", { timeout: 30_000 }, async () => {
  const list = () => core.listNamespacedSecret({ namespace });
  const informer = k8s.makeInformer(kubeconfig, `/api/v1/namespaces/${namespace}/secrets`, list);
  const seen = [];
  const gone = new Promise((resolve, reject) => {
    informer.on("add", (secret) => seen.push(`add ${secret.metadata.name}`));
    informer.on("update", (secret) => seen.push(`update ${secret.metadata.name}`));
    informer.on("delete", (secret) => { seen.push(`delete ${secret.metadata.name}`); resolve(); });
    informer.on("error", reject);
  });
  await informer.start();
  const at = { name: "followed", namespace };
  const made = await core.createNamespacedSecret({ namespace, body: { metadata: { name: "followed" }, stringData: { a: "1" } } });
  await core.replaceNamespacedSecret({ ...at, body: { ...made, data: { a: "Mg==" } } });
  await core.deleteNamespacedSecret(at);
  await gone;
  await informer.stop();
  assert.deepEqual(seen, ["add followed", "update followed", "delete followed"]);
});
