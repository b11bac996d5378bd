package conformance

import (
	"context"
	"fmt"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// webhookKind is one of the two kinds of configurations. Their webhooks have the same fields but one.
type webhookKind struct {
	kind, plural string
	// handler is a webhook whose effect shows on ConfigMaps, but for those that are named good.
	handler admission.HandlerFunc
	// effect tells whether a ConfigMap that was made, or the error of making it, shows the effect.
	effect func(data map[string]string, err error) (bool, error)
}

var validatingKind = webhookKind{
	"ValidatingWebhookConfiguration", "validatingwebhookconfigurations",
	func(_ context.Context, request admission.Request) admission.Response {
		if strings.HasPrefix(request.Name, "good") {
			return admission.Allowed("")
		}
		return admission.Denied(fmt.Sprintf("%s of %s", request.Operation, request.Resource.Resource))
	},
	func(_ map[string]string, err error) (bool, error) {
		if err != nil && strings.Contains(err.Error(), "denied the request") {
			return true, nil
		}
		return false, err
	},
}

var mutatingKind = webhookKind{
	"MutatingWebhookConfiguration", "mutatingwebhookconfigurations",
	func(_ context.Context, request admission.Request) admission.Response {
		if strings.HasPrefix(request.Name, "good") {
			return admission.Allowed("")
		}
		return admission.Patched("", jsonpatch.NewOperation("add", "/data/marked", "yes"))
	},
	func(data map[string]string, err error) (bool, error) { return data["marked"] == "yes", err },
}

// ofBoth is a check of each kind of configurations.
func ofBoth(do func(*T, webhookKind)) func(*T) {
	return func(t *T) {
		do(t, validatingKind)
		do(t, mutatingKind)
	}
}

// configurations are those of a kind, as clients that know no kinds have them.
func (t *T) configurations(of webhookKind) dynamic.NamespaceableResourceInterface {
	client, err := dynamic.NewForConfig(t.config)
	t.must(err)
	return client.Resource(admissionv1.SchemeGroupVersion.WithResource(of.plural))
}

// hook is a webhook for ConfigMaps that are made in the namespace of the check.
func (t *T) hook(client admissionv1.WebhookClientConfig) admissionv1.ValidatingWebhook {
	return admissionv1.ValidatingWebhook{
		Name: "configmaps.keelson.example.com", ClientConfig: client, Rules: rules(admissionv1.Create, "configmaps"),
		AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone), NamespaceSelector: t.inNamespace(),
	}
}

// register creates a configuration with a webhook, until the check is over.
func (t *T) register(of webhookKind, name string, hook admissionv1.ValidatingWebhook) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&hook)
	t.must(err)
	made := &unstructured.Unstructured{Object: map[string]any{"webhooks": []any{fields}}}
	made.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind(of.kind))
	made.SetName(name)
	made.SetLabels(map[string]string{"keelson.e2e/webhooks-of": t.namespace})
	api := t.configurations(of)
	_, err = api.Create(t.ctx, made, metav1.CreateOptions{})
	t.undo(func(ctx context.Context) { _ = api.Delete(ctx, name, metav1.DeleteOptions{}) })
	return err
}

// amend changes the only webhook of the namespace's configuration by an update.
func (t *T) amend(of webhookKind, field string, value any) error {
	api := t.configurations(of)
	read, err := api.Get(t.ctx, t.namespace, metav1.GetOptions{})
	t.must(err)
	hooks, _, err := unstructured.NestedSlice(read.Object, "webhooks")
	t.must(err)
	hooks[0].(map[string]any)[field] = value
	t.must(unstructured.SetNestedSlice(read.Object, hooks, "webhooks"))
	_, err = api.Update(t.ctx, read, metav1.UpdateOptions{})
	return err
}

// affects waits until a webhook has its effect on ConfigMaps of a name, or none.
func (t *T) affects(of webhookKind, affected bool, name string) {
	t.eventually(fmt.Sprintf("%s affects %s: %v", of.kind, name, affected), func() (string, error) {
		made, failure := t.namedMap(name)
		if failure == nil {
			t.must(t.client.CoreV1().ConfigMaps(t.namespace).Delete(t.ctx, name, metav1.DeleteOptions{}))
		}
		shown, err := of.effect(made.Data, failure)
		return differs("affected", fmt.Sprint(shown), fmt.Sprint(affected)), err
	})
}

// webhooksAreChanged: an update and a patch of their rules are in effect at once.
func webhooksAreChanged(t *T, of webhookKind) {
	t.must(t.register(of, t.namespace, t.hook(t.serves(of.handler))))
	t.affects(of, true, "bad")
	t.must(t.amend(of, "rules", []any{map[string]any{
		"operations": []any{"UPDATE"}, "apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"configmaps"},
	}}))
	t.affects(of, false, "bad")
	api := t.configurations(of)
	updated, err := api.Get(t.ctx, t.namespace, metav1.GetOptions{})
	t.must(err)
	change := []byte(`[{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"]}]`)
	patched, err := api.Patch(t.ctx, t.namespace, types.JSONPatchType, change, metav1.PatchOptions{})
	t.must(err)
	if patched.GetResourceVersion() == updated.GetResourceVersion() {
		t.fail("the patch has no revision of its own")
	}
	t.affects(of, true, "bad")
	t.must(api.Delete(t.ctx, t.namespace, metav1.DeleteOptions{}))
}

// webhooksAreListed by a label, and deleted together.
func webhooksAreListed(t *T, of webhookKind) {
	client := t.serves(of.handler)
	api := t.configurations(of)
	selected := metav1.ListOptions{LabelSelector: "keelson.e2e/webhooks-of=" + t.namespace}
	for number := range 5 {
		t.must(t.register(of, fmt.Sprintf("%s-%d", t.namespace, number), t.hook(client)))
	}
	for _, left := range []int{5, 0} {
		list, err := api.List(t.ctx, selected)
		t.must(err)
		equal(t, of.plural, len(list.Items), left)
		t.affects(of, left > 0, "bad")
		t.must(api.DeleteCollection(t.ctx, metav1.DeleteOptions{}, selected))
	}
}

// condition is a match condition, as an object without a schema.
func condition(name, expression string) map[string]any {
	return map[string]any{"name": name, "expression": expression}
}

// webhooksHaveConditions that say what they are about, are stored as they are, and can be changed.
func webhooksHaveConditions(t *T, of webhookKind) {
	hook := t.hook(t.serves(of.handler))
	hook.MatchConditions = []admissionv1.MatchCondition{{Name: "not-skip-me", Expression: "object.metadata.name != 'skip-me'"}}
	t.must(t.register(of, t.namespace, hook))
	t.affects(of, true, "chosen")
	t.affects(of, false, "skip-me")
	conditions := []any{condition("not-skip-me", "object.metadata.name != 'skip-me'"), condition("not-chosen", "object.metadata.name != 'chosen'")}
	t.must(t.amend(of, "matchConditions", conditions))
	t.affects(of, false, "chosen")
	t.affects(of, true, "other")
	read, err := t.configurations(of).Get(t.ctx, t.namespace, metav1.GetOptions{})
	t.must(err)
	hooks, _, err := unstructured.NestedSlice(read.Object, "webhooks")
	t.must(err)
	equal(t, "conditions that are stored", fmt.Sprint(hooks[0].(map[string]any)["matchConditions"]), fmt.Sprint(conditions))
	err = t.amend(of, "matchConditions", []any{condition("named", "... [] bad expression")})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "compilation failed") {
		t.fail("not invalid: %v", err)
	}
	t.must(t.configurations(of).Delete(t.ctx, t.namespace, metav1.DeleteOptions{}))
}

// conditionsMustCompile, and name no more than there is.
func conditionsMustCompile(t *T, of webhookKind) {
	hook := t.hook(admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")})
	for expression, why := range map[string]string{
		"... [] bad expression":         "compilation failed",
		"object.metadata.name":          "must evaluate to bool",
		"variables.a == 'b'":            "undeclared reference to 'variables'",
		"authorizer.path('/x').nothing": "unexpected failed resolution",
	} {
		hook.MatchConditions = []admissionv1.MatchCondition{{Name: "invalid-expression-1", Expression: expression}}
		err := t.register(of, t.namespace, hook)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), why) {
			t.fail("%s with %q is not refused because of %q: %v", of.kind, expression, why, err)
		}
	}
}
