package conformance

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
)

// leaderElection: of two candidates one leads; when it gives up, or dies, the other follows.
func leaderElection(t *T) {
	var leaders, most atomic.Int32
	candidate := func(name string, release bool) (stop func(), leads, done chan struct{}) {
		ctx, cancel := context.WithCancel(t.ctx)
		t.cleanup(cancel)
		leads, done = make(chan struct{}), make(chan struct{})
		lock := &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: "lead", Namespace: t.namespace}, Client: t.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}
		go func() {
			defer close(done)
			leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
				Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
				ReleaseOnCancel: release,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(ctx context.Context) {
						most.Store(max(most.Load(), leaders.Add(1)))
						close(leads)
						<-ctx.Done()
						leaders.Add(-1)
					},
					OnStoppedLeading: func() {},
				},
			})
		}()
		return cancel, leads, done
	}
	await := func(what string, happened <-chan struct{}) {
		select {
		case <-happened:
		case <-time.After(soon):
			t.fail("not within %v: %s", soon, what)
		}
	}
	stopA, a, doneA := candidate("a", true)
	await("a leads", a)
	stopB, b, doneB := candidate("b", false)
	select {
	case <-b:
		t.fail("b leads beside a")
	case <-time.After(time.Second):
	}
	stopA()
	await("a gives up", doneA)
	await("b leads", b)
	stopB()
	await("b dies", doneB)
	_, c, _ := candidate("c", true)
	await("c leads when b's lease is over", c)
	equal(t, "leaders at once", most.Load(), 1)
	lease, err := t.client.CoordinationV1().Leases(t.namespace).Get(t.ctx, "lead", metav1.GetOptions{})
	t.must(err)
	equal(t, "transitions", *lease.Spec.LeaseTransitions, 2)
}

// eventsOfBothAPIs: what is recorded by one of the two APIs is read by the other.
func eventsOfBothAPIs(t *T) {
	about := t.configMap("about", nil)
	ref, err := reference.GetReference(scheme.Scheme, about)
	t.must(err)

	core := record.NewBroadcaster()
	defer core.Shutdown()
	core.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: t.client.CoreV1().Events("")})
	recorder := core.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "e2e"})
	for range 3 {
		recorder.Event(ref, corev1.EventTypeNormal, "OldWay", "again")
	}
	modern := events.NewBroadcaster(&events.EventSinkImpl{Interface: t.client.EventsV1()})
	defer modern.Shutdown()
	t.must(modern.StartRecordingToSinkWithContext(t.ctx))
	modern.NewRecorder(scheme.Scheme, "e2e.keelson/e2e").Eventf(ref, nil, corev1.EventTypeWarning, "NewWay", "Checking", "a note")

	t.eventually("events.k8s.io shows the core event", func() (string, error) {
		list, err := t.client.EventsV1().Events(t.namespace).List(t.ctx, metav1.ListOptions{FieldSelector: "reason=OldWay,regarding.name=about"})
		if err != nil || len(list.Items) != 1 {
			return "not one event", err
		}
		equal(t, "note", list.Items[0].Note, "again")
		return differs("count", list.Items[0].DeprecatedCount, 3), nil
	})
	t.eventually("core shows the events.k8s.io event", func() (string, error) {
		list, err := t.client.CoreV1().Events(t.namespace).List(t.ctx, metav1.ListOptions{FieldSelector: "reason=NewWay,involvedObject.name=about"})
		if err != nil || len(list.Items) != 1 {
			return "not one event", err
		}
		one := list.Items[0]
		equal(t, "message", one.Message, "a note")
		equal(t, "action", one.Action, "Checking")
		equal(t, "controller", one.ReportingController, "e2e.keelson/e2e")
		return "", nil
	})
	t.createPod(pod("web", "true"))
	for _, reason := range []string{"Scheduled", "Started"} {
		t.eventually("the pod's event "+reason, func() (string, error) {
			list, err := t.client.EventsV1().Events(t.namespace).List(t.ctx, metav1.ListOptions{})
			if err != nil {
				return "", err
			}
			for _, event := range list.Items {
				if event.Reason == reason && event.Regarding.Name == "web" {
					return "", nil
				}
			}
			return describe(list.Items), nil
		})
	}
}

func describe(list []eventsv1.Event) string {
	text := "events:"
	for _, event := range list {
		text += " " + event.Reason
	}
	return text
}
