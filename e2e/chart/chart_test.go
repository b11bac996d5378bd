// Package chart renders helm/keelson as helm does and checks what comes out against the types of the API.
package chart

import (
	"bufio"
	"io"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// rendered are the objects of one rendering.
type rendered struct {
	service *corev1.Service
	secret  *corev1.Secret
	set     *appsv1.StatefulSet
	budget  *policyv1.PodDisruptionBudget
	test    *corev1.Pod
	monitor map[string]any
	notes   string
}

// render renders the chart with values (YAML) and decodes every document strictly.
func render(t *testing.T, values string) (rendered, error) {
	t.Helper()
	chart, err := loader.Load("../../helm/keelson")
	if err != nil {
		t.Fatal(err)
	}
	var given map[string]any
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	// It has no default: nobody publishes an image.
	if _, ok := given["image"]; !ok {
		given = chartutil.CoalesceTables(map[string]any{"image": map[string]any{"repository": "registry.test/keelson"}}, given)
	}
	release := chartutil.ReleaseOptions{Name: "dev", Namespace: "team", IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return rendered{}, err
	}
	var out rendered
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			out.notes = text
			continue
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
		for {
			document, err := documents.Read()
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if strings.TrimSpace(string(document)) == "" {
				continue
			}
			// It is the operator's, whose types are not here.
			if strings.Contains(string(document), "kind: ServiceMonitor") {
				if err := yaml.UnmarshalStrict(document, &out.monitor); err != nil {
					t.Fatalf("%s: %v\n%s", name, err, document)
				}
				continue
			}
			object, _, err := decoder.Decode(document, nil, nil)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			out.add(t, object)
		}
	}
	return out, nil
}

func (r *rendered) add(t *testing.T, object runtime.Object) {
	switch object := object.(type) {
	case *corev1.Service:
		r.service = object
	case *corev1.Secret:
		r.secret = object
	case *appsv1.StatefulSet:
		r.set = object
	case *corev1.Pod:
		r.test = object
	case *policyv1.PodDisruptionBudget:
		r.budget = object
	default:
		t.Fatalf("unexpected %T", object)
	}
}

func must(t *testing.T, values string) rendered {
	t.Helper()
	out, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDefaults(t *testing.T) {
	out := must(t, "")
	pod := out.set.Spec.Template
	for key, value := range out.service.Spec.Selector {
		if pod.Labels[key] != value {
			t.Errorf("the service selects %s=%s, the pod has %q", key, value, pod.Labels[key])
		}
	}
	if got := out.set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String(); got != "1Gi" {
		t.Errorf("the volume has %s", got)
	}
	if name := pod.Spec.Volumes[0].Secret.SecretName; name != out.secret.Name {
		t.Errorf("the pod mounts %s, the secret is %s", name, out.secret.Name)
	}
	config, err := clientcmd.Load(out.secret.Data["kubeconfig"])
	if err != nil {
		t.Fatal(err)
	}
	if server := config.Clusters["keelson"].Server; server != "https://dev-keelson.team.svc:443" {
		t.Errorf("the kubeconfig names %s", server)
	}
	token := config.AuthInfos["admin"].Token
	if tokens := string(out.secret.Data["tokens.csv"]); len(token) != 48 || !strings.HasPrefix(tokens, token+",admin,") {
		t.Errorf("token %q of the kubeconfig is not that of tokens.csv: %q", token, tokens)
	}
	for _, file := range []string{"ca.crt", "tls.crt", "tls.key", "sa.key"} {
		if !strings.HasPrefix(string(out.secret.Data[file]), "-----BEGIN ") {
			t.Errorf("%s is no PEM", file)
		}
	}
	if !strings.Contains(out.notes, "get secret dev-keelson-certs") {
		t.Errorf("the notes do not name the secret:\n%s", out.notes)
	}
}

func TestServiceMonitor(t *testing.T) {
	out := must(t, "")
	if out.monitor != nil {
		t.Errorf("a ServiceMonitor that nobody asked for: %v", out.monitor)
	}
	token := string(out.secret.Data["metrics-token"])
	if tokens := string(out.secret.Data["tokens.csv"]); len(token) != 48 || !strings.Contains(tokens, "\n"+token+",metrics,metrics,\"system:monitoring\"\n") {
		t.Errorf("%q is not a token of tokens.csv that may read metrics", token)
	}
	out = must(t, `{metrics: {serviceMonitor: {enabled: true, interval: 5s, labels: {release: prometheus}}}}`)
	labels, _, _ := unstructured.NestedStringMap(out.monitor, "metadata", "labels")
	if labels["release"] != "prometheus" {
		t.Errorf("labels %v", labels)
	}
	selector, _, _ := unstructured.NestedStringMap(out.monitor, "spec", "selector", "matchLabels")
	for key, value := range selector {
		if out.service.Labels[key] != value {
			t.Errorf("it selects %s=%s, the service has %q", key, value, out.service.Labels[key])
		}
	}
	endpoints, _, _ := unstructured.NestedSlice(out.monitor, "spec", "endpoints")
	var paths []string
	for _, endpoint := range endpoints {
		endpoint := endpoint.(map[string]any)
		paths = append(paths, endpoint["path"].(string))
		if endpoint["port"] != out.service.Spec.Ports[0].Name || endpoint["interval"] != "5s" {
			t.Errorf("endpoint %v", endpoint)
		}
		credentials, _, _ := unstructured.NestedStringMap(endpoint, "authorization", "credentials")
		if credentials["name"] != out.secret.Name || credentials["key"] != "metrics-token" {
			t.Errorf("credentials %v", credentials)
		}
		if name, _, _ := unstructured.NestedString(endpoint, "tlsConfig", "serverName"); name != "dev-keelson.team.svc" {
			t.Errorf("the server is called %s", name)
		}
	}
	if !slices.Equal(paths, []string{"/metrics", "/metrics/slis"}) {
		t.Errorf("paths %v", paths)
	}
}

func TestEtcd(t *testing.T) {
	out := must(t, `{replicas: 3, etcd: {servers: ["https://a:2379", "https://b:2379"], tlsSecret: etcd}, extraArgs: ["--v=2"]}`)
	args := out.set.Spec.Template.Spec.Containers[0].Args
	for _, want := range []string{"--etcd-servers=https://a:2379,https://b:2379", "--etcd-cafile=/etcd-certs/ca.crt", "--v=2"} {
		if !slices.Contains(args, want) {
			t.Errorf("no %s in %q", want, args)
		}
	}
	if *out.set.Spec.Replicas != 3 || len(out.set.Spec.VolumeClaimTemplates) != 0 {
		t.Errorf("%d replicas, %d volumes", *out.set.Spec.Replicas, len(out.set.Spec.VolumeClaimTemplates))
	}
	if _, err := render(t, "{replicas: 2}"); err == nil || !strings.Contains(err.Error(), "needs etcd.servers") {
		t.Errorf("two servers on an embedded store: %v", err)
	}
}

func TestImageIsNamed(t *testing.T) {
	if image := must(t, "").set.Spec.Template.Spec.Containers[0].Image; image != "registry.test/keelson:0.1.0" {
		t.Errorf("the pod runs %s", image)
	}
	if _, err := render(t, `{image: {tag: t1}}`); err == nil || !strings.Contains(err.Error(), "image.repository is needed") {
		t.Errorf("an image that is not named: %v", err)
	}
}

func TestOwnCertificates(t *testing.T) {
	out := must(t, `{certsSecret: mine, persistence: {enabled: false}, image: {repository: local/keelson, tag: t1}}`)
	if out.secret != nil {
		t.Error("a secret is made although one is given")
	}
	pod := out.set.Spec.Template.Spec
	if pod.Volumes[0].Secret.SecretName != "mine" || pod.Containers[0].Image != "local/keelson:t1" || len(out.set.Spec.VolumeClaimTemplates) != 0 {
		t.Errorf("%+v", pod)
	}
}
