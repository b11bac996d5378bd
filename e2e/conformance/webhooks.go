package conformance

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionreviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// serves starts a webhook with controller-runtime's server, and returns where it is.
func (t *T) serves(handler admission.HandlerFunc) admissionv1.WebhookClientConfig {
	local := net.ParseIP("127.0.0.1")
	cert, key, err := certutil.GenerateSelfSignedCertKey(local.String(), []net.IP{local}, nil)
	t.must(err)
	folder, err := os.MkdirTemp("", "webhook")
	t.must(err)
	t.cleanup(func() { _ = os.RemoveAll(folder) })
	t.must(os.WriteFile(filepath.Join(folder, "tls.crt"), cert, 0o600))
	t.must(os.WriteFile(filepath.Join(folder, "tls.key"), key, 0o600))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	t.must(err)
	port := listener.Addr().(*net.TCPAddr).Port
	t.must(listener.Close())
	server := webhook.NewServer(webhook.Options{Host: local.String(), Port: port, CertDir: folder, TLSOpts: []func(*tls.Config){}})
	server.Register("/", &webhook.Admission{Handler: handler})
	ctx, cancel := context.WithCancel(t.ctx)
	t.cleanup(cancel)
	go func() { _ = server.Start(ctx) }()
	t.eventually("the webhook is served", func() (string, error) { return "", server.StartedChecker()(nil) })
	return admissionv1.WebhookClientConfig{URL: ptr.To(fmt.Sprintf("https://127.0.0.1:%d/", port)), CABundle: cert}
}

// rules select what is done to resources of the core group.
func rules(operation admissionv1.OperationType, resources ...string) []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{operation},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: resources},
	}}
}

// validatedBy registers a webhook for the namespace of the check.
func (t *T) validatedBy(client admissionv1.WebhookClientConfig, rules []admissionv1.RuleWithOperations, change func(*admissionv1.ValidatingWebhook)) {
	hook := admissionv1.ValidatingWebhook{
		Name: "validating.keelson.example.com", ClientConfig: client, Rules: rules, AdmissionReviewVersions: []string{"v1"},
		SideEffects: ptr.To(admissionv1.SideEffectClassNone), NamespaceSelector: t.inNamespace(),
	}
	if change != nil {
		change(&hook)
	}
	api := t.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := api.Create(t.ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: named(t.namespace), Webhooks: []admissionv1.ValidatingWebhook{hook}}, metav1.CreateOptions{})
	t.must(err)
	t.undo(func(ctx context.Context) { _ = api.Delete(ctx, t.namespace, metav1.DeleteOptions{}) })
}

// mutatedBy registers a webhook for the namespace of the check.
func (t *T) mutatedBy(client admissionv1.WebhookClientConfig, rules []admissionv1.RuleWithOperations) {
	hook := admissionv1.MutatingWebhook{
		Name: "mutating.keelson.example.com", ClientConfig: client, Rules: rules, AdmissionReviewVersions: []string{"v1"},
		SideEffects: ptr.To(admissionv1.SideEffectClassNone), NamespaceSelector: t.inNamespace(),
	}
	api := t.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := api.Create(t.ctx, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: named(t.namespace), Webhooks: []admissionv1.MutatingWebhook{hook}}, metav1.CreateOptions{})
	t.must(err)
	t.undo(func(ctx context.Context) { _ = api.Delete(ctx, t.namespace, metav1.DeleteOptions{}) })
}

func (t *T) inNamespace() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": t.namespace}}
}

// namedMap makes a ConfigMap with data of its name.
func (t *T) namedMap(name string) (*corev1.ConfigMap, error) {
	made := &corev1.ConfigMap{ObjectMeta: named(name), Data: map[string]string{"name": name}}
	return t.client.CoreV1().ConfigMaps(t.namespace).Create(t.ctx, made, metav1.CreateOptions{})
}

// deniedWith ends the check unless the error is a webhook's refusal with that explanation.
func (t *T) deniedWith(err error, why string) {
	if err == nil || !strings.Contains(err.Error(), "denied the request: "+why) {
		t.fail("not denied because of %q: %v", why, err)
	}
}

// webhooksDeny pods and ConfigMaps, whole and patched, deletions and attaching, but what their conditions and selectors leave out.
func webhooksDeny(t *T) {
	client := t.serves(func(_ context.Context, request admission.Request) admission.Response {
		if strings.HasPrefix(request.Name, "good") {
			return admission.Allowed("")
		}
		return admission.Denied(fmt.Sprintf("%s of %s", request.Operation, request.Resource.Resource)).WithWarnings("bad names are denied")
	})
	all := append(rules(admissionv1.OperationAll, "configmaps", "pods"), rules(admissionv1.Connect, "pods/attach")...)
	t.validatedBy(client, all, func(hook *admissionv1.ValidatingWebhook) {
		hook.MatchConditions = []admissionv1.MatchCondition{{Name: "skip", Expression: "!(request.name in ['skip-me', 'kube-root-ca.crt'])"}}
	})
	_, err := t.namedMap("bad")
	t.deniedWith(err, "CREATE of configmaps")
	_, err = t.client.CoreV1().Pods(t.namespace).Create(t.ctx, pod("bad"), metav1.CreateOptions{})
	t.deniedWith(err, "CREATE of pods")
	for _, name := range []string{"good", "skip-me"} {
		_, err = t.namedMap(name)
		t.must(err)
	}
	request := t.client.CoreV1().RESTClient().Post().Namespace(t.namespace).Resource("pods").Name("bad").SubResource("attach")
	t.deniedWith(request.Do(t.ctx).Error(), "CONNECT of pods")
}

// webhooksFailClosed: what they cannot be asked about is refused, and with Ignore allowed; their own configurations always are.
func webhooksFailClosed(t *T) {
	nobody := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: t.namespace, Name: "none", Path: ptr.To("/")}}
	t.validatedBy(nobody, rules(admissionv1.Create, "configmaps"), nil)
	_, err := t.namedMap("a")
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `service "none" not found`) {
		t.fail("not refused: %v", err)
	}
	api := t.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	change := []byte(`[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]`)
	_, err = api.Patch(t.ctx, t.namespace, types.JSONPatchType, change, metav1.PatchOptions{})
	t.must(err)
	t.eventually("is allowed", func() (string, error) {
		_, err := t.namedMap("a")
		if apierrors.IsAlreadyExists(err) {
			return "", nil
		}
		return "", err
	})
}

// webhooksMutate ConfigMaps and pods, which get their defaults afterwards.
func webhooksMutate(t *T) {
	client := t.serves(func(_ context.Context, request admission.Request) admission.Response {
		if request.Resource.Resource == "configmaps" {
			return admission.Patched("", jsonpatch.NewOperation("add", "/data/mutated", "yes"))
		}
		made := &corev1.Pod{}
		if err := json.Unmarshal(request.Object.Raw, made); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		made.Spec.InitContainers = append(made.Spec.InitContainers, corev1.Container{Name: "added", Image: image})
		changed, err := json.Marshal(made)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.PatchResponseFromRaw(request.Object.Raw, changed)
	})
	t.mutatedBy(client, rules(admissionv1.Create, "configmaps", "pods"))
	made, err := t.namedMap("a")
	t.must(err)
	equal(t, "the mutated ConfigMap", made.Data["mutated"], "yes")
	created, err := t.client.CoreV1().Pods(t.namespace).Create(t.ctx, pod("a"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	t.must(err)
	equal(t, "containers", len(created.Spec.InitContainers), 1)
	equal(t, "a default of what was added", created.Spec.InitContainers[0].TerminationMessagePolicy, corev1.TerminationMessageReadFile)
}

// webhooksHaveTimeouts: a slow one is waited for as long as its configuration says.
func webhooksHaveTimeouts(t *T) {
	client := t.serves(func(ctx context.Context, request admission.Request) admission.Response {
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second):
		}
		return admission.Response{AdmissionResponse: admissionreviewv1.AdmissionResponse{UID: request.UID, Allowed: true}}
	})
	t.validatedBy(client, rules(admissionv1.Create, "configmaps"), func(hook *admissionv1.ValidatingWebhook) { hook.TimeoutSeconds = ptr.To[int32](1) })
	start := time.Now()
	_, err := t.namedMap("a")
	if err == nil || !strings.Contains(err.Error(), "context deadline exceeded") {
		t.fail("not refused: %v", err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.fail("it took %v", took)
	}
	api := t.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	change := []byte(`[{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 10}]`)
	_, err = api.Patch(t.ctx, t.namespace, types.JSONPatchType, change, metav1.PatchOptions{})
	t.must(err)
	t.eventually("is waited for", func() (string, error) {
		_, err := t.namedMap("a")
		return "", err
	})
}
