package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// marker is a webhook that marks ConfigMaps.
func (t *T) marker() admissionv1.WebhookClientConfig {
	return t.serves(func(_ context.Context, _ admission.Request) admission.Response {
		return admission.Patched("", jsonpatch.NewOperation("add", "/data/marked", "yes"))
	})
}

// marks waits until ConfigMaps of a name are marked, or no longer.
func (t *T) marks(marked bool, name string) {
	want := map[bool]string{true: "yes"}[marked]
	t.eventually(fmt.Sprintf("marked %v", marked), func() (string, error) {
		made, err := t.namedMap(name)
		if err != nil {
			return "", err
		}
		t.must(t.client.CoreV1().ConfigMaps(t.namespace).Delete(t.ctx, name, metav1.DeleteOptions{}))
		return differs("mark", made.Data["marked"], want), nil
	})
}

// mutatingWebhooksAreChanged: an update and a patch of their rules are in effect at once.
func mutatingWebhooksAreChanged(t *T) {
	t.mutatedBy(t.marker(), rules(admissionv1.Create, "configmaps"))
	t.marks(true, "a")
	api := t.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	hooks, err := api.Get(t.ctx, t.namespace, metav1.GetOptions{})
	t.must(err)
	hooks.Webhooks[0].Rules[0].Operations = []admissionv1.OperationType{admissionv1.Update}
	updated, err := api.Update(t.ctx, hooks, metav1.UpdateOptions{})
	t.must(err)
	t.marks(false, "a")
	change := []byte(`[{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"]}]`)
	patched, err := api.Patch(t.ctx, t.namespace, types.JSONPatchType, change, metav1.PatchOptions{})
	t.must(err)
	if patched.ResourceVersion == updated.ResourceVersion {
		t.fail("the patch has no revision of its own")
	}
	t.marks(true, "a")
}

// mutatingWebhooksAreListed by a label, and deleted together.
func mutatingWebhooksAreListed(t *T) {
	client := t.marker()
	api := t.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	label := map[string]string{"keelson.e2e/webhooks-of": t.namespace}
	selected := metav1.ListOptions{LabelSelector: "keelson.e2e/webhooks-of=" + t.namespace}
	t.cleanup(func() { _ = api.DeleteCollection(context.Background(), metav1.DeleteOptions{}, selected) })
	for number := range 5 {
		made := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: named(fmt.Sprintf("%s-%d", t.namespace, number))}
		made.Labels = label
		made.Webhooks = []admissionv1.MutatingWebhook{{
			Name: "listed.keelson.example.com", ClientConfig: client, Rules: rules(admissionv1.Create, "configmaps"),
			AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone), NamespaceSelector: t.inNamespace(),
		}}
		_, err := api.Create(t.ctx, made, metav1.CreateOptions{})
		t.must(err)
	}
	list, err := api.List(t.ctx, selected)
	t.must(err)
	equal(t, "configurations", len(list.Items), 5)
	t.marks(true, "a")
	t.must(api.DeleteCollection(t.ctx, metav1.DeleteOptions{}, selected))
	list, err = api.List(t.ctx, selected)
	t.must(err)
	equal(t, "configurations that are left", len(list.Items), 0)
	t.marks(false, "a")
}

// mutatingWebhooksHaveConditions: they mutate everything but what is named in one.
func mutatingWebhooksHaveConditions(t *T) {
	t.mutatedBy(t.marker(), rules(admissionv1.Create, "configmaps"))
	api := t.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	change := []byte(`{"webhooks": [{"name": "mutating.keelson.example.com", "matchConditions": [{"name": "skip-me", "expression": "object.metadata.name != 'skip-me'"}]}]}`)
	_, err := api.Patch(t.ctx, t.namespace, types.StrategicMergePatchType, change, metav1.PatchOptions{})
	t.must(err)
	t.marks(true, "a")
	t.marks(false, "skip-me")
}

// conditionsOf creates a configuration of webhooks with match conditions, or updates its conditions, and returns those that are stored.
type conditionsOf struct {
	create, update func([]admissionv1.MatchCondition) error
	stored         func() []admissionv1.MatchCondition
}

// configurations of either kind, which are about no namespace.
func (t *T) configurations() map[string]conditionsOf {
	nowhere := admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")}
	none := &metav1.LabelSelector{MatchLabels: map[string]string{"keelson.e2e/none": t.namespace}}
	validating, mutating := t.client.AdmissionregistrationV1().ValidatingWebhookConfigurations(), t.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	t.cleanup(func() {
		_ = validating.Delete(context.Background(), t.namespace, metav1.DeleteOptions{})
		_ = mutating.Delete(context.Background(), t.namespace, metav1.DeleteOptions{})
	})
	return map[string]conditionsOf{
		"validating": {
			create: func(conditions []admissionv1.MatchCondition) error {
				_, err := validating.Create(t.ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: named(t.namespace), Webhooks: []admissionv1.ValidatingWebhook{{
					Name: "conditions.keelson.example.com", ClientConfig: nowhere, Rules: rules(admissionv1.Create, "configmaps"), MatchConditions: conditions,
					AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone), NamespaceSelector: none,
				}}}, metav1.CreateOptions{})
				return err
			},
			update: func(conditions []admissionv1.MatchCondition) error {
				hooks, err := validating.Get(t.ctx, t.namespace, metav1.GetOptions{})
				t.must(err)
				hooks.Webhooks[0].MatchConditions = conditions
				_, err = validating.Update(t.ctx, hooks, metav1.UpdateOptions{})
				return err
			},
			stored: func() []admissionv1.MatchCondition {
				hooks, err := validating.Get(t.ctx, t.namespace, metav1.GetOptions{})
				t.must(err)
				return hooks.Webhooks[0].MatchConditions
			},
		},
		"mutating": {
			create: func(conditions []admissionv1.MatchCondition) error {
				_, err := mutating.Create(t.ctx, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: named(t.namespace), Webhooks: []admissionv1.MutatingWebhook{{
					Name: "conditions.keelson.example.com", ClientConfig: nowhere, Rules: rules(admissionv1.Create, "configmaps"), MatchConditions: conditions,
					AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone), NamespaceSelector: none,
				}}}, metav1.CreateOptions{})
				return err
			},
			update: func(conditions []admissionv1.MatchCondition) error {
				hooks, err := mutating.Get(t.ctx, t.namespace, metav1.GetOptions{})
				t.must(err)
				hooks.Webhooks[0].MatchConditions = conditions
				_, err = mutating.Update(t.ctx, hooks, metav1.UpdateOptions{})
				return err
			},
			stored: func() []admissionv1.MatchCondition {
				hooks, err := mutating.Get(t.ctx, t.namespace, metav1.GetOptions{})
				t.must(err)
				return hooks.Webhooks[0].MatchConditions
			},
		},
	}
}

// conditionsAreStored with configurations of both kinds, and changed.
func conditionsAreStored(t *T) {
	first := admissionv1.MatchCondition{Name: "expression-1", Expression: "object.metadata.namespace == 'production'"}
	second := admissionv1.MatchCondition{Name: "expression-2", Expression: "object.metadata.namespace == 'staging'"}
	for kind, configuration := range t.configurations() {
		t.must(configuration.create([]admissionv1.MatchCondition{first}))
		if stored := configuration.stored(); !slices.Equal(stored, []admissionv1.MatchCondition{first}) {
			t.fail("%s: %v is stored", kind, stored)
		}
		t.must(configuration.update([]admissionv1.MatchCondition{first, second}))
		if stored := configuration.stored(); !slices.Equal(stored, []admissionv1.MatchCondition{first, second}) {
			t.fail("%s: %v is stored", kind, stored)
		}
	}
}

// conditionsMustCompile, and name no more than there is, in configurations of both kinds.
func conditionsMustCompile(t *T) {
	for kind, configuration := range t.configurations() {
		for expression, why := range map[string]string{
			"... [] bad expression":         "compilation failed",
			"object.metadata.name":          "must evaluate to bool",
			"variables.a == 'b'":            "undeclared reference to 'variables'",
			"authorizer.path('/x').nothing": "unexpected failed resolution",
		} {
			err := configuration.create([]admissionv1.MatchCondition{{Name: "invalid-expression-1", Expression: expression}})
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), why) {
				t.fail("%s with %q is not refused because of %q: %v", kind, expression, why, err)
			}
		}
	}
}
