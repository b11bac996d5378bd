package conformance

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// gate is a network that can be cut: connections end, and what is sent waits until it is mended. It remembers what was asked for.
type gate struct {
	next http.RoundTripper

	mu      sync.Mutex
	mended  chan struct{}        // while it is cut
	ends    []context.CancelFunc // of what is under way
	queries []url.Values
}

// RoundTrip is what a transport does.
func (g *gate) RoundTrip(request *http.Request) (*http.Response, error) {
	g.mu.Lock()
	for g.mended != nil {
		mended := g.mended
		g.mu.Unlock()
		select {
		case <-mended:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
		g.mu.Lock()
	}
	ctx, end := context.WithCancel(request.Context())
	g.ends = append(g.ends, end)
	g.queries = append(g.queries, request.URL.Query())
	g.mu.Unlock()
	response, err := g.next.RoundTrip(request.WithContext(ctx))
	if err == nil {
		response.Body = severable{response.Body, ctx}
	}
	return response, err
}

// severable is a body that ends as that of a lost connection does when its network is cut.
type severable struct {
	io.ReadCloser
	network context.Context
}

// Read is what a body does.
func (s severable) Read(into []byte) (int, error) {
	n, err := s.ReadCloser.Read(into)
	if err != nil && err != io.EOF && s.network.Err() != nil {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// cut lets nothing through until mend.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mended = make(chan struct{})
	for _, end := range g.ends {
		end()
	}
	g.ends, g.queries = nil, nil
}

func (g *gate) mend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.mended)
	g.mended = nil
}

// anew are the queries since the last cut that ask for the whole state: lists and watch-lists.
func (g *gate) anew() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for _, query := range g.queries {
		if !query.Has("watch") || query.Get("sendInitialEvents") == "true" {
			out = append(out, query.Encode())
		}
	}
	return out
}

// followed is an informer of ConfigMaps, and what it has told its handlers: the value of each map by its name.
type followed struct {
	cache.SharedIndexInformer
	mu   sync.Mutex
	told map[string]string
}

func (t *T) follow(config *rest.Config, tweak func(*metav1.ListOptions)) *followed {
	client, err := kubernetes.NewForConfig(config)
	t.must(err)
	ctx, stop := context.WithCancel(context.Background())
	t.cleanup(stop)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(t.namespace), informers.WithTweakListOptions(tweak))
	f := &followed{SharedIndexInformer: factory.Core().V1().ConfigMaps().Informer(), told: map[string]string{}}
	put := func(object any) {
		f.mu.Lock()
		defer f.mu.Unlock()
		one := object.(*corev1.ConfigMap)
		f.told[one.Name] = one.Data["value"]
	}
	_, err = f.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    put,
		UpdateFunc: func(_, object any) { put(object) },
		DeleteFunc: func(object any) {
			key, _ := cache.DeletionHandlingObjectToName(object)
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.told, key.Name)
		},
	})
	t.must(err)
	factory.Start(ctx.Done())
	t.eventually("the informer syncs", func() (string, error) { return differs("synced", f.HasSynced(), true), nil })
	return f
}

// knows is what is missing until the informer has told its handlers of what there is.
func (t *T) knows(f *followed) func() (string, error) {
	return func() (string, error) {
		list, err := t.client.CoreV1().ConfigMaps(t.namespace).List(t.ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		is, told := map[string]bool{}, map[string]bool{}
		for _, one := range list.Items {
			is[one.Name+"="+one.Data["value"]] = true
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for name, value := range f.told {
			told[name+"="+value] = true
		}
		return differs("maps", sortedKeys(told), sortedKeys(is)), nil
	}
}

func (t *T) setValue(name, value string) {
	patch := []byte(`{"data":{"value":"` + value + `"}}`)
	_, err := t.client.CoreV1().ConfigMaps(t.namespace).Patch(t.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	t.must(err)
}

// informersAdvance: an informer begins with a watch-list, follows what changes, and where nothing does, bookmarks keep it from
// falling behind.
func informersAdvance(t *T) {
	network := &gate{}
	config := rest.CopyConfig(t.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { network.next = next; return network })
	t.configMap("first", nil)
	all := t.follow(config, func(*metav1.ListOptions) {})
	if begun := network.anew(); len(begun) != 1 || !strings.Contains(begun[0], "sendInitialEvents=true") {
		t.fail("the informer did not begin with one watch-list: %v", begun)
	}
	idle := t.follow(t.config, func(options *metav1.ListOptions) { options.LabelSelector = "none=such" })
	t.eventually("the informer knows the state", t.knows(all))
	t.setValue("first", "1")
	last := t.configMap("second", nil)
	t.eventually("the informer knows the changes", t.knows(all))
	t.within(75*time.Second, "a bookmark tells the idle informer how far it is", func() (string, error) {
		at, err := strconv.ParseInt(idle.LastSyncResourceVersion(), 10, 64)
		if err != nil {
			return "", err
		}
		version, err := strconv.ParseInt(last.ResourceVersion, 10, 64)
		if err != nil || at < version {
			return "it is at " + idle.LastSyncResourceVersion(), err
		}
		return "", nil
	})
	equal(t, "maps of the idle informer", len(idle.GetStore().List()), 0)
}

// informersResync: one that was cut off goes on where it was after a restart of the server; one whose place in history is gone
// meanwhile begins anew, and tells what was deleted in the gap.
func informersResync(t *T) {
	network := &gate{}
	config := rest.CopyConfig(t.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { network.next = next; return network })
	for _, name := range []string{"changes", "goes", "stays"} {
		t.configMap(name, nil)
	}
	f := t.follow(config, func(*metav1.ListOptions) {})
	t.setValue("stays", "0") // an informer begins anew where its watch was short and told nothing
	t.eventually("the informer knows the state", t.knows(f))

	network.cut()
	t.setValue("changes", "1")
	t.must(t.plane.RestartServer(t.ctx))
	network.mend()
	t.eventually("the informer knows what changed while the server was away", t.knows(f))
	if again := network.anew(); len(again) > 0 {
		t.fail("the informer began anew, though its place in history is there: %v", again)
	}

	network.cut()
	t.setValue("changes", "2")
	api := t.client.CoreV1().ConfigMaps(t.namespace)
	t.must(api.Delete(t.ctx, "goes", metav1.DeleteOptions{}))
	t.configMap("comes", nil)
	place := metav1.ListOptions{ResourceVersion: f.LastSyncResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	t.eventually("its place in history is gone", func() (string, error) {
		t.setValue("stays", strconv.FormatInt(time.Now().UnixNano(), 10)) // so that there is something newer to keep
		if _, err := api.List(t.ctx, place); !apierrors.IsResourceExpired(err) {
			return "not yet", err
		}
		return "", nil
	})
	// What the server still remembers by itself goes with it.
	t.must(t.plane.RestartServer(t.ctx))
	network.mend()
	t.eventually("the informer knows what changed behind the compaction", t.knows(f))
	if again := network.anew(); len(again) == 0 {
		t.fail("the informer did not begin anew")
	}
}
