package conformance

import (
	"context"
	"fmt"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// webhooksAreDiscovered in the documents of discovery.
func webhooksAreDiscovered(t *T) {
	groups, err := t.client.Discovery().ServerGroups()
	t.must(err)
	preferred := ""
	for _, group := range groups.Groups {
		if group.Name == admissionv1.GroupName {
			preferred = group.PreferredVersion.GroupVersion
		}
	}
	equal(t, "the preferred version", preferred, "admissionregistration.k8s.io/v1")
	resources, err := t.client.Discovery().ServerResourcesForGroupVersion(preferred)
	t.must(err)
	found := map[string]bool{}
	for _, resource := range resources.APIResources {
		found[resource.Name] = true
	}
	for _, name := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		equal(t, name, found[name], true)
	}
}

// webhooksSpareTheirConfigurations: nobody can change them or keep them from going.
func webhooksSpareTheirConfigurations(t *T) {
	all := []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.OperationAll},
		Rule: admissionv1.Rule{APIGroups: []string{admissionv1.GroupName}, APIVersions: []string{"*"},
			Resources: []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"}},
	}}
	t.validatedBy(t.serves(validatingKind.handler), all, func(hook *admissionv1.ValidatingWebhook) { hook.NamespaceSelector = nil })
	api := t.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	name := t.namespace + "-dummy"
	made, err := api.Create(t.ctx, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: named(name)}, metav1.CreateOptions{})
	t.must(err)
	equal(t, "labels", len(made.Labels), 0)
	t.must(api.Delete(t.ctx, name, metav1.DeleteOptions{}))
}

// gadgets are a custom resource of the namespace's own group, of two versions without a webhook.
func (t *T) gadgets(preserve bool) (dynamic.ResourceInterface, *apiextensionsv1.CustomResourceDefinition) {
	group := t.namespace + ".keelson.example.com"
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	data := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"start": text, "first": text}}
	version := func(name string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
		properties := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"data": data}}
		if preserve {
			properties = &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
		}
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: stored,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: properties}}
	}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("gadgets." + group), Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.NamespaceScoped,
		Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Gadget", ListKind: "GadgetList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true), version("v2", false)},
	}}
	definitions, err := clientset.NewForConfig(t.config)
	t.must(err)
	crds := definitions.ApiextensionsV1().CustomResourceDefinitions()
	definition, err = crds.Create(t.ctx, definition, metav1.CreateOptions{})
	t.must(err)
	t.undo(func(ctx context.Context) { _ = crds.Delete(ctx, definition.Name, metav1.DeleteOptions{}) })
	api, err := dynamic.NewForConfig(t.config)
	t.must(err)
	gadgets := api.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "gadgets"}).Namespace(t.namespace)
	t.eventually("gadgets are served", func() (string, error) {
		_, err := gadgets.List(t.ctx, metav1.ListOptions{})
		return "", err
	})
	return gadgets, definition
}

func gadget(definition *apiextensionsv1.CustomResourceDefinition, name string, data map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"data": data}}
	object.SetAPIVersion(definition.Spec.Group + "/v1")
	object.SetKind("Gadget")
	object.SetName(name)
	return object
}

// custom are the rules for all that is done to gadgets.
func custom(definition *apiextensionsv1.CustomResourceDefinition, operations ...admissionv1.OperationType) []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{Operations: operations, Rule: admissionv1.Rule{
		APIGroups: []string{definition.Spec.Group}, APIVersions: []string{"*"}, Resources: []string{"gadgets"},
	}}}
}

// webhooksGuardCustomResources: their creation, update and deletion.
func webhooksGuardCustomResources(t *T) {
	gadgets, definition := t.gadgets(false)
	_, err := gadgets.Create(t.ctx, gadget(definition, "kept", map[string]any{"start": "bad"}), metav1.CreateOptions{})
	t.must(err)
	t.validatedBy(t.serves(validatingKind.handler), custom(definition, admissionv1.OperationAll), func(hook *admissionv1.ValidatingWebhook) {
		hook.MatchConditions = []admissionv1.MatchCondition{{Name: "marked", Expression: "(object == null ? oldObject : object).data.start == 'bad'"}}
	})
	t.eventually("is refused", func() (string, error) {
		_, err := gadgets.Create(t.ctx, gadget(definition, "a", map[string]any{"start": "bad"}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return "it is allowed", nil
		}
		t.deniedWith(err, "CREATE of gadgets")
		return "", nil
	})
	made, err := gadgets.Create(t.ctx, gadget(definition, "a", map[string]any{"start": "fine"}), metav1.CreateOptions{})
	t.must(err)
	t.must(unstructured.SetNestedField(made.Object, "bad", "data", "start"))
	_, err = gadgets.Update(t.ctx, made, metav1.UpdateOptions{})
	t.deniedWith(err, "UPDATE of gadgets")
	_, err = gadgets.Create(t.ctx, gadget(definition, "good", map[string]any{"start": "bad"}), metav1.CreateOptions{})
	t.must(err)
	t.must(gadgets.Delete(t.ctx, "good", metav1.DeleteOptions{}))
	t.must(gadgets.Delete(t.ctx, "a", metav1.DeleteOptions{}))
	t.deniedWith(gadgets.Delete(t.ctx, "kept", metav1.DeleteOptions{}), "DELETE of gadgets")
	// What it becomes is judged.
	_, err = gadgets.Patch(t.ctx, "kept", types.MergePatchType, []byte(`{"data": {"start": "fine"}}`), metav1.PatchOptions{})
	t.must(err)
	t.must(gadgets.Delete(t.ctx, "kept", metav1.DeleteOptions{}))
}

// webhooksMutateCustomResources, whose unknown fields are pruned, also once another version is stored.
func webhooksMutateCustomResources(t *T) {
	for _, preserve := range []bool{false, true} {
		gadgets, definition := t.gadgets(preserve)
		client := t.serves(func(_ context.Context, _ admission.Request) admission.Response {
			return admission.Patched("", jsonpatch.NewOperation("add", "/data/first", "yes"), jsonpatch.NewOperation("add", "/data/unknown", "yes"))
		})
		t.mutatedBy(client, custom(definition, admissionv1.Create, admissionv1.Update))
		want := map[bool]string{false: "yes ", true: "yes yes"}[preserve]
		is := func(object *unstructured.Unstructured) string {
			first, _, _ := unstructured.NestedString(object.Object, "data", "first")
			unknown, _, _ := unstructured.NestedString(object.Object, "data", "unknown")
			return first + " " + unknown
		}
		var made *unstructured.Unstructured
		t.eventually("is mutated", func() (string, error) {
			var err error
			_ = gadgets.Delete(t.ctx, "a", metav1.DeleteOptions{})
			made, err = gadgets.Create(t.ctx, gadget(definition, "a", map[string]any{"start": "yes"}), metav1.CreateOptions{})
			if err != nil {
				return "", err
			}
			return differs("data", is(made), want), nil
		})
		definitions, err := clientset.NewForConfig(t.config)
		t.must(err)
		crds := definitions.ApiextensionsV1().CustomResourceDefinitions()
		change := []byte(`[{"op": "replace", "path": "/spec/versions/0/storage", "value": false}, {"op": "replace", "path": "/spec/versions/1/storage", "value": true}]`)
		_, err = crds.Patch(t.ctx, definition.Name, types.JSONPatchType, change, metav1.PatchOptions{})
		t.must(err)
		label := []byte(`{"metadata": {"labels": {"written": "again"}}}`)
		changed, err := gadgets.Patch(t.ctx, "a", types.MergePatchType, label, metav1.PatchOptions{})
		t.must(err)
		equal(t, "data in another stored version", is(changed), want)
		t.must(t.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(t.ctx, t.namespace, metav1.DeleteOptions{}))
		t.must(crds.Delete(t.ctx, definition.Name, metav1.DeleteOptions{}))
		t.eventually("the definition is gone", func() (string, error) {
			_, err := crds.Get(t.ctx, definition.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return "", nil
			}
			return "it is there", err
		})
	}
}

// webhooksGuardDefinitions: a CustomResourceDefinition is refused like anything else.
func webhooksGuardDefinitions(t *T) {
	label := map[string]string{"keelson.e2e/refused": t.namespace}
	rule := []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{
		APIGroups: []string{"apiextensions.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"customresourcedefinitions"},
	}}}
	t.validatedBy(t.serves(validatingKind.handler), rule, func(hook *admissionv1.ValidatingWebhook) {
		hook.NamespaceSelector, hook.ObjectSelector = nil, &metav1.LabelSelector{MatchLabels: label}
	})
	definitions, err := clientset.NewForConfig(t.config)
	t.must(err)
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object"}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("refused.keelson.example.com"), Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "keelson.example.com", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "refused", Singular: "refused", Kind: "Refused", ListKind: "RefusedList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}}},
	}}
	definition.Labels = label
	t.eventually("is refused", func() (string, error) {
		_, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.ctx, definition, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return "it is allowed", nil
		}
		t.deniedWith(err, "CREATE of customresourcedefinitions")
		return "", nil
	})
}

// customPoliciesAreTypeChecked by what the server's documents say of a custom resource.
func customPoliciesAreTypeChecked(t *T) {
	_, definition := t.gadgets(false)
	policies := t.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	constraints := &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{definition.Spec.Group}, APIVersions: []string{"v1"}, Resources: []string{"gadgets"}},
	}}}}
	for suffix, want := range map[string][]string{
		"-right": nil,
		"-wrong": {"found no matching overload for '_>_' applied to '(string, int)'", "undefined field 'absent'"},
	} {
		expressions := map[string][]admissionv1.Validation{
			"-right": {{Expression: "object.data.start > 'a'"}},
			"-wrong": {{Expression: "object.data.start > 1"}, {Expression: "object.data.absent < 10"}},
		}
		name := t.namespace + suffix
		_, err := policies.Create(t.ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named(name), Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: constraints, Validations: expressions[suffix],
		}}, metav1.CreateOptions{})
		t.must(err)
		t.undo(func(ctx context.Context) { _ = policies.Delete(ctx, name, metav1.DeleteOptions{}) })
		touched := 0
		t.eventually("the policy is checked", func() (string, error) {
			policy, err := policies.Get(t.ctx, name, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			if policy.Status.TypeChecking == nil {
				return "it is not checked", nil
			}
			warnings := policy.Status.TypeChecking.ExpressionWarnings
			if len(warnings) == 0 && want != nil {
				// The controller looks at the documents only now and then, and at a policy that changes.
				touched++
				policy.Spec.AuditAnnotations = []admissionv1.AuditAnnotation{{Key: "key", ValueExpression: fmt.Sprintf("'%d'", touched)}}
				_, err = policies.Update(t.ctx, policy, metav1.UpdateOptions{})
				return "no warnings", err
			}
			equal(t, "warnings", len(warnings), len(want))
			for number, why := range want {
				equal(t, "the field", warnings[number].FieldRef, fmt.Sprintf("spec.validations[%d].expression", number))
				if !strings.Contains(warnings[number].Warning, why) {
					t.fail("another warning: %s", warnings[number].Warning)
				}
			}
			return "", nil
		})
	}
}

// policiesAreTypeChecked by the controller manager, which tells what is wrong in the status.
func policiesAreTypeChecked(t *T) {
	t.validates(admissionv1.ValidatingAdmissionPolicySpec{Validations: []admissionv1.Validation{
		{Expression: "object.spec.replicas > 1"}, {Expression: "object.spec.replicas == 'many'"},
	}})
	t.eventually("the policy is checked", func() (string, error) {
		policy, err := t.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.ctx, t.namespace, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if policy.Status.ObservedGeneration != policy.Generation || policy.Status.TypeChecking == nil {
			return "it is not checked", nil
		}
		warnings := policy.Status.TypeChecking.ExpressionWarnings
		equal(t, "warnings", len(warnings), 1)
		equal(t, "the field", warnings[0].FieldRef, "spec.validations[1].expression")
		if !strings.Contains(warnings[0].Warning, "found no matching overload for '_==_' applied to '(int, string)'") {
			t.fail("another warning: %s", warnings[0].Warning)
		}
		return "", nil
	})
}
