package chart

import (
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

func podOf(t *testing.T, path string) (corev1.Pod, []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(text, &pod); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	document, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	return pod, document
}

// The patch is applied as kubeadm does (cmd/kubeadm/app/util/patches: a file named target+type is a strategic merge patch), to what
// kubeadm writes.
func TestPatchOfKubeadm(t *testing.T) {
	before, manifest := podOf(t, "../../tests/kubeadm/kube-apiserver.yaml")
	_, patch := podOf(t, "../../deploy/kubeadm/patches/kube-apiserver+strategic.yaml")
	merged, err := strategicpatch.StrategicMergePatch(manifest, patch, corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	var after corev1.Pod
	if err := yaml.UnmarshalStrict(merged, &after); err != nil {
		t.Fatal(err)
	}
	container := &after.Spec.Containers[0]
	if len(after.Spec.Containers) != 1 || container.Image != "keelson:dev" || container.ImagePullPolicy != corev1.PullIfNotPresent {
		t.Fatalf("%+v", after.Spec.Containers)
	}
	if cpu := container.Resources.Requests.Cpu().String(); cpu != "50m" {
		t.Errorf("it asks for %s", cpu)
	}
	// All else is kubeadm's.
	container.Image, container.ImagePullPolicy = before.Spec.Containers[0].Image, before.Spec.Containers[0].ImagePullPolicy
	container.Resources = before.Spec.Containers[0].Resources
	if !reflect.DeepEqual(before, after) {
		t.Errorf("it became\n%+v, it was\n%+v", after, before)
	}
}

// A cluster that runs is swapped by an edit of its static pod: by hand as deploy/README.md says, and by deploy/kind/swap.sh. Both
// change the image of kube-apiserver and nothing else, also where the pod has another container.
func TestEditsOfTheStaticPod(t *testing.T) {
	const manifest, other = "../../tests/kubeadm/kube-apiserver.yaml", "registry.k8s.io/kas-network-proxy/proxy-server:v0.30.0"
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	two := strings.Replace(string(text), "  containers:\n", "  containers:\n  - image: "+other+"\n    name: proxy\n", 1)
	for file, pattern := range map[string]string{
		"../../deploy/README.md":    `(?m)^ +sed -i '([^']+)' /etc/kubernetes/manifests/kube-apiserver\.yaml$`,
		"../../deploy/kind/swap.sh": `(?m)^ +sed '([^']+)' \$saved`,
	} {
		document, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindStringSubmatch(string(document))
		if found == nil {
			t.Fatalf("%s edits no static pod", file)
		}
		command := exec.Command("sed", strings.ReplaceAll(found[1], "$image", "keelson:dev"))
		command.Stdin = strings.NewReader(two)
		edited, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		var before, after corev1.Pod
		if err := yaml.UnmarshalStrict([]byte(two), &before); err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(edited, &after); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		containers := after.Spec.Containers
		if len(containers) != 2 || containers[0].Image != other || containers[1].Image != "keelson:dev" {
			t.Fatalf("%s: %+v", file, containers)
		}
		containers[1].Image = before.Spec.Containers[1].Image
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%s: it became\n%+v, it was\n%+v", file, after, before)
		}
	}
}
