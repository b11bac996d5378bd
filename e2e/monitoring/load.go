package monitoring

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// workers are the clients that work at the same time.
const workers = 4

func clientOf(config *rest.Config) (*kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = -1, -1
	return kubernetes.NewForConfig(config)
}

// load makes every kind of request for a while, some of which fail.
func load(t *testing.T, config *rest.Config, length time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	register(t, config)
	var wait sync.WaitGroup
	for worker := range workers {
		client, err := clientOf(config)
		if err != nil {
			t.Fatal(err)
		}
		wait.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				work(ctx, client, fmt.Sprintf("load-%d-%d", worker, round))
			}
		})
	}
	wait.Wait()
}

// register registers a webhook that cannot be reached, which lets everything through.
func register(t *testing.T, config *rest.Config) {
	t.Helper()
	client, err := clientOf(config)
	if err != nil {
		t.Fatal(err)
	}
	url, ignore, none := "https://127.0.0.1:1/", admissionv1.Ignore, admissionv1.SideEffectClassNone
	hooks := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "load"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    "load.example.com",
			ClientConfig:            admissionv1.WebhookClientConfig{URL: &url},
			FailurePolicy:           &ignore,
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), hooks, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// work is one round of a client. What fails has failed because the time is over, or was to fail.
func work(ctx context.Context, client *kubernetes.Clientset, name string) {
	maps := client.CoreV1().ConfigMaps("default")
	watch, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err == nil {
		defer watch.Stop()
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "1"}}
	if created, err := maps.Create(ctx, object, metav1.CreateOptions{}); err == nil {
		created.Data["a"] = "2"
		_, _ = maps.Update(ctx, created, metav1.UpdateOptions{})
	}
	_, _ = maps.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"a":"3"}}`), metav1.PatchOptions{})
	for range 5 {
		_, _ = maps.Get(ctx, name, metav1.GetOptions{})
	}
	_, _ = maps.List(ctx, metav1.ListOptions{})
	_, _ = client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	_, _ = maps.Get(ctx, "none", metav1.GetOptions{})
	_ = maps.Delete(ctx, name, metav1.DeleteOptions{})
}
