package main

import (
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// lane is one kind of work that comes at a fixed rate, whether or not the server has finished what came before.
type lane struct {
	name string
	// rate is how many steps come in a second; fixed, instead, how many in a round however long that is.
	rate  float64
	fixed int
	step  func(c *cluster, i int) error
}

// mix is a load: lanes that run together for a round, and lists that go round and round meanwhile.
type mix struct {
	name  string
	lanes []lane
	// loops list all pods, one list after the other, each loop in its way.
	loops int
}

// spread numbers so that neighbours are far from each other.
const spread = 7919

// mixes in the order of measuring. Each but the last two is one subject, with rates that tell its cost in a short time; the rates of
// the whole cluster are about those of a thousand nodes.
var mixes = []mix{
	{name: "heartbeats of nodes", lanes: []lane{{name: "lease", rate: 300, step: renewLease}, {name: "node", rate: 30, step: patchNode}}},
	{name: "pods come and go", lanes: []lane{{name: "life", rate: 15, step: livePod}}},
	{name: "endpoints to all nodes", lanes: []lane{{name: "slice", rate: 20, step: updateSlice}, {name: "service", rate: 2, step: patchService}}},
	{name: "custom resources", lanes: []lane{{name: "status", rate: 60, step: patchWidget}, {name: "widget", rate: 10, step: replaceWidget}}},
	{name: "the whole cluster", lanes: []lane{
		{name: "lease", rate: 100, step: renewLease}, {name: "node", rate: 10, step: patchNode}, {name: "life", rate: 5, step: livePod},
		{name: "slice", rate: 2, step: updateSlice}, {name: "service", rate: 0.5, step: patchService}, {name: "status", rate: 10, step: patchWidget},
		{name: "widget", rate: 2, step: replaceWidget}, {name: "get", rate: 20, step: getOne}, {name: "selected", rate: 5, step: listSome},
		{name: "list", fixed: len(wholeLists), step: func(c *cluster, i int) error { return c.list(i) }},
	}},
	{name: "four loops of lists", loops: len(wholeLists), lanes: []lane{{name: "get", rate: 50, step: getOne}, {name: "pod", rate: 20, step: patchPod}}},
}

// kubeletOf is that of the i-th turn.
func (c *cluster) kubeletOf(i int) *kubelet { return c.kubelets[i%len(c.kubelets)] }

func (c *cluster) controller(i int) *connection { return c.controllers[i%len(c.controllers)] }

// update puts an object with the metadata that came last, and keeps what comes back.
func (c *cluster) update(connection *connection, path string, h *held, body func(metadata []byte) []byte) error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.metadata == nil {
		found, err := connection.call(c.b.ctx, request{method: http.MethodGet, path: path, accept: protobufType}, true)
		if err != nil {
			return err
		}
		if h.metadata, err = metadata(found); err != nil {
			return err
		}
	}
	answer, err := c.send(connection, "update", request{method: http.MethodPut, path: path, mediaType: protobufType, body: body(h.metadata)})
	if err == nil {
		h.metadata, err = metadata(answer)
	}
	if err != nil {
		h.metadata = nil
	}
	return err
}

func (c *cluster) patch(connection *connection, path, mediaType string, body []byte) error {
	_, err := c.send(connection, "patch", request{method: http.MethodPatch, path: path, mediaType: mediaType, body: body})
	return err
}

func (c *cluster) create(connection *connection, path string, body []byte) ([]byte, error) {
	return c.send(connection, "create", request{method: http.MethodPost, path: path, mediaType: protobufType, body: body})
}

// renewLease is what each kubelet does every ten seconds.
func renewLease(c *cluster, i int) error {
	k := c.kubeletOf(i)
	return c.update(k.connection, "/apis/coordination.k8s.io/v1/namespaces/"+leaseNamespace+"/leases/"+k.node, &k.lease, func(metadata []byte) []byte {
		return renewedLease(k.node, metadata, time.Now())
	})
}

// patchNode is what a kubelet does when the status of its node is due.
func patchNode(c *cluster, i int) error {
	k := c.kubeletOf(i * spread)
	path := "/api/v1/nodes/" + k.node
	if _, err := c.send(k.connection, "get", request{method: http.MethodGet, path: path + "?resourceVersion=0"}); err != nil {
		return err
	}
	return c.patch(k.connection, path+"/status", strategic, nodeStatus(i))
}

// livePod brings one pod to life, and the oldest to its end.
func livePod(c *cluster, i int) error {
	if err := c.birth(i); err != nil {
		return err
	}
	c.mutex.Lock()
	oldest := c.living[0]
	c.living = c.living[1:]
	c.mutex.Unlock()
	return c.death(oldest)
}

// birth of a pod: a controller creates it, the scheduler binds it, the kubelet says that its containers start and that they run.
func (c *cluster) birth(i int) error {
	k := c.kubeletOf(i * spread)
	namespace := "/api/v1/namespaces/" + podNamespace(i)
	path := namespace + "/pods/" + churnName(i)
	created, err := c.create(c.controller(i), namespace+"/pods", churnPod(i, c.podSpec))
	if err != nil {
		return err
	}
	known, err := metadata(created)
	if err != nil {
		return err
	}
	id, err := field(known, 5)
	if err != nil {
		return err
	}
	uid := string(id)
	event := func(connection *connection, reason, component string) error {
		_, err := c.create(connection, namespace+"/events", eventObject(i, uid, reason, component, k.node, time.Now()))
		return err
	}
	for _, step := range []func() error{
		func() error { _, err := c.create(c.scheduler, path+"/binding", binding(i, uid, k.node)); return err },
		func() error { return event(c.scheduler, "Scheduled", "default-scheduler") },
		func() error { return c.patch(k.connection, path+"/status", strategic, pendingStatus(uid, i)) },
		func() error { return event(k.connection, "Pulled", "kubelet") },
		func() error { return event(k.connection, "Started", "kubelet") },
		func() error { return c.patch(k.connection, path+"/status", strategic, readyStatus(i)) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.living = append(c.living, churned{i, uid, k})
	return nil
}

// death of a pod: a controller deletes it, its kubelet stops the containers and removes it.
func (c *cluster) death(pod churned) error {
	path := "/api/v1/namespaces/" + podNamespace(pod.number) + "/pods/" + churnName(pod.number)
	if _, err := c.send(c.controller(pod.number), "delete", request{method: http.MethodDelete, path: path}); err != nil {
		return err
	}
	if err := c.patch(pod.on.connection, path+"/status", strategic, readyStatus(pod.number+1)); err != nil {
		return err
	}
	_, err := c.send(pod.on.connection, "delete", request{method: http.MethodDelete, path: path, mediaType: protobufType, body: deleteNow(pod.uid)})
	return err
}

// prepare finds what a pod's spec looks like, and fills the queue of those that are to go.
func (c *cluster) prepare() error {
	template := podObject(0)
	delete(template["spec"].(object), "nodeName")
	template["metadata"].(object)["name"] = "template"
	collection := "/api/v1/namespaces/" + podNamespace(0) + "/pods"
	all := c.controllers[0]
	for _, step := range []request{
		{method: http.MethodPost, path: collection, mediaType: jsonType, body: encode(template)},
		{method: http.MethodGet, path: collection + "/template"},
		{method: http.MethodDelete, path: collection + "/template"},
	} {
		step.accept = protobufType
		body, err := all.call(c.b.ctx, step, true)
		if err != nil {
			return err
		}
		if step.method == http.MethodGet {
			pod, err := raw(body)
			if err != nil {
				return err
			}
			if c.podSpec, err = field(pod, 2); err != nil {
				return err
			}
		}
	}
	for i := range podsKept {
		if err := c.birth(i); err != nil {
			return err
		}
	}
	c.turns["life"] = podsKept
	return nil
}

// updateSlice is what the controller of EndpointSlices does when a pod becomes ready.
func updateSlice(c *cluster, i int) error {
	slice := i % services
	path := "/apis/discovery.k8s.io/v1/namespaces/" + podNamespace(slice) + "/endpointslices/" + serviceName(slice)
	return c.update(c.controllers[0], path, &c.slices[slice], func(metadata []byte) []byte { return changedSlice(slice, i/services, metadata) })
}

func patchService(c *cluster, i int) error {
	path := "/api/v1/namespaces/" + podNamespace(i%services) + "/services/" + serviceName(i%services)
	return c.patch(c.controllers[3], path, mergePatch, fmt.Appendf(nil, `{"metadata":{"annotations":{"bench/turn":"%d"}}}`, i))
}

// patchWidget is what an operator does when it has looked at a custom resource.
func patchWidget(c *cluster, i int) error {
	n := i % widgetsKept
	_, err := c.send(c.controllers[2], "patch", request{method: http.MethodPatch, path: widgetPath(n, fmt.Sprintf("/kept-%03d/status", n)), mediaType: mergePatch,
		accept: jsonType, body: widgetStatus(i)})
	return err
}

// replaceWidget creates a custom resource and deletes it.
func replaceWidget(c *cluster, i int) error {
	name := fmt.Sprintf("short-%06d", i)
	if _, err := c.send(c.controllers[2], "create", request{method: http.MethodPost, path: widgetPath(i, ""), mediaType: jsonType, accept: jsonType, body: widget(name, i)}); err != nil {
		return err
	}
	_, err := c.send(c.controllers[2], "delete", request{method: http.MethodDelete, path: widgetPath(i, "/"+name), accept: jsonType})
	return err
}

// standing is the path of a pod that is there from the start.
func (c *cluster) standing(i int) string { return podURL(i * spread % (len(c.kubelets) * podsPerNode)) }

// getOne reads a pod: as a controller does, consistently, or as a person does, in JSON.
func getOne(c *cluster, i int) error {
	r := request{method: http.MethodGet, path: c.standing(i)}
	if i%2 == 0 {
		r.accept = jsonType
	}
	_, err := c.send(c.controller(i), "get", r)
	return err
}

// patchPod is what a kubelet does when a probe's answer has changed.
func patchPod(c *cluster, i int) error {
	number := i * spread % (len(c.kubelets) * podsPerNode)
	return c.patch(c.kubeletOf(number).connection, podURL(number)+"/status", strategic, readyStatus(i))
}

// listSome lists pods by label or by node.
func listSome(c *cluster, i int) error {
	query := fmt.Sprintf("labelSelector=group=g%02d", i%groups)
	if i%2 == 0 {
		query = "resourceVersion=0&fieldSelector=spec.nodeName=" + c.kubeletOf(i*spread).node
	}
	_, err := c.send(c.controller(i), "list of some", request{method: http.MethodGet, path: "/api/v1/pods?" + query})
	return err
}

// wholeLists are lists of all pods as those who list make them: exporters, controllers without informers, kubectl.
var wholeLists = []struct {
	query, accept string
	paged         bool
}{
	{"resourceVersion=0", jsonType, false},
	{"", protobufInformer, false},
	{"limit=500", protobufInformer, true},
	{"resourceVersion=0", tableType, false},
}

// list is one list of all pods, page by page if it has pages.
func (c *cluster) list(i int) error {
	how := wholeLists[i%len(wholeLists)]
	connection := c.controller(i)
	for next := ""; ; {
		r := request{method: http.MethodGet, path: "/api/v1/pods?" + how.query + next, accept: how.accept}
		if !how.paged {
			_, err := c.send(connection, "list", r)
			return err
		}
		begin := time.Now()
		body, err := connection.call(c.b.ctx, r, true) // not compressed: the client looks into it
		c.recorder.add("page", time.Since(begin), err)
		if err != nil {
			return err
		}
		meta, err := metadata(body)
		if err != nil {
			return err
		}
		token, err := field(meta, 3)
		if err != nil || len(token) == 0 {
			return err
		}
		next = "&continue=" + url.QueryEscape(string(token))
	}
}

// pace makes a round's steps, evenly over its time, and waits for them. It returns how long the last one began after its time.
func (l lane) pace(c *cluster, steps, from int, during time.Duration) (late time.Duration) {
	var group sync.WaitGroup
	begin := time.Now()
	for i := range steps {
		at := begin.Add(during * time.Duration(i) / time.Duration(steps))
		time.Sleep(time.Until(at))
		late = time.Since(at)
		group.Go(func() {
			if err := l.step(c, from+i); err != nil {
				c.recorder.add(l.name, 0, err)
			}
		})
	}
	group.Wait()
	return late
}

// steps of a round at so many times the lane's rate.
func (l lane) steps(times float64, during time.Duration) int {
	if l.fixed > 0 {
		return l.fixed
	}
	return max(1, int(l.rate*times*during.Seconds()+0.5))
}
