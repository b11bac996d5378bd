package conformance

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// quotas count what there is, refuse what is too much, and count again when something goes.
func quotas(t *T) {
	_, err := t.client.CoreV1().ResourceQuotas(t.namespace).Create(t.ctx, &corev1.ResourceQuota{
		ObjectMeta: named("quota"),
		Spec:       corev1.ResourceQuotaSpec{Hard: quantities("pods", "2", "requests.cpu", "1", "count/secrets", "1", "services.nodeports", "0")},
	}, metav1.CreateOptions{})
	t.must(err)
	uses := func(want string) func() (string, error) {
		return func() (string, error) {
			quota, err := t.client.CoreV1().ResourceQuotas(t.namespace).Get(t.ctx, "quota", metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			if len(quota.Status.Used) == 0 {
				return "nothing is counted yet", nil
			}
			pods, cpu, secrets := quota.Status.Used["pods"], quota.Status.Used["requests.cpu"], quota.Status.Used["count/secrets"]
			return differs("used", fmt.Sprintf("%s pods, %s cpu, %s secrets", pods.String(), cpu.String(), secrets.String()), want), nil
		}
	}
	t.eventually("is counted", uses("0 pods, 0 cpu, 0 secrets"))
	make := func(name, cpu string) error {
		one := pod(name)
		if cpu != "" {
			one.Spec.Containers[0].Resources.Requests = quantities("cpu", cpu)
		}
		_, err := t.client.CoreV1().Pods(t.namespace).Create(t.ctx, one, metav1.CreateOptions{})
		return err
	}
	refused := func(what string, err error, why string) {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), why) {
			t.fail("%s: %v", what, err)
		}
	}
	t.must(make("a", "500m"))
	refused("without a request", make("x", ""), "must specify requests.cpu")
	refused("too much CPU", make("x", "600m"), "exceeded quota: quota, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1")
	t.must(make("b", "250m"))
	refused("too many pods", make("x", "100m"), "exceeded quota: quota, requested: pods=1, used: pods=2, limited: pods=2")
	t.eventually("both are counted", uses("2 pods, 750m cpu, 0 secrets"))
	_, err = t.client.CoreV1().Secrets(t.namespace).Create(t.ctx, &corev1.Secret{ObjectMeta: named("one")}, metav1.CreateOptions{})
	t.must(err)
	_, err = t.client.CoreV1().Secrets(t.namespace).Create(t.ctx, &corev1.Secret{ObjectMeta: named("two")}, metav1.CreateOptions{})
	refused("too many secrets", err, "exceeded quota")
	outside := service("web")
	outside.Spec.Type = corev1.ServiceTypeNodePort
	_, err = t.client.CoreV1().Services(t.namespace).Create(t.ctx, outside, metav1.CreateOptions{})
	refused("a node port", err, "services.nodeports=1")
	for _, name := range []string{"a", "b"} {
		t.eventually(name+" runs", t.podIs(name, corev1.PodRunning))
	}
	t.must(t.client.CoreV1().Pods(t.namespace).Delete(t.ctx, "a", metav1.DeleteOptions{}))
	t.must(t.client.CoreV1().Secrets(t.namespace).Delete(t.ctx, "one", metav1.DeleteOptions{}))
	t.eventually("is counted again", uses("1 pods, 250m cpu, 0 secrets"))
	t.must(make("c", "750m"))
}

// limitRanges give pods what they do not say, and refuse what is out of bounds.
func limitRanges(t *T) {
	_, err := t.client.CoreV1().LimitRanges(t.namespace).Create(t.ctx, &corev1.LimitRange{
		ObjectMeta: named("limits"),
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type:           corev1.LimitTypeContainer,
			Default:        quantities("cpu", "500m", "memory", "256Mi"),
			DefaultRequest: quantities("cpu", "100m"),
			Max:            quantities("cpu", "1"),
			Min:            quantities("memory", "16Mi"),
		}}},
	}, metav1.CreateOptions{})
	t.must(err)
	made := t.createPod(pod("web"))
	got := made.Spec.Containers[0].Resources
	equal(t, "cpu", got.Requests.Cpu().String()+"/"+got.Limits.Cpu().String(), "100m/500m")
	equal(t, "memory", got.Requests.Memory().String()+"/"+got.Limits.Memory().String(), "256Mi/256Mi")
	big := pod("big")
	big.Spec.Containers[0].Resources.Limits = quantities("cpu", "2", "memory", "8Mi")
	_, err = t.client.CoreV1().Pods(t.namespace).Create(t.ctx, big, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "maximum cpu usage per Container is 1, but limit is 2") ||
		!strings.Contains(err.Error(), "minimum memory usage per Container is 16Mi, but request is 8Mi") {
		t.fail("out of bounds: %v", err)
	}
	t.eventually("runs", t.podIs("web", corev1.PodRunning))
}
