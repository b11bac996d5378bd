package conformance

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"keelson/e2e/operator"
)

const fleetTemplate = `
apiVersion: e2e.keelson.dev/v1
kind: Fleet
metadata: {name: north}
spec: {image: "e2e/ship:1"%s}
`

// candidate is an operator that takes part in the election.
type candidate struct {
	elected <-chan struct{}
	stop    context.CancelFunc
	done    chan error
}

func (t *T) candidate() *candidate {
	manager, err := operator.New(t.config, t.namespace)
	t.must(err)
	ctx, stop := context.WithCancel(context.Background())
	c := &candidate{elected: manager.Elected(), stop: stop, done: make(chan error, 1)}
	go func() { c.done <- manager.Start(ctx) }()
	t.cleanup(stop)
	return c
}

func (c *candidate) leads() bool {
	select {
	case <-c.elected:
		return true
	default:
		return false
	}
}

// operators: a custom resource with all that controller-runtime makes of it, from its definition to its end.
func operators(t *T) {
	t.runs(
		call{args: "apply -f -", stdin: fmt.Sprintf(operator.Definition, ""), want: `fleets.e2e.keelson.dev created$`},
		call{args: "wait crd/fleets.e2e.keelson.dev --for=condition=Established --timeout=30s", want: `condition met$`},
	)
	t.cleanup(func() {
		// Its objects must be gone with it; whoever still has a finalizer would keep it.
		_, _ = t.kubectlRun("", "delete", "crd", "fleets.e2e.keelson.dev", "--wait=false")
	})
	first, second := t.candidate(), t.candidate()
	t.eventually("one candidate leads", func() (string, error) {
		return differs("leaders", btoi(first.leads())+btoi(second.leads()), 1), nil
	})
	if second.leads() {
		first, second = second, first
	}
	types, err := operator.Scheme()
	t.must(err)
	api, err := client.New(t.config, client.Options{Scheme: types})
	t.must(err)

	t.fleetIsChecked()
	t.runs(call{args: "apply -f -", stdin: fmt.Sprintf(fleetTemplate, ", ships: 2"), want: `fleet.e2e.keelson.dev/north created$`})
	t.eventually("the fleet sails", t.sails(api, 2))
	t.deploymentIsOwned(api)
	t.fleetIsShown()
	t.fleetScales(api)

	// Whoever leads goes; the other sees what was meanwhile changed.
	first.stop()
	t.must(<-first.done)
	t.runs(call{args: "patch fleet north --type=merge -p {\"spec\":{\"ships\":1}}", want: `patched$`})
	t.eventually("the other candidate leads", func() (string, error) { return differs("leads", second.leads(), true), nil })
	t.eventually("the new leader sees to the change", t.sails(api, 1))
	t.must(t.client.AppsV1().Deployments(t.namespace).Delete(t.ctx, "north", metav1.DeleteOptions{}))
	t.eventually("what it owns comes back", t.sails(api, 1))
	t.fleetEnds(api)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sails is what is missing until the fleet has that many ships, and says so.
func (t *T) sails(api client.Client, ships int32) func() (string, error) {
	return func() (string, error) {
		var fleet operator.Fleet
		if err := api.Get(t.ctx, client.ObjectKey{Namespace: t.namespace, Name: "north"}, &fleet); err != nil {
			return "", err
		}
		d, err := t.client.AppsV1().Deployments(t.namespace).Get(t.ctx, "north", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		have := fmt.Sprintf("%d of %d ships, generation %d", fleet.Status.Ships, ptr.Deref(d.Spec.Replicas, -1), fleet.Status.ObservedGeneration)
		return differs("fleet", have, fmt.Sprintf("%d of %d ships, generation %d", ships, ships, fleet.Generation)), nil
	}
}

// fleetIsChecked: kubectl and the server refuse what the schema does not allow, and the schema's defaults are there.
func (t *T) fleetIsChecked() {
	t.runs(
		call{args: "apply -f -", stdin: fmt.Sprintf(fleetTemplate, ", ships: 10"), fails: true,
			want: `spec.ships: Invalid value: 10: spec.ships in body should be less than or equal to 9`},
		call{args: "apply -f -", stdin: fmt.Sprintf(fleetTemplate, ", sails: 3"), fails: true, want: `unknown field "spec.sails"`},
		call{args: "create --dry-run=server -o jsonpath={.spec.ships} -f -", stdin: fmt.Sprintf(fleetTemplate, ""), want: `^1$`},
	)
}

// deploymentIsOwned: the owner reference is the fleet's, and a write of the status does not touch what is wanted.
func (t *T) deploymentIsOwned(api client.Client) {
	var fleet operator.Fleet
	t.must(api.Get(t.ctx, client.ObjectKey{Namespace: t.namespace, Name: "north"}, &fleet))
	equal(t, "finalizers", fmt.Sprint(fleet.Finalizers), "["+operator.Finalizer+"]")
	var d appsv1.Deployment
	t.must(api.Get(t.ctx, client.ObjectKey{Namespace: t.namespace, Name: "north"}, &d))
	owner := metav1.GetControllerOf(&d)
	if owner == nil || owner.UID != fleet.UID || owner.Kind != "Fleet" {
		t.fail("the deployment's owner is %v", owner)
	}
	generation := fleet.Generation
	fleet.Spec.Image, fleet.Status.Selector = "e2e/ship:9", "fleet=south"
	t.must(api.Status().Update(t.ctx, &fleet))
	equal(t, "generation after a write of the status", fleet.Generation, generation)
	equal(t, "spec after a write of the status", fleet.Spec.Image, "e2e/ship:1")
	var selected operator.FleetList
	t.must(api.List(t.ctx, &selected, client.InNamespace(t.namespace), client.MatchingFields{"spec.image": "e2e/ship:1"}))
	equal(t, "fleets by field", len(selected.Items), 1)
}

// fleetIsShown: kubectl shows it by the columns of its definition, and explains it by its schema, also after that has changed.
func (t *T) fleetIsShown() {
	more := `
              flag: {type: string, description: What flies at the mast.}`
	t.runs(
		call{args: "get fl", want: `^NAME +WANTED +AFLOAT\nnorth +2 +2$`},
		call{args: "get navy", want: `north +2 +2$`},
		call{args: "api-resources --api-group=e2e.keelson.dev", want: `^fleets +fl +e2e.keelson.dev/v1 +true +Fleet$`},
		call{args: "explain fleet", want: `^ +A Fleet is a number of ships of one build.$`},
		call{args: "explain fleet.spec", want: `^  ships\t<integer>$`},
		call{args: "explain fleet.metadata.labels", want: `^FIELD: labels <map\[string\]string>$`},
		call{args: "explain fleet.spec.flag", fails: true, want: `field "flag" does not exist`},
		call{args: "apply -f -", stdin: fmt.Sprintf(operator.Definition, more), want: `configured$`},
	)
	t.eventually("kubectl explains the new field", func() (string, error) {
		out, err := t.kubectlRun("", "explain", "fleet.spec.flag")
		if !strings.Contains(out, "What flies at the mast.") {
			return out, err
		}
		return "", nil
	})
	t.eventually("the new field is stored", func() (string, error) {
		out, err := t.kubectlRun("", "patch", "fleet", "north", "--type=merge", "-p", `{"spec":{"flag":"blue"}}`, "-o", "jsonpath={.spec.flag}")
		return differs("flag", out, "blue"), err
	})
}

// fleetScales: kubectl and an autoscaler use the scale subresource.
func (t *T) fleetScales(api client.Client) {
	t.runs(call{args: "scale fleet north --replicas=3 --current-replicas=2", want: `^fleet.e2e.keelson.dev/north scaled$`})
	t.eventually("scales", t.sails(api, 3))
	hpas := t.client.AutoscalingV2().HorizontalPodAutoscalers(t.namespace)
	_, err := hpas.Create(t.ctx, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: named("north"),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: operator.GroupVersion.String(), Kind: "Fleet", Name: "north"},
			MinReplicas:    ptr.To[int32](4), MaxReplicas: 5,
		},
	}, metav1.CreateOptions{})
	t.must(err)
	t.eventually("an autoscaler scales", t.sails(api, 4))
	t.must(hpas.Delete(t.ctx, "north", metav1.DeleteOptions{}))
}

// fleetEnds: its finalizer runs before it goes, and what it owns goes with it; its definition takes the rest.
func (t *T) fleetEnds(api client.Client) {
	var fleet operator.Fleet
	t.must(api.Get(t.ctx, client.ObjectKey{Namespace: t.namespace, Name: "north"}, &fleet))
	t.must(api.Delete(t.ctx, &fleet))
	t.eventually("the fleet goes", func() (string, error) {
		err := api.Get(t.ctx, client.ObjectKeyFromObject(&fleet), &operator.Fleet{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "still there", err
	})
	var log corev1.ConfigMap
	t.must(api.Get(t.ctx, client.ObjectKey{Namespace: t.namespace, Name: operator.Log}, &log))
	equal(t, "what its finalizer wrote", log.Data["north"], string(fleet.UID))
	t.eventually("its deployment goes", func() (string, error) {
		_, err := t.client.AppsV1().Deployments(t.namespace).Get(t.ctx, "north", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "still there", err
	})
	t.runs(
		call{args: "delete crd fleets.e2e.keelson.dev --timeout=30s", want: `deleted`},
		call{args: "get fleets", fails: true, want: `the server (doesn't have a|could not find the requested) resource`},
	)
	t.eventually("it is published no more", func() (string, error) {
		out, err := t.kubectlRun("", "get", "--raw", "/openapi/v3")
		if strings.Contains(out, "e2e.keelson.dev") {
			return "still in /openapi/v3", err
		}
		return "", err
	})
}
