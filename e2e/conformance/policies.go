package conformance

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
)

// policyLabel marks the policies of a check.
const policyLabel = "keelson.e2e/policies-of"

// here selects the Deployments that are written in the namespace of the check.
func (t *T) here() *admissionv1.MatchResources {
	return &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": t.namespace}},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
		}}},
	}
}

// validates brings a policy into effect in the namespace of the check.
func (t *T) validates(spec admissionv1.ValidatingAdmissionPolicySpec) {
	policies, bindings := t.client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), t.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	spec.MatchConstraints = t.here()
	_, err := policies.Create(t.ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named(t.namespace), Spec: spec}, metav1.CreateOptions{})
	t.must(err)
	t.undo(func(ctx context.Context) { _ = policies.Delete(ctx, t.namespace, metav1.DeleteOptions{}) })
	_, err = bindings.Create(t.ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named(t.namespace), Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: t.namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}, metav1.CreateOptions{})
	t.must(err)
	t.undo(func(ctx context.Context) { _ = bindings.Delete(ctx, t.namespace, metav1.DeleteOptions{}) })
}

// mutates brings a policy into effect in the namespace of the check, which applies a configuration.
func (t *T) mutates(expression string) {
	policies, bindings := t.client.AdmissionregistrationV1().MutatingAdmissionPolicies(), t.client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	_, err := policies.Create(t.ctx, &admissionv1.MutatingAdmissionPolicy{ObjectMeta: named(t.namespace), Spec: admissionv1.MutatingAdmissionPolicySpec{
		MatchConstraints: t.here(), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy, Mutations: mutations(expression),
	}}, metav1.CreateOptions{})
	t.must(err)
	t.undo(func(ctx context.Context) { _ = policies.Delete(ctx, t.namespace, metav1.DeleteOptions{}) })
	_, err = bindings.Create(t.ctx, &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: named(t.namespace), Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
		PolicyName: t.namespace,
	}}, metav1.CreateOptions{})
	t.must(err)
	t.undo(func(ctx context.Context) { _ = bindings.Delete(ctx, t.namespace, metav1.DeleteOptions{}) })
}

func mutations(expression string) []admissionv1.Mutation {
	return []admissionv1.Mutation{{
		PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: expression},
	}}
}

// tried is a Deployment as a dry run would make it.
func (t *T) tried(replicas int32) (*appsv1.Deployment, error) {
	return t.client.AppsV1().Deployments(t.namespace).Create(t.ctx, deployment("tried", replicas), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// refused waits until a Deployment with so many replicas is invalid.
func (t *T) refused(replicas int32) {
	t.eventually("is refused", func() (string, error) {
		switch _, err := t.tried(replicas); {
		case err == nil:
			return "it is allowed", nil
		case apierrors.IsInvalid(err):
			return "", nil
		default:
			return "", err
		}
	})
}

// othersAreAllowed: what a policy is not about is not refused.
func (t *T) othersAreAllowed() {
	set := &appsv1.ReplicaSet{ObjectMeta: named("set"), Spec: appsv1.ReplicaSetSpec{Selector: selector("set"), Template: template("set")}}
	_, err := t.client.AppsV1().ReplicaSets(t.namespace).Create(t.ctx, set, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	t.must(err)
}

// validatingPolicies refuse Deployments by their expressions, which see the namespace.
func validatingPolicies(t *T) {
	t.validates(admissionv1.ValidatingAdmissionPolicySpec{Validations: []admissionv1.Validation{
		{Expression: "object.spec.replicas > 1", MessageExpression: "'wants replicas > 1, got ' + string(object.spec.replicas)"},
		{Expression: fmt.Sprintf("namespaceObject.metadata.name == '%s'", t.namespace), Message: "another namespace"},
	}})
	t.refused(1)
	_, err := t.tried(2)
	t.must(err)
	t.othersAreAllowed()
}

// policyVariables are evaluated from one another.
func policyVariables(t *T) {
	t.validates(admissionv1.ValidatingAdmissionPolicySpec{
		Variables: []admissionv1.Variable{
			{Name: "replicas", Expression: "object.spec.replicas"},
			{Name: "oddReplicas", Expression: "variables.replicas % 2 == 1"},
		},
		Validations: []admissionv1.Validation{{Expression: "variables.replicas > 1"}, {Expression: "variables.oddReplicas"}},
	})
	t.refused(1)
	_, err := t.tried(3)
	t.must(err)
	t.refused(4)
	t.othersAreAllowed()
}

// mutatingPolicies change Deployments: metadata that was not there, and values that were.
func mutatingPolicies(t *T) {
	t.mutates("Object{metadata: Object.metadata{annotations: {'mutated-by': 'admission-policy'}}, spec: Object.spec{replicas: 1337}}")
	t.eventually("is mutated", func() (string, error) {
		made, err := t.tried(1)
		if err != nil {
			return "", err
		}
		got := fmt.Sprintf("%s %d", made.Annotations["mutated-by"], *made.Spec.Replicas)
		return differs("Deployment", got, "admission-policy 1337"), nil
	})
	t.othersAreAllowed()
}

// policyResource is a kind of policy or binding, with an object of it.
type policyResource struct {
	plural string
	object runtime.Object
	// The path of a field of the spec, and two other values that it may have.
	field  []string
	values [2]string
	// status is true where there is a status subresource.
	status bool
}

func policyResources(t *T) []policyResource {
	return []policyResource{
		{"validatingadmissionpolicies", &admissionv1.ValidatingAdmissionPolicy{Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: t.here(), Validations: []admissionv1.Validation{{Expression: "object.spec.replicas <= 100"}},
		}}, []string{"spec", "failurePolicy"}, [2]string{"Ignore", "Fail"}, true},
		{"validatingadmissionpolicybindings", &admissionv1.ValidatingAdmissionPolicyBinding{Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "old.example.com", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}}, []string{"spec", "policyName"}, [2]string{"new.example.com", "newer.example.com"}, false},
		{"mutatingadmissionpolicies", &admissionv1.MutatingAdmissionPolicy{Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: t.here(), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy, Mutations: mutations("Object{spec: Object.spec{replicas: 100}}"),
		}}, []string{"spec", "reinvocationPolicy"}, [2]string{"IfNeeded", "Never"}, false},
		{"mutatingadmissionpolicybindings", &admissionv1.MutatingAdmissionPolicyBinding{Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: "old.example.com",
		}}, []string{"spec", "policyName"}, [2]string{"new.example.com", "newer.example.com"}, false},
	}
}

// policyResourcesHaveAllVerbs: policies and bindings are discovered, created, read, listed, watched, patched, updated and deleted.
func policyResourcesHaveAllVerbs(t *T) {
	discovered, err := t.client.Discovery().ServerResourcesForGroupVersion(admissionv1.SchemeGroupVersion.String())
	t.must(err)
	names := map[string]bool{}
	for _, resource := range discovered.APIResources {
		names[resource.Name] = true
	}
	client, err := dynamic.NewForConfig(t.config)
	t.must(err)
	for _, resource := range policyResources(t) {
		equal(t, resource.plural+" is discovered", names[resource.plural], true)
		t.hasAllVerbs(client.Resource(admissionv1.SchemeGroupVersion.WithResource(resource.plural)), resource)
	}
}

func (t *T) hasAllVerbs(api dynamic.NamespaceableResourceInterface, resource policyResource) {
	ours := metav1.ListOptions{LabelSelector: policyLabel + "=" + t.namespace}
	t.undo(func(ctx context.Context) { _ = api.DeleteCollection(ctx, metav1.DeleteOptions{}, ours) })
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(resource.object)
	t.must(err)
	one := &unstructured.Unstructured{Object: fields}
	one.SetGenerateName("e2e-")
	one.SetLabels(map[string]string{policyLabel: t.namespace})
	kinds := map[string]string{
		"validatingadmissionpolicies": "ValidatingAdmissionPolicy", "validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding",
		"mutatingadmissionpolicies": "MutatingAdmissionPolicy", "mutatingadmissionpolicybindings": "MutatingAdmissionPolicyBinding",
	}
	one.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind(kinds[resource.plural]))
	var made *unstructured.Unstructured
	for range 3 {
		made, err = api.Create(t.ctx, one, metav1.CreateOptions{})
		t.must(err)
	}
	read, err := api.Get(t.ctx, made.GetName(), metav1.GetOptions{})
	t.must(err)
	equal(t, "uid", read.GetUID(), made.GetUID())
	list, err := api.List(t.ctx, ours)
	t.must(err)
	equal(t, "listed", len(list.Items), 3)
	watched := ours
	watched.ResourceVersion = list.GetResourceVersion()
	changes, err := api.Watch(t.ctx, watched)
	t.must(err)
	defer changes.Stop()

	value := func(object *unstructured.Unstructured) string {
		text, _, _ := unstructured.NestedString(object.Object, resource.field...)
		return text
	}
	patch := fmt.Sprintf(`{"metadata": {"annotations": {"patched": "true"}}, %q: {%q: %q}}`, resource.field[0], resource.field[1], resource.values[0])
	patched, err := api.Patch(t.ctx, made.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	t.must(err)
	equal(t, "patched", patched.GetAnnotations()["patched"]+" "+value(patched), "true "+resource.values[0])
	if patched.GetResourceVersion() == read.GetResourceVersion() {
		t.fail("the patch has no revision of its own")
	}
	t.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		latest, err := api.Get(t.ctx, made.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedField(latest.Object, resource.values[1], resource.field...); err != nil {
			return err
		}
		updated, err := api.Update(t.ctx, latest, metav1.UpdateOptions{})
		if err == nil {
			equal(t, "updated", value(updated), resource.values[1])
		}
		return err
	}))
	t.sees(changes, func(change watch.Event) bool {
		object, ok := change.Object.(*unstructured.Unstructured)
		return ok && change.Type == watch.Modified && object.GetAnnotations()["patched"] == "true"
	})
	if resource.status {
		t.hasStatus(api, made.GetName())
	}

	t.must(api.Delete(t.ctx, made.GetName(), metav1.DeleteOptions{}))
	if _, err := api.Get(t.ctx, made.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.fail("it is not gone: %v", err)
	}
	for _, left := range []int{2, 0} {
		list, err := api.List(t.ctx, ours)
		t.must(err)
		equal(t, "left", len(list.Items), left)
		if left > 0 {
			t.must(api.DeleteCollection(t.ctx, metav1.DeleteOptions{}, ours))
		}
	}
}

// sees waits for a change.
func (t *T) sees(changes watch.Interface, wanted func(watch.Event) bool) {
	for {
		select {
		case change, open := <-changes.ResultChan():
			if !open {
				t.fail("the watch ended")
			}
			if wanted(change) {
				return
			}
		case <-t.ctx.Done():
			t.fail("the change was not told")
		}
	}
}

// hasStatus: conditions are patched and read by the status subresource.
func (t *T) hasStatus(api dynamic.NamespaceableResourceInterface, name string) {
	patch := `{"status": {"conditions": [{"type": "Patched", "status": "False", "reason": "E2E", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"}]}}`
	_, err := api.Patch(t.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	t.must(err)
	read, err := api.Get(t.ctx, name, metav1.GetOptions{}, "status")
	t.must(err)
	conditions, _, err := unstructured.NestedSlice(read.Object, "status", "conditions")
	t.must(err)
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == "Patched" {
			return
		}
	}
	t.fail("the condition is not there: %v", conditions)
}
