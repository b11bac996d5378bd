package conformance

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// fill puts an object of each of many kinds into the check's namespace.
func (t *T) fill() {
	ns, opts := t.namespace, metav1.CreateOptions{}
	make := func(_ any, err error) { t.must(err) }
	core, apps := t.client.CoreV1(), t.client.AppsV1()
	make(apps.Deployments(ns).Create(t.ctx, deployment("web", 2), opts))
	make(apps.StatefulSets(ns).Create(t.ctx, statefulSet("db", 1), opts))
	make(t.client.BatchV1().Jobs(ns).Create(t.ctx, job("once", 1, "sleep", "600"), opts))
	make(core.Pods(ns).Create(t.ctx, pod("alone"), opts))
	make(core.Services(ns).Create(t.ctx, service("web"), opts))
	make(core.Secrets(ns).Create(t.ctx, &corev1.Secret{ObjectMeta: named("key")}, opts))
	make(core.ServiceAccounts(ns).Create(t.ctx, &corev1.ServiceAccount{ObjectMeta: named("robot")}, opts))
	make(core.LimitRanges(ns).Create(t.ctx, &corev1.LimitRange{ObjectMeta: named("limits")}, opts))
	make(core.ResourceQuotas(ns).Create(t.ctx, &corev1.ResourceQuota{
		ObjectMeta: named("quota"), Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("50")}},
	}, opts))
	make(core.PersistentVolumeClaims(ns).Create(t.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: named("data"),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, opts))
	make(t.client.RbacV1().Roles(ns).Create(t.ctx, &rbacv1.Role{ObjectMeta: named("reader")}, opts))
	make(t.client.NetworkingV1().NetworkPolicies(ns).Create(t.ctx, &networkingv1.NetworkPolicy{ObjectMeta: named("deny")}, opts))
	make(t.client.CoordinationV1().Leases(ns).Create(t.ctx, &coordinationv1.Lease{ObjectMeta: named("lead")}, opts))
	make(t.client.PolicyV1().PodDisruptionBudgets(ns).Create(t.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: named("web"),
		// It allows no eviction at all, and must not keep the namespace.
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector("web"), MinAvailable: &intstr.IntOrString{IntVal: 2}},
	}, opts))
}

// namespacesEmpty: a namespace says what it waits for, takes nothing new, and vanishes with all that is in it.
func namespacesEmpty(t *T) {
	t.fill()
	t.configMap("held", []string{"e2e.keelson/hold"})
	t.eventually("pods run", t.rolledOut("web", 2))
	api := t.client.CoreV1().Namespaces()
	t.must(api.Delete(t.ctx, t.namespace, metav1.DeleteOptions{}))
	t.eventually("it says what remains", func() (string, error) {
		ns, err := api.Get(t.ctx, t.namespace, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		equal(t, "phase", ns.Status.Phase, corev1.NamespaceTerminating)
		for _, condition := range ns.Status.Conditions {
			if condition.Type == corev1.NamespaceFinalizersRemaining && strings.Contains(condition.Message, "e2e.keelson/hold in 1 resource instances") {
				return "", nil
			}
		}
		return fmt.Sprintf("conditions %v", ns.Status.Conditions), nil
	})
	_, err := t.client.CoreV1().ConfigMaps(t.namespace).Create(t.ctx, &corev1.ConfigMap{ObjectMeta: named("late")}, metav1.CreateOptions{})
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.fail("a create in the terminating namespace: %v", err)
	}
	_, err = t.client.CoreV1().ConfigMaps(t.namespace).Patch(t.ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	t.must(err)
	t.eventually("it vanishes", t.namespaceGone(t.namespace))

	_, err = api.Create(t.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace, Labels: map[string]string{ours: "true"}}}, metav1.CreateOptions{})
	t.must(err)
	t.eventually("another of its name has what every namespace has", func() (string, error) {
		_, err := t.client.CoreV1().ServiceAccounts(t.namespace).Get(t.ctx, "default", metav1.GetOptions{})
		return "", err
	})
	pods, err := t.client.CoreV1().Pods(t.namespace).List(t.ctx, metav1.ListOptions{})
	t.must(err)
	equal(t, "pods in it", len(pods.Items), 0)
}

func (t *T) namespaceGone(name string) func() (string, error) {
	return func() (string, error) {
		ns, err := t.client.CoreV1().Namespaces().Get(t.ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("still there: %v", ns.Status.Conditions), nil
	}
}

// gone is how long the namespaces of checks may take to go.
const gone = 2 * time.Minute

// everythingGoes: of all the namespaces that checks made none is stuck.
func everythingGoes(t *T) {
	mine := t.namespace
	// Their controller looks again after half of the grace that pods have, and may have been started anew meanwhile.
	t.within(gone, "the namespaces of all checks vanish", func() (string, error) {
		list, err := t.client.CoreV1().Namespaces().List(t.ctx, metav1.ListOptions{LabelSelector: ours})
		if err != nil {
			return "", err
		}
		var left []string
		for _, ns := range list.Items {
			if ns.Name != mine {
				left = append(left, fmt.Sprintf("%s: %v", ns.Name, ns.Status.Conditions))
			}
		}
		return strings.Join(left, "\n"), nil
	})
}
