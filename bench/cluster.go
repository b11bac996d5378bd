package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// podsPerNode are there from the start.
	podsPerNode = 10
	// services there are, each with one EndpointSlice.
	services = namespaces
	// widgetsKept are the custom resources that are there all the time, podsKept the pods that come and go.
	widgetsKept = 200
	podsKept    = 20
	// controllerConnections are those of controllers, operators and people, with all their requests and watches.
	controllerConnections = 4
	// connecting is how many components connect at the same time.
	connecting = 16
	// retryTime is how long a watch that is refused is tried again (an authorizer has not seen a pod yet, or the server asks to
	// come back later), and retryPause the pause between.
	retryTime  = 30 * time.Second
	retryPause = 200 * time.Millisecond
	// protobufInformer is what informers of client-go accept, metadataInformer what those accept that need only metadata.
	protobufInformer = protobufType + "," + jsonType
	metadataInformer = protobufType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	tableInformer    = "application/json;as=Table;g=meta.k8s.io;v=v1"
	// watchList has initial events instead of a list before, as client-go asks for.
	watchList = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=3600"
	// proxySelector is kube-proxy's.
	proxySelector = "labelSelector=!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name"
)

// cluster is the load of a cluster in miniature on one server: kubelets and kube-proxies of all nodes, controllers, a scheduler and
// operators, each with connections and informers of its own and with the requests that it makes.
type cluster struct {
	b           *bench
	kubelets    []*kubelet
	proxies     []*connection
	controllers []*connection
	scheduler   *connection
	podSpec     []byte // of a pod that is not scheduled, in protobuf
	slices      []held
	events      atomic.Int64
	watches     atomic.Int64 // that began with all their initial events
	recorder    recorder
	mutex       sync.Mutex // for all below
	closed      bool
	broken      error
	living      []churned
	// ended counts the watches that the server ended, opening those of them that are not open again.
	ended, opening int
	// turns counts the steps of each lane, over all rounds.
	turns map[string]int
}

type kubelet struct {
	node       string
	connection *connection
	lease      held
}

// held is the metadata of an object that one component alone updates, as the server sent it last.
type held struct {
	mutex    sync.Mutex
	metadata []byte
}

// churned is a pod that came and is to go.
type churned struct {
	number int
	uid    string
	on     *kubelet
}

// newCluster fills a server with the objects of a cluster.
func newCluster(b *bench) (*cluster, error) {
	c := &cluster{b: b, slices: make([]held, services), turns: map[string]int{}}
	nodes := b.options.cluster.nodes
	say("  %s: creating %d nodes and %d pods", b.binary.label, nodes, nodes*podsPerNode)
	for i := range namespaces {
		if err := b.namespace(podNamespace(i)); err != nil {
			return c, err
		}
	}
	in := func(i int, resource string) string { return "/api/v1/namespaces/" + podNamespace(i) + "/" + resource }
	secret := encode(object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "web-tls"}, "stringData": object{"password": "secret"}})
	for _, some := range []struct {
		count int
		call  func(i int) call
	}{
		{1, func(int) call {
			return b.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgetDefinition())
		}},
		{nodes, func(i int) call { return b.post("/api/v1/nodes", nodeObject(i)) }},
		{nodes, func(i int) call {
			return b.post("/apis/coordination.k8s.io/v1/namespaces/"+leaseNamespace+"/leases", leaseObject(clusterNode(i)))
		}},
		{namespaces, func(i int) call { return b.post(in(i, "configmaps"), configMap("web")) }},
		{namespaces, func(i int) call { return b.post(in(i, "secrets"), secret) }},
		{services, func(i int) call { return b.post(in(i, "services"), serviceObject(i)) }},
		{services, func(i int) call {
			return b.post("/apis/discovery.k8s.io/v1/namespaces/"+podNamespace(i)+"/endpointslices", sliceObject(i))
		}},
		{nodes * podsPerNode, func(i int) call { return b.post(in(i, "pods"), standingPod(i, i%nodes)) }},
	} {
		if _, err := b.writes(some.count, some.call); err != nil {
			return c, err
		}
	}
	served := func() bool { return answers(b.clients[0], b.url+"/apis/"+widgetGroup+"/v1/widgets") }
	if err := b.server.await(b.ctx, served); err != nil {
		return c, err
	}
	_, err := b.writes(widgetsKept, func(i int) call { return b.post(widgetPath(i, ""), widget(fmt.Sprintf("kept-%03d", i), i)) })
	return c, err
}

func widgetPath(i int, name string) string {
	return "/apis/" + widgetGroup + "/v1/namespaces/" + podNamespace(i) + "/widgets" + name
}

// connect opens all connections and informers, and waits until each informer has its initial events.
func (c *cluster) connect() error {
	if err := c.connectControllers(); err != nil {
		return err
	}
	proxy, err := c.b.keys.user("system:kube-proxy")
	if err != nil {
		return err
	}
	nodes := c.b.options.cluster.nodes
	c.kubelets, c.proxies = make([]*kubelet, nodes), make([]*connection, nodes)
	return inParallel(nodes, connecting, func(i int) (err error) {
		if c.kubelets[i], err = c.kubelet(i); err != nil {
			return err
		}
		if c.proxies[i], err = connect(c.b.url, proxy); err != nil {
			return err
		}
		return c.inform(c.proxies[i], protobufInformer, "/apis/discovery.k8s.io/v1/endpointslices?"+proxySelector, "/api/v1/services?"+proxySelector,
			"/api/v1/nodes?fieldSelector=metadata.name="+clusterNode(i))
	})
}

// kubelet connects that of a node.
func (c *cluster) kubelet(i int) (*kubelet, error) {
	name := clusterNode(i)
	config, err := c.b.keys.user("system:node:"+name, "system:nodes")
	if err != nil {
		return nil, err
	}
	k := &kubelet{node: name}
	if k.connection, err = connect(c.b.url, config); err != nil {
		return nil, err
	}
	namespace := "/api/v1/namespaces/" + podNamespace(i)
	return k, c.inform(k.connection, protobufInformer, "/api/v1/pods?fieldSelector=spec.nodeName="+name, "/api/v1/services",
		"/api/v1/nodes?fieldSelector=metadata.name="+name, namespace+"/configmaps?fieldSelector=metadata.name=web",
		namespace+"/secrets?fieldSelector=metadata.name=web-tls")
}

func (c *cluster) connectControllers() error {
	for range controllerConnections {
		connection, err := connect(c.b.url, c.b.keys.config())
		if err != nil {
			return err
		}
		c.controllers = append(c.controllers, connection)
	}
	scheduler, err := c.b.keys.user("system:kube-scheduler")
	if err != nil {
		return err
	}
	if c.scheduler, err = connect(c.b.url, scheduler); err != nil {
		return err
	}
	manager, collector, operators, people := c.controllers[0], c.controllers[1], c.controllers[2], c.controllers[3]
	widgets, leases := "/apis/"+widgetGroup+"/v1/widgets", "/apis/coordination.k8s.io/v1/leases"
	byLabel := make([]string, 10)
	for i := range byLabel {
		byLabel[i] = fmt.Sprintf("/api/v1/pods?labelSelector=group=g%02d", i)
	}
	return errors.Join(
		c.inform(c.scheduler, protobufInformer, "/api/v1/pods?fieldSelector="+url.QueryEscape("status.phase!=Succeeded,status.phase!=Failed"), "/api/v1/nodes"),
		c.inform(manager, protobufInformer, "/api/v1/pods", "/api/v1/nodes", "/api/v1/services", "/api/v1/configmaps", "/apis/discovery.k8s.io/v1/endpointslices", leases),
		c.inform(collector, metadataInformer, "/api/v1/pods", "/api/v1/nodes", "/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices", leases, widgets),
		c.inform(operators, protobufInformer, byLabel...),
		c.inform(operators, jsonType, widgets, widgets, widgets, widgets, widgets+"?labelSelector=group=g07", "/api/v1/pods"),
		c.inform(people, jsonType, "/api/v1/events"),
		c.inform(people, tableInformer, "/api/v1/pods"),
	)
}

// inform opens an informer for each path.
func (c *cluster) inform(connection *connection, accept string, paths ...string) error {
	for _, path := range paths {
		joint := "?"
		if parsed, err := url.Parse(path); err == nil && parsed.RawQuery != "" {
			joint = "&"
		}
		if err := c.watch(connection, request{method: http.MethodGet, path: path + joint + watchList, accept: accept, gzip: true}); err != nil {
			return fmt.Errorf("watch of %s: %w", path, err)
		}
	}
	return nil
}

// watch opens a watch and waits for the bookmark after its initial events. When the server ends it, it is opened again.
func (c *cluster) watch(connection *connection, r request) error {
	ended, err := c.openWatch(connection, r)
	if err != nil {
		return err
	}
	c.watches.Add(1)
	go func() {
		for {
			err := <-ended
			if err == nil {
				c.count(1, 1)
				ended, err = c.openWatch(connection, r)
				c.count(0, -1)
			}
			if err != nil {
				c.fail(fmt.Errorf("the watch of %s ended: %w", r.path, err))
				return
			}
		}
	}()
	return nil
}

// count adds to the watches that ended and to those that are being opened again.
func (c *cluster) count(ended, opening int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.ended += ended
	c.opening += opening
}

// openWatch opens a watch, again and again while the server refuses it for now. The channel gets a value when the watch ends.
func (c *cluster) openWatch(connection *connection, r request) (ended chan error, err error) {
	for begin := time.Now(); ; time.Sleep(retryPause) {
		ended, err := c.tryWatch(connection, r)
		var no *refused
		if errors.As(err, &no) && (no.status == http.StatusForbidden || no.status == http.StatusTooManyRequests) && time.Since(begin) < retryTime {
			continue
		}
		return ended, err
	}
}

func (c *cluster) tryWatch(connection *connection, r request) (chan error, error) {
	counter := eventCounter{protobuf: r.accept != jsonType && r.accept != tableInformer}
	synced, ended := make(chan struct{}), make(chan error, 1)
	first, status := true, 0
	var refusal []byte
	seen := func(kind byte) {
		switch kind {
		case 'A', 'M', 'D':
			c.events.Add(1)
		case 'B':
			if first {
				first = false
				close(synced)
			}
		default: // the server says why it ends the watch
		}
	}
	_, err := connection.open(r, handler{
		began: func(answered int) { status = answered },
		body: func(part []byte) error {
			if status == http.StatusOK {
				counter.write(part, seen)
			} else {
				refusal = append(refusal, part[:min(len(part), bodyShown)]...)
			}
			return nil
		},
		ended: func(err error) { ended <- err },
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-synced:
		return ended, nil
	case err := <-ended:
		if err == nil {
			err = &refused{status, fmt.Sprintf("%d: %s", status, refusal)}
		}
		return nil, err
	case <-time.After(openTime):
		return nil, errors.New("its initial events take too long")
	}
}

// fail keeps the first error of what runs beside the requests, unless it is because everything ends.
func (c *cluster) fail(err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.broken == nil && !c.closed {
		c.broken = err
	}
}

// check says how many watches the server ended since it was asked last, and whether all are open again.
func (c *cluster) check() (ended int, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	ended, c.ended = c.ended, 0
	return ended, c.broken
}

func (c *cluster) close() {
	c.mutex.Lock()
	c.closed = true
	c.mutex.Unlock()
	for _, k := range c.kubelets {
		if k != nil {
			k.connection.close()
		}
	}
	for _, connection := range append(append(c.proxies, c.controllers...), c.scheduler) {
		if connection != nil {
			connection.close()
		}
	}
}

// send makes a request and records it.
func (c *cluster) send(connection *connection, what string, r request) ([]byte, error) {
	r.gzip = true
	if r.accept == "" {
		r.accept = protobufInformer
	}
	begin := time.Now()
	keep := what == "update" || what == "create"
	body, err := connection.call(c.b.ctx, r, keep)
	c.recorder.add(what, time.Since(begin), err)
	return body, err
}

// inParallel calls do for 0 to n-1, some of them at a time, until one fails.
func inParallel(n, some int, do func(i int) error) error {
	var (
		next   atomic.Int64
		group  sync.WaitGroup
		mutex  sync.Mutex
		failed error
	)
	for range min(n, some) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					mutex.Lock()
					failed = errors.Join(failed, err)
					mutex.Unlock()
					next.Store(int64(n))
				}
			}
		})
	}
	group.Wait()
	return failed
}

// recorder keeps how long requests took, by what they are, and what failed.
type recorder struct {
	mutex  sync.Mutex
	took   map[string][]time.Duration
	failed int
	first  error
}

func (r *recorder) add(what string, took time.Duration, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if err != nil {
		if r.failed++; r.first == nil && !errors.Is(err, context.Canceled) {
			r.first = err
		}
		return
	}
	if r.took == nil {
		r.took = map[string][]time.Duration{}
	}
	r.took[what] = append(r.took[what], took)
}

// reset forgets everything, and returns what was there.
func (r *recorder) reset() (took map[string][]time.Duration, failed int, first error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	took, failed, first = r.took, r.failed, r.first
	r.took, r.failed, r.first = nil, 0, nil
	return took, failed, first
}
