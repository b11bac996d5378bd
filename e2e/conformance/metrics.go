package conformance

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// window is over which time usage is measured; the autoscaler waits that long for a new pod.
const window = time.Second

var (
	nodeUsage = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("512Mi")}
	podUsage  = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
)

// metricsServer serves metrics.k8s.io as metrics-server does, with the same usage for all, and returns its port.
func (t *T) metricsServer() int32 {
	certificate, err := t.plane.Serving("metrics-server", t.extensionHost())
	t.must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	t.must(err)
	answer := func(w http.ResponseWriter, object any, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object)
	}
	mux, base := http.NewServeMux(), "/apis/"+metricsv1beta1.GroupName+"/v1beta1"
	mux.HandleFunc("GET "+base, func(w http.ResponseWriter, _ *http.Request) {
		verbs := metav1.Verbs{"get", "list"}
		answer(w, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: metricsv1beta1.SchemeGroupVersion.String(),
			APIResources: []metav1.APIResource{
				{Name: "nodes", Kind: "NodeMetrics", Verbs: verbs}, {Name: "pods", Namespaced: true, Kind: "PodMetrics", Verbs: verbs},
			},
		}, nil)
	})
	mux.HandleFunc("GET "+base+"/nodes", func(w http.ResponseWriter, r *http.Request) {
		list, err := t.nodeMetrics(r)
		answer(w, list, err)
	})
	pods := func(w http.ResponseWriter, r *http.Request) {
		list, err := t.podMetrics(r)
		answer(w, list, err)
	}
	mux.HandleFunc("GET "+base+"/pods", pods)
	mux.HandleFunc("GET "+base+"/namespaces/{namespace}/pods", pods)
	server := &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.cleanup(func() { _ = server.Close() })
	return int32(listener.Addr().(*net.TCPAddr).Port)
}

func (t *T) nodeMetrics(r *http.Request) (*metricsv1beta1.NodeMetricsList, error) {
	nodes, err := t.client.CoreV1().Nodes().List(r.Context(), selecting(r))
	if err != nil {
		return nil, err
	}
	list := &metricsv1beta1.NodeMetricsList{TypeMeta: typed("NodeMetricsList")}
	for _, node := range nodes.Items {
		list.Items = append(list.Items, metricsv1beta1.NodeMetrics{
			ObjectMeta: named(node.Name), Timestamp: metav1.Now(), Window: metav1.Duration{Duration: window}, Usage: nodeUsage,
		})
	}
	return list, nil
}

func (t *T) podMetrics(r *http.Request) (*metricsv1beta1.PodMetricsList, error) {
	pods, err := t.client.CoreV1().Pods(r.PathValue("namespace")).List(r.Context(), selecting(r))
	if err != nil {
		return nil, err
	}
	list := &metricsv1beta1.PodMetricsList{TypeMeta: typed("PodMetricsList")}
	for _, pod := range pods.Items {
		metrics := metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Timestamp: metav1.Now(), Window: metav1.Duration{Duration: window},
		}
		for _, container := range pod.Spec.Containers {
			metrics.Containers = append(metrics.Containers, metricsv1beta1.ContainerMetrics{Name: container.Name, Usage: podUsage})
		}
		list.Items = append(list.Items, metrics)
	}
	return list, nil
}

func selecting(r *http.Request) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: r.URL.Query().Get("labelSelector")}
}

func typed(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: metricsv1beta1.SchemeGroupVersion.String()}
}

// metrics of nodes and pods are shown by kubectl top, and the autoscaler acts on them.
func metrics(t *T) {
	web := deployment("web", 1)
	web.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	t.createDeployment(web)
	t.eventually("runs", t.rolledOut("web", 1))
	port := t.metricsServer()
	t.aggregates(metricsv1beta1.GroupName, "v1beta1", port, 100)
	t.eventually("metrics are discovered", func() (string, error) {
		_, err := t.client.Discovery().ServerResourcesForGroupVersion(metricsv1beta1.SchemeGroupVersion.String())
		return "", err
	})
	t.runs(
		call{args: "top nodes", want: `(?s)\ANAME +CPU\(cores\) +CPU\(%\) +MEMORY\(bytes\) +MEMORY\(%\) *\n.*^node-1 +250m +\d+% +512Mi +\d+% *$`},
		call{args: "top pods", want: `(?s)\ANAME +CPU\(cores\) +MEMORY\(bytes\) *\nweb-\S+ +200m +64Mi *$`},
		call{args: "top pods -A --sort-by=cpu -l app=web", want: `^` + t.namespace + ` +web-\S+ +200m +64Mi *$`},
		call{args: "top pods --containers", want: `^web-\S+ +app +200m +64Mi *$`},
		call{args: "autoscale deployment/web --min=1 --max=3 --cpu=50%", want: `autoscaled$`},
		call{args: "wait deployment/web --for=jsonpath={.status.availableReplicas}=3 --timeout=90s", want: `condition met$`},
		call{args: "get hpa web", want: `^web +Deployment/web +cpu: 200%/50% +1 +3 +\d`},
	)
}
