package conformance

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// next is the next event of a watch.
func (t *T) next(w watch.Interface, limit time.Duration) watch.Event {
	select {
	case event, open := <-w.ResultChan():
		if !open {
			t.fail("the watch ended")
		}
		return event
	case <-time.After(limit):
		t.fail("no event within %v", limit)
	}
	return watch.Event{}
}

// watchLists: a watch that begins with the state, says when it has told all of it, and goes on.
func watchLists(t *T) {
	want := map[string]bool{"kube-root-ca.crt": true}
	for i := range 5 {
		want[t.configMap(fmt.Sprintf("map-%d", i), nil).Name] = true
	}
	api := t.client.CoreV1().ConfigMaps(t.namespace)
	t.eventually("the CA is there", func() (string, error) {
		_, err := api.Get(t.ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return "", err
	})
	w, err := api.Watch(t.ctx, metav1.ListOptions{
		SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	})
	t.must(err)
	defer w.Stop()
	seen := map[string]bool{}
	for {
		event := t.next(w, soon)
		object := event.Object.(*corev1.ConfigMap)
		if event.Type == watch.Bookmark {
			equal(t, "annotation of the bookmark", object.Annotations[metav1.InitialEventsAnnotationKey], "true")
			break
		}
		equal(t, "event", event.Type, watch.Added)
		seen[object.Name] = true
	}
	equal(t, "state", sortedKeys(seen), sortedKeys(want))
	t.configMap("later", nil)
	event := t.next(w, soon)
	equal(t, "event after the state", string(event.Type)+" "+event.Object.(*corev1.ConfigMap).Name, "ADDED later")
}

// bookmarks come about once a minute and shortly before the end of a watch, and a watch goes on from one without a gap.
func bookmarks(t *T) {
	api := t.client.CoreV1().ConfigMaps(t.namespace)
	made := t.configMap("first", nil)
	w, err := api.Watch(t.ctx, metav1.ListOptions{ResourceVersion: made.ResourceVersion, AllowWatchBookmarks: true, LabelSelector: "none=such", TimeoutSeconds: ptr.To[int64](5)})
	t.must(err)
	defer w.Stop()
	event := t.next(w, soon)
	equal(t, "event", event.Type, watch.Bookmark)
	version := event.Object.(*corev1.ConfigMap).ResourceVersion
	t.configMap("second", nil)
	again, err := api.Watch(t.ctx, metav1.ListOptions{ResourceVersion: version})
	t.must(err)
	defer again.Stop()
	event = t.next(again, soon)
	equal(t, "event after the bookmark", string(event.Type)+" "+event.Object.(*corev1.ConfigMap).Name, "ADDED second")
}

// compaction: what is asked for after its history was dropped is answered with 410; a list goes on with what there is now.
func compaction(t *T) {
	api := t.client.CoreV1().ConfigMaps(t.namespace)
	for i := range 4 {
		t.configMap(fmt.Sprintf("map-%d", i), nil)
	}
	page, err := api.List(t.ctx, metav1.ListOptions{Limit: 2})
	t.must(err)
	// kube-root-ca.crt comes first, if it is there already.
	left := 4
	for _, listed := range page.Items {
		if strings.HasPrefix(listed.Name, "map-") {
			left--
		}
	}
	t.eventually("the page expires", func() (string, error) {
		// Something must be written for there to be a newer revision to keep.
		_, err := api.Patch(t.ctx, "map-0", types.MergePatchType,
			fmt.Appendf(nil, `{"data":{"now":"%d"}}`, time.Now().UnixNano()), metav1.PatchOptions{})
		t.must(err)
		_, err = api.List(t.ctx, metav1.ListOptions{Limit: 2, Continue: page.Continue})
		if err == nil {
			return "it is still answered", nil
		}
		if !apierrors.IsResourceExpired(err) {
			return "", err
		}
		fresh := err.(apierrors.APIStatus).Status().ListMeta.Continue
		if fresh == "" {
			t.fail("no token to go on with")
		}
		rest, err := api.List(t.ctx, metav1.ListOptions{Limit: 500, Continue: fresh})
		t.must(err)
		equal(t, "the rest", len(rest.Items), left)
		return "", nil
	})
	_, err = api.List(t.ctx, metav1.ListOptions{ResourceVersion: page.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.fail("a list at the compacted revision: %v", err)
	}
	w, err := api.Watch(t.ctx, metav1.ListOptions{ResourceVersion: "1"})
	if err == nil { // else it is refused before it begins
		defer w.Stop()
		event := t.next(w, soon)
		if event.Type == watch.Added {
			// The server may remember more than its store; but then all of it.
			first := event.Object.(*corev1.ConfigMap).Name
			if first != "kube-root-ca.crt" && first != "map-0" {
				t.fail("a watch from long ago begins with %s", first)
			}
			return
		}
		equal(t, "event of a watch from long ago", event.Type, watch.Error)
		err = apierrors.FromObject(event.Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.fail("a watch from long ago: %v", err)
	}
}
