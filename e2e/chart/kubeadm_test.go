package chart

import (
	"os"
	"reflect"
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
