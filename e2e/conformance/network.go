package conformance

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: named(name),
		Spec: corev1.ServiceSpec{
			Selector: app(name),
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

// services: their endpoint slices and endpoints follow the ready pods.
func services(t *T) {
	made, err := t.client.CoreV1().Services(t.namespace).Create(t.ctx, service("web"), metav1.CreateOptions{})
	t.must(err)
	if !strings.HasPrefix(made.Spec.ClusterIP, "10.96.") {
		t.fail("cluster IP %q", made.Spec.ClusterIP)
	}
	t.createDeployment(deployment("web", 2))
	unready := pod("unready")
	unready.Labels = app("web")
	unready.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}}
	t.createPod(unready)

	follow := func(ready, notReady int) func() (string, error) {
		return func() (string, error) {
			addresses := map[string]bool{}
			for _, pod := range t.podsOf("web") {
				if pod.Status.PodIP != "" && pod.DeletionTimestamp == nil {
					addresses[fmt.Sprintf("%s %v", pod.Status.PodIP, isReady(&pod))] = true
				}
			}
			slices, err := t.client.DiscoveryV1().EndpointSlices(t.namespace).List(t.ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
			if err != nil {
				return "", err
			}
			inSlices := map[string]bool{}
			for _, slice := range slices.Items {
				for _, endpoint := range slice.Endpoints {
					inSlices[fmt.Sprintf("%s %v", endpoint.Addresses[0], *endpoint.Conditions.Ready)] = true
				}
			}
			if lack := differs("slices", sortedKeys(inSlices), sortedKeys(addresses)); lack != "" || len(addresses) != ready+notReady {
				return fmt.Sprintf("%d addresses; %s", len(addresses), lack), nil
			}
			endpoints, err := t.client.CoreV1().Endpoints(t.namespace).Get(t.ctx, "web", metav1.GetOptions{})
			if err != nil || len(endpoints.Subsets) == 0 {
				return "no subset", err
			}
			seen := fmt.Sprintf("%d ready, %d not", len(endpoints.Subsets[0].Addresses), len(endpoints.Subsets[0].NotReadyAddresses))
			return differs("endpoints", seen, fmt.Sprintf("%d ready, %d not", ready, notReady)), nil
		}
	}
	t.eventually("endpoints are the pods", follow(2, 1))
	t.scale("web", 3)
	t.eventually("endpoints follow", follow(3, 1))
	t.must(t.client.CoreV1().Services(t.namespace).Delete(t.ctx, "web", metav1.DeleteOptions{}))
	t.eventually("slices and endpoints go with the service", func() (string, error) {
		slices, err := t.client.DiscoveryV1().EndpointSlices(t.namespace).List(t.ctx, metav1.ListOptions{})
		if err != nil || len(slices.Items) > 0 {
			return "slices are there", err
		}
		_, err = t.client.CoreV1().Endpoints(t.namespace).Get(t.ctx, "web", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "endpoints are there", err
	})
}

// serviceTypes: a service changes from a cluster IP to a node port, to an external name, and back.
func serviceTypes(t *T) {
	api := t.client.CoreV1().Services(t.namespace)
	_, err := api.Create(t.ctx, service("web"), metav1.CreateOptions{})
	t.must(err)
	change := func(edit func(*corev1.ServiceSpec)) *corev1.Service {
		var changed *corev1.Service
		t.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
			one, err := api.Get(t.ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			edit(&one.Spec)
			changed, err = api.Update(t.ctx, one, metav1.UpdateOptions{})
			return err
		}))
		return changed
	}
	at := change(func(spec *corev1.ServiceSpec) { spec.Type = corev1.ServiceTypeNodePort })
	if port := at.Spec.Ports[0].NodePort; port < 30000 || port > 32767 {
		t.fail("node port %d", port)
	}
	taken := service("other")
	taken.Spec.Type = corev1.ServiceTypeNodePort
	taken.Spec.Ports[0].NodePort = at.Spec.Ports[0].NodePort
	_, err = api.Create(t.ctx, taken, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "provided port is already allocated") {
		t.fail("the same node port again: %v", err)
	}
	outside := change(func(spec *corev1.ServiceSpec) {
		spec.Type, spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
		spec.ClusterIP, spec.ClusterIPs, spec.Ports = "", nil, nil
	})
	equal(t, "cluster IP of an external name", outside.Spec.ClusterIP, "")
	_, err = api.Create(t.ctx, taken, metav1.CreateOptions{})
	t.must(err) // the port is free again
	back := change(func(spec *corev1.ServiceSpec) {
		spec.Type, spec.ExternalName, spec.Ports = corev1.ServiceTypeClusterIP, "", service("web").Spec.Ports
	})
	if back.Spec.ClusterIP == "" {
		t.fail("no cluster IP again")
	}
}

// kubernetesService is the server's own, with the address that it advertises.
func kubernetesService(t *T) {
	own, err := t.client.CoreV1().Services(metav1.NamespaceDefault).Get(t.ctx, "kubernetes", metav1.GetOptions{})
	t.must(err)
	equal(t, "cluster IP", own.Spec.ClusterIP, "10.96.0.1")
	slices, err := t.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(t.ctx, "kubernetes", metav1.GetOptions{})
	t.must(err)
	equal(t, "endpoints", fmt.Sprint(slices.Endpoints[0].Addresses), "[10.0.0.254]")
	leases, err := t.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.ctx, metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
	t.must(err)
	if len(leases.Items) == 0 || ptr.Deref(leases.Items[0].Spec.HolderIdentity, "") == "" {
		t.fail("no identity lease: %v", leases.Items)
	}
}

// autoscalers read and write the scale of what they scale; without metrics they keep within the bounds.
func autoscalers(t *T) {
	t.createDeployment(deployment("web", 1))
	t.eventually("runs", t.rolledOut("web", 1))
	_, err := t.client.AutoscalingV2().HorizontalPodAutoscalers(t.namespace).Create(t.ctx, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: named("web"),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    ptr.To[int32](3),
			MaxReplicas:    5,
		},
	}, metav1.CreateOptions{})
	t.must(err)
	t.eventually("scales up to the least", t.rolledOut("web", 3))
	t.eventually("says so", func() (string, error) {
		hpa, err := t.client.AutoscalingV2().HorizontalPodAutoscalers(t.namespace).Get(t.ctx, "web", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if hpa.Status.LastScaleTime == nil || hpa.Status.DesiredReplicas != 3 {
			return fmt.Sprintf("%+v", hpa.Status), nil
		}
		for _, condition := range hpa.Status.Conditions {
			if condition.Type == autoscalingv2.AbleToScale && condition.Status == corev1.ConditionTrue {
				return "", nil
			}
		}
		return fmt.Sprintf("conditions %v", hpa.Status.Conditions), nil
	})
	t.scale("web", 9)
	t.eventually("scales down to the most", t.rolledOut("web", 5))
}
