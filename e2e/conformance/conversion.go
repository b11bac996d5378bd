package conformance

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
)

const converterGroup = "convert.keelson.dev"

// conversionWebhook converts hostPort of v1 to host and port of v2 and back, as upstream's conformance test does.
func (t *T) conversionWebhook(calls *atomic.Int32) *httptest.Server {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		var review apiextensionsv1.ConversionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			var object unstructured.Unstructured
			if err := object.UnmarshalJSON(raw.Raw); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			convertAddress(&object, review.Request.DesiredAPIVersion)
			response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Object: &object})
		}
		review.Request, review.Response = nil, response
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.cleanup(server.Close)
	return server
}

func convertAddress(object *unstructured.Unstructured, version string) {
	hostPort, _, _ := unstructured.NestedString(object.Object, "hostPort")
	host, _, _ := unstructured.NestedString(object.Object, "host")
	port, _, _ := unstructured.NestedString(object.Object, "port")
	for _, field := range []string{"hostPort", "host", "port"} {
		unstructured.RemoveNestedField(object.Object, field)
	}
	object.SetAPIVersion(version)
	if strings.HasSuffix(version, "/v2") {
		host, port, _ = strings.Cut(hostPort, ":")
		object.Object["host"], object.Object["port"] = host, port
	} else {
		object.Object["hostPort"] = host + ":" + port
	}
}

func addresses(webhook *httptest.Server) *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	version := func(name string, storage bool, fields ...string) apiextensionsv1.CustomResourceDefinitionVersion {
		properties := map[string]apiextensionsv1.JSONSchemaProps{}
		for _, field := range fields {
			properties[field] = text
		}
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: storage,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}}}
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: named("addresses." + converterGroup),
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: converterGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "addresses", Singular: "address", Kind: "Address", ListKind: "AddressList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true, "hostPort"), version("v2", false, "host", "port")},
			Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
				Webhook: &apiextensionsv1.WebhookConversion{
					ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To(webhook.URL + "/convert"), CABundle: authority},
					ConversionReviewVersions: []string{"v1", "v1beta1"},
				}},
		},
	}
}

// conversions: a custom resource of v1 is read as v2, and so are lists of mixed storage versions
// (upstream's CustomResourceConversionWebhook); objects survive the move to a new storage version.
func conversions(t *T) {
	var calls atomic.Int32
	webhook := t.conversionWebhook(&calls)
	definitions, err := clientset.NewForConfig(t.config)
	t.must(err)
	crds := definitions.ApiextensionsV1().CustomResourceDefinitions()
	definition, err := crds.Create(t.ctx, addresses(webhook), metav1.CreateOptions{})
	t.must(err)
	t.undo(func(ctx context.Context) { _ = crds.Delete(ctx, definition.Name, metav1.DeleteOptions{}) })
	api, err := dynamic.NewForConfig(t.config)
	t.must(err)
	in := func(version string) dynamic.ResourceInterface {
		return api.Resource(schema.GroupVersionResource{Group: converterGroup, Version: version, Resource: "addresses"}).Namespace(t.namespace)
	}
	t.eventually("addresses are served", func() (string, error) {
		_, err := in("v1").List(t.ctx, metav1.ListOptions{})
		return "", err
	})

	address := func(version, name string, fields map[string]any) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: fields}
		object.SetAPIVersion(converterGroup + "/" + version)
		object.SetKind("Address")
		object.SetName(name)
		return object
	}
	_, err = in("v1").Create(t.ctx, address("v1", "old", map[string]any{"hostPort": "localhost:8080"}), metav1.CreateOptions{})
	t.must(err)
	equal(t, "calls for the storage version", calls.Load(), 0)
	equal(t, "v1 as v2", t.address(in("v2"), "old"), "v2 localhost 8080 ")

	// From now on v2 is stored; the list has objects of both.
	definition, err = crds.Get(t.ctx, definition.Name, metav1.GetOptions{})
	t.must(err)
	definition.Spec.Versions[0].Storage, definition.Spec.Versions[1].Storage = false, true
	definition, err = crds.Update(t.ctx, definition, metav1.UpdateOptions{})
	t.must(err)
	equal(t, "stored versions", strings.Join(definition.Status.StoredVersions, " "), "v1 v2")
	_, err = in("v2").Create(t.ctx, address("v2", "new", map[string]any{"host": "localhost", "port": "9090"}), metav1.CreateOptions{})
	t.must(err)
	for version, want := range map[string]string{
		"v1": "v1   localhost:9090,v1   localhost:8080",
		"v2": "v2 localhost 9090 ,v2 localhost 8080 ",
	} {
		list, err := in(version).List(t.ctx, metav1.ListOptions{})
		t.must(err)
		var got []string
		for _, item := range list.Items {
			got = append(got, shownAddress(&item))
		}
		equal(t, "list in "+version, strings.Join(got, ","), want)
	}

	// A migration writes every object as it is; then v1 may go.
	old, err := in("v2").Get(t.ctx, "old", metav1.GetOptions{})
	t.must(err)
	_, err = in("v2").Update(t.ctx, old, metav1.UpdateOptions{})
	t.must(err)
	definition.Status.StoredVersions = []string{"v2"}
	_, err = crds.UpdateStatus(t.ctx, definition, metav1.UpdateOptions{})
	t.must(err)
	webhook.Close()
	equal(t, "v2 without the webhook", t.address(in("v2"), "old"), "v2 localhost 8080 ")
}

func (t *T) address(objects dynamic.ResourceInterface, name string) string {
	object, err := objects.Get(t.ctx, name, metav1.GetOptions{})
	t.must(err)
	return shownAddress(object)
}

// shownAddress is the version and the fields of an address.
func shownAddress(object *unstructured.Unstructured) string {
	text := func(field string) string {
		value, _, _ := unstructured.NestedString(object.Object, field)
		return value
	}
	return object.GroupVersionKind().Version + " " + text("host") + " " + text("port") + " " + text("hostPort")
}
