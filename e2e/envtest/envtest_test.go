// Package envtest runs controller-runtime's envtest with Keelson in the place of all binaries:
// kube-apiserver, and the etcd in front of it, which holds no data.
// `make envtest-test` builds them and runs it.
package envtest

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// patience is the time within which what must happen does.
const patience = time.Minute

var memos = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Memo"}

// assets is the folder that envtest takes its binaries from.
func assets(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("KUBEBUILDER_ASSETS")
	if folder == "" {
		t.Skip("KUBEBUILDER_ASSETS names no binaries: make envtest-test")
	}
	return folder
}

func definition() *apiextensions.CustomResourceDefinition {
	keep := true
	return &apiextensions.CustomResourceDefinition{
		ObjectMeta: meta.ObjectMeta{Name: "memos.example.com"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: memos.Group,
			Names: apiextensions.CustomResourceDefinitionNames{Plural: "memos", Singular: "memo", Kind: memos.Kind, ListKind: "MemoList"},
			Scope: apiextensions.NamespaceScoped,
			Versions: []apiextensions.CustomResourceDefinitionVersion{{
				Name: memos.Version, Served: true, Storage: true,
				Schema: &apiextensions.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensions.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep},
				},
			}},
		},
	}
}

func refusal() *admissionregistration.ValidatingWebhookConfiguration {
	path, none, fail := "/refuse", admissionregistration.SideEffectClassNone, admissionregistration.Fail
	return &admissionregistration.ValidatingWebhookConfiguration{
		ObjectMeta: meta.ObjectMeta{Name: "refuse"},
		Webhooks: []admissionregistration.ValidatingWebhook{{
			Name: "refuse.example.com", SideEffects: &none, FailurePolicy: &fail,
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistration.WebhookClientConfig{
				Service: &admissionregistration.ServiceReference{Namespace: "default", Name: "hook", Path: &path},
			},
			Rules: []admissionregistration.RuleWithOperations{{
				Operations: []admissionregistration.OperationType{admissionregistration.Create},
				Rule:       admissionregistration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
			}},
		}},
	}
}

// reconciler writes what a memo says into a config map that it owns.
type reconciler struct{ client.Client }

func (r reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	memo := &unstructured.Unstructured{}
	memo.SetGroupVersionKind(memos)
	if err := r.Get(ctx, request.NamespacedName, memo); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	text, _, _ := unstructured.NestedString(memo.Object, "text")
	copied := &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Namespace: memo.GetNamespace(), Name: memo.GetName()}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, copied, func() error {
		copied.Data = map[string]string{"text": text}
		return controllerutil.SetControllerReference(memo, copied, r.Scheme())
	})
	return ctrl.Result{}, err
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

func TestEnvironment(t *testing.T) {
	environment := &envtest.Environment{
		BinaryAssetsDirectory: assets(t),
		CRDs:                  []*apiextensions.CustomResourceDefinition{definition()},
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			ValidatingWebhooks: []*admissionregistration.ValidatingWebhookConfiguration{refusal()},
		},
	}
	environment.ControlPlane.GetAPIServer().Configure().Append("controllers", "namespace", "garbagecollector")
	if testing.Verbose() {
		environment.AttachControlPlaneOutput = os.Getenv("ATTACH") != ""
	}
	begun := time.Now()
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ready, with a definition and a webhook, after %v", time.Since(begun).Round(time.Millisecond))
	stopped := false
	defer func() {
		if !stopped {
			_ = environment.Stop()
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	options := environment.WebhookInstallOptions
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	memo := &unstructured.Unstructured{}
	memo.SetGroupVersionKind(memos)
	err = ctrl.NewControllerManagedBy(manager).For(memo).Owns(&core.ConfigMap{}).Complete(reconciler{manager.GetClient()})
	if err != nil {
		t.Fatal(err)
	}
	manager.GetWebhookServer().Register("/refuse", &webhook.Admission{
		Handler: admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
			if strings.HasPrefix(request.Name, "forbidden") {
				return admission.Denied("no such secrets")
			}
			return admission.Allowed("")
		}),
	})
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()

	admin, err := client.New(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	_ = core.AddToScheme(admin.Scheme())

	// The manager reconciles.
	made := &unstructured.Unstructured{Object: map[string]any{"text": "hello"}}
	made.SetGroupVersionKind(memos)
	made.SetNamespace("default")
	made.SetName("first")
	if err := admin.Create(ctx, made); err != nil {
		t.Fatal(err)
	}
	copied := &core.ConfigMap{}
	key := client.ObjectKey{Namespace: "default", Name: "first"}
	eventually(t, "the config map of the memo", func() error { return admin.Get(ctx, key, copied) })
	if copied.Data["text"] != "hello" {
		t.Fatalf("copied: %v", copied.Data)
	}

	// Its webhook is asked.
	secret := func(name string) *core.Secret {
		return &core.Secret{ObjectMeta: meta.ObjectMeta{Namespace: "default", Name: name}}
	}
	number := 0
	eventually(t, "the webhook", func() error {
		number++
		return admin.Create(ctx, secret("allowed-"+strings.Repeat("x", number)))
	})
	err = admin.Create(ctx, secret("forbidden"))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no such secrets") {
		t.Fatalf("a secret that is forbidden: %v", err)
	}

	// Garbage goes, which envtest cannot do by itself.
	if err := admin.Delete(ctx, made); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the config map", func() error {
		err := admin.Get(ctx, key, copied)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return apierrors.NewConflict(schema.GroupResource{}, "still there", err)
	})

	// A user is who the certificate says.
	alice, err := environment.AddUser(envtest.User{Name: "alice", Groups: []string{"devs"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	limited, err := client.New(alice.Config(), client.Options{Scheme: admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := limited.List(ctx, &core.SecretList{}); !apierrors.IsForbidden(err) {
		t.Fatalf("alice lists secrets: %v", err)
	}
	boss, err := environment.AddUser(envtest.User{Name: "boss", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubectl, err := boss.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	out, complaints, err := kubectl.Run("get", "namespaces", "--no-headers")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := readAll(out); err != nil || !strings.Contains(text, "kube-system") {
		complaint, _ := readAll(complaints)
		t.Fatalf("kubectl: %s%s %v", text, complaint, err)
	}

	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	begun = time.Now()
	stopped = true
	if err := environment.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped after %v", time.Since(begun).Round(time.Millisecond))
}

// What an API server has stored is there when another one is started on the same etcd.
func TestTheStoreOutlivesTheServer(t *testing.T) {
	environment := &envtest.Environment{BinaryAssetsDirectory: assets(t)}
	begun := time.Now()
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %v", time.Since(begun).Round(time.Millisecond))
	defer func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	}()
	ctx := context.Background()
	admin, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kept := &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Namespace: "default", Name: "kept"}}
	if err := admin.Create(ctx, kept); err != nil {
		t.Fatal(err)
	}
	apiServer := environment.ControlPlane.GetAPIServer()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(apiServer.CertDir)); err != nil {
		t.Fatal(err)
	}
	if err := apiServer.Stop(); err != nil {
		t.Fatal(err)
	}
	// Its certificates went with it, if envtest chose where they were.
	apiServer.CertDir = folder
	if err := apiServer.Start(); err != nil {
		t.Fatal(err)
	}
	user, err := environment.AddUser(envtest.User{Name: "boss", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := client.New(user.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Get(ctx, client.ObjectKeyFromObject(kept), kept); err != nil {
		t.Fatal(err)
	}
}

func readAll(from io.Reader) (string, error) {
	text, err := io.ReadAll(from)
	return string(text), err
}
