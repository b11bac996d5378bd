package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

const (
	// ours marks the namespaces of checks.
	ours = "e2e.keelson/check"
	// poolKey is the label, and the taint, of nodes that a check has for itself.
	poolKey = "e2e.keelson/pool"
	// image is what containers run, which hollow nodes do not look at.
	image = "e2e/app:1"
)

// app are the labels of an application.
func app(name string) map[string]string { return map[string]string{"app": name} }

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func selector(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: app(name)}
}

// podSpec runs the command; without one the pod runs until it is stopped.
func podSpec(command ...string) corev1.PodSpec {
	return corev1.PodSpec{
		Containers:                    []corev1.Container{{Name: "app", Image: image, Command: command}},
		TerminationGracePeriodSeconds: ptr.To[int64](5),
	}
}

func template(name string, command ...string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app(name)}, Spec: podSpec(command...)}
}

func pod(name string, command ...string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: app(name)}, Spec: podSpec(command...)}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: named(name),
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector(name), Template: template(name)},
	}
}

func statefulSet(name string, replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: named(name),
		Spec:       appsv1.StatefulSetSpec{Replicas: &replicas, ServiceName: name, Selector: selector(name), Template: template(name)},
	}
}

// job runs the command until it has succeeded as often as completions says.
func job(name string, completions int32, command ...string) *batchv1.Job {
	spec := podSpec(command...)
	spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{
		ObjectMeta: named(name),
		Spec: batchv1.JobSpec{
			Completions: &completions,
			Parallelism: ptr.To[int32](2),
			Template:    corev1.PodTemplateSpec{Spec: spec},
		},
	}
}

// create and get for what most checks use.

func (t *T) createPod(pod *corev1.Pod) *corev1.Pod {
	made, err := t.client.CoreV1().Pods(t.namespace).Create(t.ctx, pod, metav1.CreateOptions{})
	t.must(err)
	return made
}

func (t *T) createDeployment(d *appsv1.Deployment) *appsv1.Deployment {
	made, err := t.client.AppsV1().Deployments(t.namespace).Create(t.ctx, d, metav1.CreateOptions{})
	t.must(err)
	return made
}

// podsOf lists the pods of an application.
func (t *T) podsOf(name string) []corev1.Pod {
	list, err := t.client.CoreV1().Pods(t.namespace).List(t.ctx, metav1.ListOptions{LabelSelector: labels.FormatLabels(app(name))})
	t.must(err)
	return list.Items
}

// podIs is what is missing until the pod is in the phase, and ready if it runs.
func (t *T) podIs(name string, phase corev1.PodPhase) func() (string, error) {
	return func() (string, error) {
		pod, err := t.client.CoreV1().Pods(t.namespace).Get(t.ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if phase == corev1.PodRunning && pod.Status.Phase == phase && !isReady(pod) {
			return "not ready", nil
		}
		return differs("phase", pod.Status.Phase, phase), nil
	}
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// scale makes a deployment have so many pods; its controller may write its status at the same time.
func (t *T) scale(name string, replicas int32) {
	api := t.client.AppsV1().Deployments(t.namespace)
	t.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		scale, err := api.GetScale(t.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		scale.Spec.Replicas = replicas
		_, err = api.UpdateScale(t.ctx, name, scale, metav1.UpdateOptions{})
		return err
	}))
}

// rolledOut is what is missing until a deployment has that many pods, all of its newest template, available.
func (t *T) rolledOut(name string, replicas int32) func() (string, error) {
	return func() (string, error) {
		d, err := t.client.AppsV1().Deployments(t.namespace).Get(t.ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		s := d.Status
		seen := fmt.Sprintf("generation %d: %d replicas, %d updated, %d available", s.ObservedGeneration, s.Replicas, s.UpdatedReplicas, s.AvailableReplicas)
		want := fmt.Sprintf("generation %d: %d replicas, %d updated, %d available", d.Generation, replicas, replicas, replicas)
		return differs("deployment "+name, seen, want), nil
	}
}

// pool adds nodes that only this check's pods run on, and waits until they are ready.
func (t *T) pool(n int) []string {
	var names []string
	for range n {
		node, err := t.plane.AddNode(map[string]string{poolKey: t.namespace}, corev1.Taint{Key: poolKey, Value: t.namespace, Effect: corev1.TaintEffectNoSchedule})
		t.must(err)
		names = append(names, node.Name)
	}
	for _, name := range names {
		t.eventually("node "+name+" is ready", func() (string, error) { return t.nodeLacks(name, corev1.ConditionTrue) })
	}
	return names
}

// inPool makes the pods run on the check's own nodes.
func (t *T) inPool(spec *corev1.PodSpec) {
	spec.NodeSelector = map[string]string{poolKey: t.namespace}
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: poolKey, Operator: corev1.TolerationOpEqual, Value: t.namespace})
}

// nodeLacks is what is missing until the node's Ready condition is so, and its taints follow.
func (t *T) nodeLacks(name string, ready corev1.ConditionStatus) (string, error) {
	node, err := t.client.CoreV1().Nodes().Get(t.ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != ready {
			return fmt.Sprintf("Ready is %s", condition.Status), nil
		}
	}
	tainted := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return strings.HasPrefix(taint.Key, "node.kubernetes.io/") && taint.Key != corev1.TaintNodeUnschedulable
	})
	if ready == corev1.ConditionTrue && tainted {
		return fmt.Sprintf("taints %v", node.Spec.Taints), nil
	}
	return "", nil
}

func sortedKeys[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), " ") }
