package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/utils/ptr"

	"keelson/e2e/controlplane"
)

const (
	// wardle is the group that the sample API server serves.
	wardle = "wardle.example.com"
	// extensionService is the service that leads to an extension API server.
	extensionService = "extension"
	// timings is how often kubectl is timed with a dead extension server, and without.
	timings = 7
	// slower is how much longer kubectl may take with a dead extension server.
	slower = 1.5
)

var flunders = schema.GroupVersionResource{Group: wardle, Version: "v1alpha1", Resource: "flunders"}

func (t *T) apiServices() aggregator.APIServiceInterface {
	client, err := aggregator.NewForConfig(t.config)
	t.must(err)
	return client.APIServices()
}

// extensionHost is by which name an extension server is known to its clients.
func (t *T) extensionHost() string { return extensionService + "." + t.namespace + ".svc" }

// aggregates has a group and version served by the extension server at a port of this machine.
func (t *T) aggregates(group, version string, port, priority int32) {
	name := version + "." + group
	t.undo(func(ctx context.Context) { _ = t.apiServices().Delete(ctx, name, metav1.DeleteOptions{}) })
	_, err := t.client.CoreV1().Services(t.namespace).Create(t.ctx, &corev1.Service{ObjectMeta: named(extensionService), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeExternalName, ExternalName: "localhost",
	}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		t.must(err)
	}
	_, err = t.apiServices().Create(t.ctx, &apiregistrationv1.APIService{ObjectMeta: named(name), Spec: apiregistrationv1.APIServiceSpec{
		Service: &apiregistrationv1.ServiceReference{Namespace: t.namespace, Name: extensionService, Port: &port},
		Group:   group, Version: version, CABundle: []byte(t.plane.CA()), GroupPriorityMinimum: 2000, VersionPriority: priority,
	}}, metav1.CreateOptions{})
	t.must(err)
	t.eventually(name+" is available", t.apiServiceIs(name, apiregistrationv1.ConditionTrue, "Passed"))
}

func (t *T) apiServiceIs(name string, status apiregistrationv1.ConditionStatus, reason string) func() (string, error) {
	return func() (string, error) {
		service, err := t.apiServices().Get(t.ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		for _, condition := range service.Status.Conditions {
			if condition.Type == apiregistrationv1.Available && condition.Status == status && condition.Reason == reason {
				return "", nil
			}
		}
		return fmt.Sprintf("%v", service.Status.Conditions), nil
	}
}

// mayExtend gives a user what an extension API server needs: to ask who somebody is and what he may do, and to follow what its
// admission and its priorities are made of.
func (t *T) mayExtend(user string) {
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	reader := &rbacv1.ClusterRole{ObjectMeta: named(t.namespace), Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"namespaces"}},
		{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"*"}},
		{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"flowcontrol.apiserver.k8s.io"}, Resources: []string{"prioritylevelconfigurations", "flowschemas"}},
	}}
	_, err := t.client.RbacV1().ClusterRoles().Create(t.ctx, reader, metav1.CreateOptions{})
	t.must(err)
	t.undo(func(ctx context.Context) {
		_ = t.client.RbacV1().ClusterRoles().Delete(ctx, t.namespace, metav1.DeleteOptions{})
	})
	for suffix, role := range map[string]string{"reader": t.namespace, "delegator": "system:auth-delegator"} {
		bindings, name := t.client.RbacV1().ClusterRoleBindings(), t.namespace+"-"+suffix
		_, err := bindings.Create(t.ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: named(name), Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}, metav1.CreateOptions{})
		t.must(err)
		t.undo(func(ctx context.Context) { _ = bindings.Delete(ctx, name, metav1.DeleteOptions{}) })
	}
	bindings := t.client.RbacV1().RoleBindings(metav1.NamespaceSystem)
	_, err = bindings.Create(t.ctx, &rbacv1.RoleBinding{ObjectMeta: named(t.namespace), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"}}, metav1.CreateOptions{})
	t.must(err)
	t.undo(func(ctx context.Context) { _ = bindings.Delete(ctx, t.namespace, metav1.DeleteOptions{}) })
}

// sampleServer starts upstream's sample API server and has its group served.
func (t *T) sampleServer() *controlplane.Extension {
	t.mayExtend(t.namespace)
	extension, err := t.plane.StartExtension(t.ctx, t.namespace, t.extensionHost())
	t.must(err)
	t.aggregates(wardle, flunders.Version, int32(extension.Port), 200)
	// After the APIService has gone.
	t.cleanup(extension.Stop)
	t.eventually("flunders are served", func() (string, error) {
		_, err := t.flunders().List(t.ctx, metav1.ListOptions{})
		return "", err
	})
	return extension
}

func (t *T) flunders() dynamic.ResourceInterface {
	client, err := dynamic.NewForConfig(t.config)
	t.must(err)
	return client.Resource(flunders).Namespace(t.namespace)
}

func flunder(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(flunders.GroupVersion().WithKind("Flunder"))
	object.SetName(name)
	object.SetLabels(map[string]string{"sample-label": "true"})
	return object
}

// aggregation: upstream's Aggregator conformance test. The sample API server answers through the server, by raw requests and by
// those of the dynamic client, and its APIService is read, patched, updated and deleted.
func aggregation(t *T) {
	t.sampleServer()
	raw, path := t.client.Discovery().RESTClient(), "/apis/"+wardle+"/v1alpha1/namespaces/"+t.namespace+"/flunders"
	body, err := json.Marshal(flunder("raw"))
	t.must(err)
	var status int
	t.must(raw.Post().AbsPath(path).Body(body).SetHeader("Accept", "application/json").Do(t.ctx).StatusCode(&status).Error())
	equal(t, "status of a creation", status, 201)
	for _, left := range []int{1, 0} {
		var list unstructured.UnstructuredList
		contents, err := raw.Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(t.ctx)
		t.must(err)
		t.must(json.Unmarshal(contents, &list))
		equal(t, "flunders", len(list.Items), left)
		if left > 0 {
			_, err = raw.Delete().AbsPath(path + "/raw").DoRaw(t.ctx)
			t.must(err)
		}
	}
	preferred, err := t.client.Discovery().ServerPreferredNamespacedResources()
	t.must(err)
	resources, err := discovery.GroupVersionResources(preferred)
	t.must(err)
	if _, found := resources[flunders]; !found {
		t.fail("flunders are not discovered: %v", resources)
	}
	_, err = t.flunders().Create(t.ctx, flunder("dynamic"), metav1.CreateOptions{})
	t.must(err)
	t.changesAPIService(flunders.Version + "." + wardle)
	t.must(t.flunders().Delete(t.ctx, "dynamic", metav1.DeleteOptions{}))
	list, err := t.flunders().List(t.ctx, metav1.ListOptions{})
	t.must(err)
	equal(t, "flunders", len(list.Items), 0)
	_, err = t.flunders().Create(t.ctx, flunder("again"), metav1.CreateOptions{})
	t.must(err)

	ours := metav1.ListOptions{LabelSelector: "updated=" + t.namespace}
	t.must(t.apiServices().DeleteCollection(t.ctx, metav1.DeleteOptions{}, ours))
	t.eventually("the APIService is gone", func() (string, error) {
		list, err := t.apiServices().List(t.ctx, ours)
		if err != nil {
			return "", err
		}
		return differs("APIServices", len(list.Items), 0), nil
	})
	t.eventually("flunders are no longer served", func() (string, error) {
		_, err := t.flunders().List(t.ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "they are", err
	})
}

// changesAPIService by patch and update, and its status, as upstream's conformance test does.
func (t *T) changesAPIService(name string) {
	api := t.apiServices()
	before, err := api.Get(t.ctx, name, metav1.GetOptions{})
	t.must(err)
	equal(t, "the message of the condition", before.Status.Conditions[0].Message, "all checks passed")
	patched, err := api.Patch(t.ctx, name, types.MergePatchType, []byte(`{"spec":{"versionPriority": 400}}`), metav1.PatchOptions{})
	t.must(err)
	equal(t, "the patched priority", patched.Spec.VersionPriority, 400)
	list, err := api.List(t.ctx, metav1.ListOptions{})
	t.must(err)
	equal(t, "it is listed", slices.ContainsFunc(list.Items, func(one apiregistrationv1.APIService) bool { return one.Name == name }), true)
	patched, err = api.Patch(t.ctx, name, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}}}`), metav1.PatchOptions{})
	t.must(err)
	equal(t, "the patched label", patched.Labels["patched"], "yes")
	condition := func(kind string) apiregistrationv1.APIServiceCondition {
		return apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.APIServiceConditionType(kind), Status: "True", Reason: "E2E", Message: "set by a check"}
	}
	has := func(kind string) {
		service, err := api.Get(t.ctx, name, metav1.GetOptions{})
		t.must(err)
		for _, one := range service.Status.Conditions {
			if string(one.Type) == kind && one.Reason == "E2E" && one.Message == "set by a check" {
				return
			}
		}
		t.fail("%s is not among %v", kind, service.Status.Conditions)
	}
	update := func(change func(*apiregistrationv1.APIService) error) {
		t.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
			service, err := api.Get(t.ctx, name, metav1.GetOptions{})
			t.must(err)
			return change(service)
		}))
	}
	update(func(service *apiregistrationv1.APIService) error {
		service.Status.Conditions = append(service.Status.Conditions, condition("StatusUpdated"))
		_, err := api.UpdateStatus(t.ctx, service, metav1.UpdateOptions{})
		return err
	})
	has("StatusUpdated")
	update(func(service *apiregistrationv1.APIService) error {
		service.Labels = map[string]string{"updated": t.namespace}
		updated, err := api.Update(t.ctx, service, metav1.UpdateOptions{})
		if err == nil {
			equal(t, "the labels", len(updated.Labels), 1)
		}
		return err
	})
	service, err := api.Get(t.ctx, name, metav1.GetOptions{})
	t.must(err)
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": append(service.Status.Conditions, condition("StatusPatched"))}})
	t.must(err)
	_, err = api.Patch(t.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	t.must(err)
	has("StatusPatched")
}

const flunderFile = `
apiVersion: wardle.example.com/v1alpha1
kind: Flunder
metadata: {name: applied}
spec: {reference: %s, referenceType: Flunder}
`

const fischerFile = `
apiVersion: wardle.example.com/v1alpha1
kind: Fischer
metadata: {name: e2e}
disallowedFlunders: [banned]
`

// aggregatedForUsers: what kubectl and clients make of an extension API server, which differs in nothing from the rest.
func aggregatedForUsers(t *T) {
	extension := t.sampleServer()
	t.aggregates(wardle, "v1beta1", int32(extension.Port), 100)
	t.isDiscovered()
	t.eventually("its documents are merged", func() (string, error) {
		for _, path := range []string{"/openapi/v2", "/openapi/v3"} {
			document, err := t.client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(t.ctx)
			if err != nil {
				return "", err
			}
			for _, version := range []string{"v1alpha1", "v1beta1"} {
				if !strings.Contains(string(document), wardle+"/"+version) {
					return version + " is not in " + path, nil
				}
			}
		}
		return "", nil
	})
	t.runs(
		call{args: "api-versions", want: `^wardle.example.com/v1alpha1\nwardle.example.com/v1beta1$`},
		call{args: "api-resources --api-group=wardle.example.com", want: `^flunders +wardle.example.com/v1alpha1 +true +Flunder$`},
		call{args: "explain flunders", want: `(?s)^GROUP: +wardle.example.com\nKIND: +Flunder\nVERSION: +v1alpha1$.*^  spec\t<FlunderSpec>$`},
		call{args: "explain flunders.spec.referenceType", want: `^FIELD: referenceType <string>$`},
		call{args: "explain flunders.spec --api-version=wardle.example.com/v1beta1 --output=plaintext-openapiv2", want: `^VERSION: +wardle.example.com/v1beta1$`},
		call{args: "apply -f -", stdin: fmt.Sprintf(flunderFile, "first"), want: `^flunder.wardle.example.com/applied created$`},
		call{args: "apply -f -", stdin: fmt.Sprintf(flunderFile, "second"), want: `^flunder.wardle.example.com/applied configured$`},
		call{args: "apply --server-side --force-conflicts -f -", stdin: fmt.Sprintf(flunderFile, "third"), want: `^flunder.wardle.example.com/applied serverside-applied$`},
		call{args: "apply -f -", stdin: "{apiVersion: wardle.example.com/v1alpha1, kind: Flunder, metadata: {name: typo}, spec: {referense: x}}",
			fails: true, want: `unknown field "spec.referense"`},
		call{args: "get flunders", want: `^NAME +CREATED AT\napplied +\S+Z$`},
		call{args: "get flunders.v1beta1.wardle.example.com applied -o jsonpath={.apiVersion}", want: `^wardle.example.com/v1beta1$`},
		call{args: "describe flunder applied", want: `^Kind: +Flunder$`},
		call{args: "auth can-i create flunders", want: `^yes$`},
		call{args: "get flunders --as=nobody", fails: true, want: `flunders.wardle.example.com is forbidden: User "nobody" cannot list resource "flunders"`},
		call{args: "apply -f -", stdin: fischerFile, want: `^fischer.wardle.example.com/e2e created$`},
	)
	t.cleanup(func() { _, _ = t.kubectlRun("", "delete", "fischers", "--all") })
	t.eventually("the extension's own admission refuses", func() (string, error) {
		_, err := t.flunders().Create(t.ctx, flunder("banned"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return "it is allowed", nil
		}
		if !apierrors.IsForbidden(err) {
			return "", err
		}
		return "", nil
	})
	t.isWatched()
	t.runs(
		call{args: "delete fischers --all", want: `deleted$`},
		call{args: "delete flunder applied", want: `^flunder.wardle.example.com "applied" deleted`},
		call{args: "get flunders", want: `^No resources found in`},
	)
	t.goesWithItsNamespace()
}

// isDiscovered by the document of all resources and by those of each version.
func (t *T) isDiscovered() {
	legacy := discovery.NewDiscoveryClient(t.client.Discovery().RESTClient())
	legacy.UseLegacyDiscovery = true
	for form, client := range map[string]discovery.DiscoveryInterface{"aggregated": t.client.Discovery(), "legacy": legacy} {
		t.eventually(form+" discovery has flunders", func() (string, error) {
			groups, lists, err := client.ServerGroupsAndResources()
			if err != nil {
				return "", err
			}
			at := slices.IndexFunc(groups, func(group *metav1.APIGroup) bool { return group.Name == wardle })
			if at < 0 {
				return "no group", nil
			}
			if len(groups[at].Versions) != 2 || groups[at].PreferredVersion.Version != "v1alpha1" {
				return fmt.Sprintf("the group is %v", groups[at]), nil
			}
			for _, version := range []string{"v1alpha1", "v1beta1"} {
				is := func(list *metav1.APIResourceList) bool {
					return list.GroupVersion == wardle+"/"+version && slices.ContainsFunc(list.APIResources, func(one metav1.APIResource) bool {
						return one.Name == "flunders" && one.Namespaced && one.Kind == "Flunder" && len(one.Verbs) == 8
					})
				}
				if !slices.ContainsFunc(lists, is) {
					return "no flunders of " + version, nil
				}
			}
			return "", nil
		})
	}
}

// isWatched: changes of flunders are told one after another.
func (t *T) isWatched() {
	changes, err := t.flunders().Watch(t.ctx, metav1.ListOptions{FieldSelector: "metadata.name=seen"})
	t.must(err)
	defer changes.Stop()
	_, err = t.flunders().Create(t.ctx, flunder("seen"), metav1.CreateOptions{})
	t.must(err)
	_, err = t.flunders().Patch(t.ctx, "seen", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	t.must(err)
	t.must(t.flunders().Delete(t.ctx, "seen", metav1.DeleteOptions{}))
	for _, wanted := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		t.sees(changes, func(change watch.Event) bool { return change.Type == wanted })
	}
}

// goesWithItsNamespace: what an extension server has in a namespace is deleted with it.
func (t *T) goesWithItsNamespace() {
	name := t.namespace + "-gone"
	t.runs(
		call{args: "create namespace " + name, want: `created$`},
		call{args: "apply -n " + name + " -f -", stdin: fmt.Sprintf(flunderFile, "first"), want: `created$`},
		call{args: "delete namespace " + name + " --timeout=40s", want: `deleted`},
		call{args: "get flunders -A", want: `^No resources found`},
	)
}

// deadExtension: a server that is gone makes nothing slower, is told as the reason why a namespace stays, and keeps nothing once its
// APIService is gone.
func deadExtension(t *T) {
	extension := t.sampleServer()
	alive := t.timeKubectl()
	extension.Stop()
	name := flunders.Version + "." + wardle
	t.eventually("it is not available", t.apiServiceIs(name, apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck"))
	_, err := t.flunders().List(t.ctx, metav1.ListOptions{})
	if !apierrors.IsServiceUnavailable(err) {
		t.fail("not unavailable: %v", err)
	}
	gone := t.timeKubectl()
	ratio := float64(gone) / float64(alive)
	t.note("kubectl get takes %.2f times as long, %v", ratio, gone.Round(time.Millisecond))
	if ratio > slower {
		t.fail("kubectl get takes %v with a dead extension server, %v without", gone, alive)
	}

	left := t.namespace + "-left"
	t.runs(
		call{args: "create namespace " + left, want: `created$`},
		call{args: "create configmap held -n " + left, want: `created$`},
		call{args: "delete namespace " + left + " --wait=false", want: `deleted`},
	)
	namespaces := t.client.CoreV1().Namespaces()
	t.eventually("the namespace says why it stays", func() (string, error) {
		namespace, err := namespaces.Get(t.ctx, left, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		for _, condition := range namespace.Status.Conditions {
			if condition.Type == corev1.NamespaceDeletionDiscoveryFailure && condition.Status == corev1.ConditionTrue && strings.Contains(condition.Message, wardle) {
				return "", nil
			}
		}
		return fmt.Sprintf("conditions: %v", namespace.Status.Conditions), nil
	})
	_, err = t.client.CoreV1().ConfigMaps(left).Get(t.ctx, "held", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.fail("what is in it is not deleted: %v", err)
	}
	t.must(t.apiServices().Delete(t.ctx, name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
	t.eventually("the namespace is gone", func() (string, error) {
		_, err := namespaces.Get(t.ctx, left, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "it is there", err
	})
}

// timeKubectl is the median time of `kubectl get`, without a cache of what is served.
func (t *T) timeKubectl() time.Duration {
	var took []time.Duration
	for number := range timings {
		start := time.Now()
		out, err := t.kubectlRun("", "get", "configmaps", fmt.Sprintf("--cache-dir=%s-%d-%d", t.plane.Kubeconfig, start.UnixNano(), number))
		if err != nil {
			t.fail("kubectl get: %v\n%s", err, out)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[timings/2]
}
