package conformance

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

// budget lets the application's pods be evicted as long as that many stay available.
func (t *T) budget(name string, least int32) {
	api := t.client.PolicyV1().PodDisruptionBudgets(t.namespace)
	_, err := api.Create(t.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: named(name),
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector(name), MinAvailable: &intstr.IntOrString{IntVal: least}},
	}, metav1.CreateOptions{})
	t.must(err)
}

func (t *T) allows(name string, disruptions int32) func() (string, error) {
	return func() (string, error) {
		one, err := t.client.PolicyV1().PodDisruptionBudgets(t.namespace).Get(t.ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return differs("disruptions allowed", one.Status.DisruptionsAllowed, disruptions), nil
	}
}

func (t *T) evict(pod string) error {
	return t.client.PolicyV1().Evictions(t.namespace).Evict(t.ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: t.namespace},
	})
}

// evictions: a budget lets as many pods go as it says, and no more; without one every pod goes.
func evictions(t *T) {
	free := t.createPod(pod("free"))
	t.eventually("the free pod runs", t.podIs(free.Name, corev1.PodRunning))
	t.must(t.evict(free.Name))

	for _, name := range []string{"db-0", "db-1", "db-2"} {
		one := pod(name)
		one.Labels = app("db")
		one.Finalizers = []string{"e2e.keelson/hold"} // so that nothing changes between two evictions
		t.createPod(one)
		t.eventually(name+" runs", t.podIs(name, corev1.PodRunning))
	}
	t.cleanup(func() {
		for _, name := range []string{"db-0", "db-1", "db-2"} {
			_ = t.editPod(name, func(pod *corev1.Pod) { pod.Finalizers = nil })
		}
	})
	t.must(t.client.PolicyV1().PodDisruptionBudgets(t.namespace).DeleteCollection(t.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	scaleless := &policyv1.PodDisruptionBudget{
		ObjectMeta: named("db"),
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector("db"), MinAvailable: &intstr.IntOrString{IntVal: 2}},
	}
	_, err := t.client.PolicyV1().PodDisruptionBudgets(t.namespace).Create(t.ctx, scaleless, metav1.CreateOptions{})
	t.must(err)
	t.eventually("the budget allows one", t.allows("db", 1))
	t.must(t.evict("db-0"))
	err = t.evict("db-1")
	if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.fail("the second eviction: %v", err)
	}
	t.eventually("the budget allows none", t.allows("db", 0))
	first, err := t.client.CoreV1().Pods(t.namespace).Get(t.ctx, "db-0", metav1.GetOptions{})
	t.must(err)
	if first.DeletionTimestamp == nil {
		t.fail("the evicted pod is not deleted")
	}
	marked := false
	for _, condition := range first.Status.Conditions {
		marked = marked || (condition.Type == corev1.DisruptionTarget && condition.Reason == "EvictionByEvictionAPI")
	}
	if !marked {
		t.fail("the evicted pod has no DisruptionTarget condition: %v", first.Status.Conditions)
	}

	two := &policyv1.PodDisruptionBudget{
		ObjectMeta: named("again"),
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector("db"), MaxUnavailable: &intstr.IntOrString{IntVal: 1}},
	}
	_, err = t.client.PolicyV1().PodDisruptionBudgets(t.namespace).Create(t.ctx, two, metav1.CreateOptions{})
	t.must(err)
	if err := t.evict("db-2"); !apierrors.IsInternalError(err) {
		t.fail("with two budgets: %v", err)
	}
}

func (t *T) editPod(name string, edit func(*corev1.Pod)) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		pod, err := t.client.CoreV1().Pods(t.namespace).Get(t.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(pod)
		_, err = t.client.CoreV1().Pods(t.namespace).Update(t.ctx, pod, metav1.UpdateOptions{})
		return err
	})
}

func (t *T) editNode(name string, edit func(*corev1.Node)) {
	t.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := t.client.CoreV1().Nodes().Get(t.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(node)
		_, err = t.client.CoreV1().Nodes().Update(t.ctx, node, metav1.UpdateOptions{})
		return err
	}))
}

// taints keep pods away that do not tolerate them, and evict those that run.
func taints(t *T) {
	node := t.pool(1)[0]
	make := func(name string, tolerations ...corev1.Toleration) {
		one := pod(name)
		t.inPool(&one.Spec)
		one.Spec.Tolerations = append(one.Spec.Tolerations, tolerations...)
		t.createPod(one)
	}
	key := corev1.Toleration{Key: "e2e.keelson/bad", Operator: corev1.TolerationOpExists}
	brief := key
	brief.Effect, brief.TolerationSeconds = corev1.TaintEffectNoExecute, ptr.To[int64](2)
	make("plain")
	make("tolerant", key)
	make("brief", brief)
	for _, name := range []string{"plain", "tolerant", "brief"} {
		t.eventually(name+" runs", t.podIs(name, corev1.PodRunning))
	}
	t.editNode(node, func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "e2e.keelson/bad", Effect: corev1.TaintEffectNoExecute})
	})
	for _, name := range []string{"plain", "brief"} {
		t.eventually(name+" is evicted", t.podGone(name))
	}
	make("late")
	t.eventually("another is not scheduled, and told why", func() (string, error) {
		pod, err := t.client.CoreV1().Pods(t.namespace).Get(t.ctx, "late", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
				return "", nil
			}
		}
		return fmt.Sprintf("%v", pod.Status.Conditions), nil
	})
	equal(t, "the tolerant pod", fmt.Sprint(t.podIs("tolerant", corev1.PodRunning)()), fmt.Sprint("", error(nil)))
	t.editNode(node, func(node *corev1.Node) { node.Spec.Taints = node.Spec.Taints[:1] })
	t.eventually("without the taint it runs", t.podIs("late", corev1.PodRunning))
}

func (t *T) podGone(name string) func() (string, error) {
	return func() (string, error) {
		_, err := t.client.CoreV1().Pods(t.namespace).Get(t.ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "still there", err
	}
}

// lostNodes: one that is silent is not ready and tainted; its pods are evicted and run elsewhere. It comes back.
func lostNodes(t *T) {
	t.pool(2)
	d := deployment("web", 2)
	t.inPool(&d.Spec.Template.Spec)
	d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: selector("web"),
	}}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		d.Spec.Template.Spec.Tolerations = append(d.Spec.Template.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](1),
		})
	}
	t.createDeployment(d)
	t.eventually("runs", t.rolledOut("web", 2))
	victim := t.podsOf("web")[0]
	node := victim.Spec.NodeName
	t.plane.LoseNode(node)
	t.eventually("the node is not ready", func() (string, error) { return t.nodeLacks(node, corev1.ConditionUnknown) })
	t.eventually("its pod is evicted, and replaced on the other", func() (string, error) {
		alive := 0
		for _, pod := range t.podsOf("web") {
			if pod.Spec.NodeName != node && isReady(&pod) && pod.DeletionTimestamp == nil {
				alive++
			}
		}
		return differs("pods elsewhere", alive, 2), nil
	})
	lost, err := t.client.CoreV1().Pods(t.namespace).Get(t.ctx, victim.Name, metav1.GetOptions{})
	t.must(err)
	if lost.DeletionTimestamp == nil || lost.UID != victim.UID {
		t.fail("the lost pod is not being deleted: %v", lost.ObjectMeta)
	}
	t.must(t.plane.ReturnNode(node))
	t.eventually("the node is back", func() (string, error) { return t.nodeLacks(node, corev1.ConditionTrue) })
	t.eventually("the lost pod is gone", t.podGone(victim.Name))
}

// schedulingGates and a priority: a gated pod waits; pods have the priority of their class.
func scheduling(t *T) {
	gated := pod("gated")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "e2e.keelson/gate"}}
	gated.Spec.PriorityClassName = "system-node-critical"
	made := t.createPod(gated)
	equal(t, "priority", ptr.Deref(made.Spec.Priority, 0), 2000001000)
	equal(t, "preemption policy", ptr.Deref(made.Spec.PreemptionPolicy, ""), corev1.PreemptLowerPriority)
	t.eventually("is gated", func() (string, error) {
		pod, err := t.client.CoreV1().Pods(t.namespace).Get(t.ctx, "gated", metav1.GetOptions{})
		if err != nil || len(pod.Status.Conditions) == 0 {
			return "no condition", err
		}
		return differs("reason", pod.Status.Conditions[0].Reason, corev1.PodReasonSchedulingGated), nil
	})
	t.must(t.editPod("gated", func(pod *corev1.Pod) { pod.Spec.SchedulingGates = nil }))
	t.eventually("runs without the gate", t.podIs("gated", corev1.PodRunning))
}
