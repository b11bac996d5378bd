package operator

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Finalizer keeps a Fleet until its end is written down.
const Finalizer = "e2e.keelson.dev/log"

// Log is the ConfigMap of a namespace in which the ends of Fleets are written down.
const Log = "ended-fleets"

// Scheme knows the built-in types and Fleets.
func Scheme() (*runtime.Scheme, error) {
	types := runtime.NewScheme()
	types.AddKnownTypes(GroupVersion, &Fleet{}, &FleetList{})
	metav1.AddToGroupVersion(types, GroupVersion)
	return types, scheme.AddToScheme(types)
}

// New is a manager that leads the Fleets of a namespace once it is elected.
func New(at *rest.Config, namespace string) (manager.Manager, error) {
	types, err := Scheme()
	if err != nil {
		return nil, err
	}
	m, err := ctrl.NewManager(at, ctrl.Options{
		Scheme:                        types,
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics:                       server.Options{BindAddress: "0"},
		LeaderElection:                true,
		LeaderElectionID:              "fleets",
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(4 * time.Second),
		RenewDeadline:                 ptr.To(3 * time.Second),
		RetryPeriod:                   ptr.To(500 * time.Millisecond),
		Controller:                    config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, err
	}
	r := &reconciler{Client: m.GetClient(), types: types}
	return m, ctrl.NewControllerManagedBy(m).For(&Fleet{}).Owns(&appsv1.Deployment{}).Complete(r)
}

type reconciler struct {
	client.Client
	types *runtime.Scheme
}

// Reconcile makes the Deployment of a Fleet what the Fleet says, and the status of the Fleet what the Deployment says.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var fleet Fleet
	if err := r.Get(ctx, request.NamespacedName, &fleet); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if fleet.DeletionTimestamp != nil {
		return ctrl.Result{}, r.end(ctx, &fleet)
	}
	if controllerutil.AddFinalizer(&fleet, Finalizer) {
		if err := r.Update(ctx, &fleet); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	labels := map[string]string{"fleet": fleet.Name}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: fleet.Name, Namespace: fleet.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		deployment.Spec.Replicas = fleet.Spec.Ships
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		deployment.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
		containers := &deployment.Spec.Template.Spec.Containers
		if len(*containers) == 0 {
			*containers = []corev1.Container{{Name: "ship"}}
		}
		(*containers)[0].Image = fleet.Spec.Image
		return controllerutil.SetControllerReference(&fleet, deployment, r.types)
	})
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) { // the cache is behind
		return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	before := fleet.deepCopy()
	fleet.Status = FleetStatus{
		Ships: deployment.Status.ReadyReplicas, Selector: "fleet=" + fleet.Name, ObservedGeneration: fleet.Generation,
	}
	return ctrl.Result{}, r.Status().Patch(ctx, &fleet, client.MergeFrom(before))
}

// end writes the end of the Fleet down, and lets it go.
func (r *reconciler) end(ctx context.Context, fleet *Fleet) error {
	entry := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: Log, Namespace: fleet.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, entry, func() error {
		if entry.Data == nil {
			entry.Data = map[string]string{}
		}
		entry.Data[fleet.Name] = string(fleet.UID)
		return nil
	})
	if err != nil || !controllerutil.RemoveFinalizer(fleet, Finalizer) {
		return err
	}
	return client.IgnoreNotFound(r.Update(ctx, fleet))
}
