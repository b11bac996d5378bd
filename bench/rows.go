package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"sync"
)

// row is one line of the table: what is measured, what kube-apiserver v1.36.2 took on the machine that the goals were set on,
// and the goal.
type row struct {
	name, theirs string
	goal         float64
	unit         unit
	measurement
}

const (
	// smallWrites and podWrites are how often rows of writes write; smallReads how many small answers a round reads.
	smallWrites = 4000
	podWrites   = 2000
	smallReads  = 2000
	// deployments are applied in turn, patchedPods patched: few, so that most pods keep their size.
	deployments = 50
	patchedPods = 500
	// rounds are made of what servers do in turn; the middle one counts.
	rounds = 7
	// listsPerRound is how many lists of everything a round makes at most: one alone takes too little time to tell.
	listsPerRound = 5
	podsPerPage   = 500
	// atOnce is how many lists run together in the row of the peak.
	atOnce = 8
	// itemsPerRound is how many ConfigMaps a round lists in all, at least one list.
	itemsPerRound = 20_000
)

const listJSON = "list pods, JSON, rv=0"

// rows in the order of measuring: what needs an empty server comes first.
func rows(o *options) []row {
	pods := o.pods
	all := []row{
		{"ready after start", "2.2-3.8 s", 0.1, seconds, once(ready)},
		{"idle memory (RSS)", "264 MB", 25, megabytes, once(idle)},
		{"5000 idle watchers, each", "", 10, kilobytes, once(idleWatchers)},
		{"create ConfigMap", "0.65 ms", 0.10, milliseconds, inTurns(createConfigMap)},
		{"create pod", "2.1 ms", 0.25, milliseconds, inTurns(createPod)},
		{"create pod, with a webhook", "", 0, milliseconds, inTurns(createPodWithWebhook)},
		{fmt.Sprintf("RSS after creating %d pods", pods), "970 MB", 120, megabytes, once(afterPods)},
		{"get pod, consistent", "0.48 ms", 0.08, milliseconds, inTurns(getPod(""))},
		{"get pod, rv=0", "0.39 ms", 0.05, milliseconds, inTurns(getPod("?resourceVersion=0"))},
		{"merge patch pod", "3.9 ms", 0.35, milliseconds, inTurns(mergePatchPod)},
		{"strategic patch of status", "4.1 ms", 0.35, milliseconds, inTurns(patchStatus)},
		{"apply of a Deployment", "2.5 ms", 0.30, milliseconds, inTurns(apply)},
		{listJSON, "958 ms", 85, milliseconds, inTurns(list("?resourceVersion=0", jsonType))},
		{"list pods, JSON, consistent", "1064 ms", 90, milliseconds, inTurns(list("", jsonType))},
		{"list pods, protobuf", "472 ms", 65, milliseconds, inTurns(list("?resourceVersion=0", protobufType))},
		{"list pods, metadata only", "563 ms", 40, milliseconds, inTurns(list("?resourceVersion=0", metadataType))},
		{"list pods, Table", "843 ms", 60, milliseconds, inTurns(list("?resourceVersion=0", tableType))},
		{"peak RSS, 8 lists of pods at once", "2383 MB", 220, megabytes, once(peak)},
		{"a page of 500 pods", "50 ms", 6, milliseconds, inTurns(page)},
		{"list by label, 1 % match", "14 ms", 1.5, milliseconds, inTurns(selected("labelSelector", func(i int) string { return fmt.Sprintf("group=g%02d", i%groups) }))},
		{"list by spec.nodeName", "2 ms", 0.2, milliseconds, inTurns(selected("fieldSelector", func(i int) string { return fmt.Sprintf("spec.nodeName=worker-%03d", i%nodes) }))},
		{"event to 1000 watchers, CPU per event and watcher", "17.6 us", 4, microseconds, inTurns(eventCost)},
		{"event to 1000 watchers, mean latency", "17 ms", 5, milliseconds, inTurns(eventLatency(1000))},
		{"event to 5000 watchers, mean latency", "114 ms", 25, milliseconds, inTurns(eventLatency(5000))},
	}
	for _, n := range o.items {
		all = append(all, row{fmt.Sprintf("list %d ConfigMaps, per item", n), "", 0, microseconds, inTurns(itemCost(n))})
	}
	return all
}

func ready(b *bench) (result, error) {
	first := b.readyCPU
	again, err := b.restart()
	more := fmt.Sprintf("CPU %.0f ms; again on the same store: %.3f s, CPU %.0f ms", ms(first), again.Seconds(), ms(b.readyCPU))
	return result{value: b.readyAfter.Seconds(), unit: seconds, more: more}, err
}

// memoryRow is what is resident, with the part that maps files apart.
func memoryRow(m memory) result {
	return result{value: mb(m.resident), unit: megabytes, more: fmt.Sprintf("%.0f MB of it map files; peak %.0f MB", mb(m.file), mb(m.peak))}
}

func idle(b *bench) (result, error) {
	m, err := b.settled()
	return memoryRow(m), err
}

func createConfigMap(b *bench) (*work, error) {
	if err := b.namespace("writes"); err != nil {
		return nil, err
	}
	return b.writing(smallWrites, func(i int) call {
		return b.post("/api/v1/namespaces/writes/configmaps", configMap(fmt.Sprintf("created-%06d", i)))
	}), nil
}

func createPod(b *bench) (*work, error) {
	turn := func() (sample, error) { return b.createPods(b.options.pods / rounds) }
	return &work{rounds: rounds, turn: turn, unit: milliseconds, figure: perOp}, nil
}

// createPodWithWebhook creates pods in a namespace where a webhook on this machine is asked about each; it allows all.
func createPodWithWebhook(b *bench) (*work, error) {
	const namespace = "webhooked"
	if err := b.namespace(namespace); err != nil {
		return nil, err
	}
	server := httptest.NewTLSServer(http.HandlerFunc(allow))
	context.AfterFunc(b.ctx, server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c := b.post("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", encode(object{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": object{"name": namespace},
		"webhooks": []object{{
			"name": "allow.bench.example.com", "clientConfig": object{"url": server.URL + "/", "caBundle": authority},
			"sideEffects": "None", "admissionReviewVersions": []string{"v1"},
			"namespaceSelector": object{"matchLabels": object{"kubernetes.io/metadata.name": namespace}},
			"rules": []object{{
				"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE"}, "resources": []string{"pods"},
			}},
		}},
	}))
	c.client = b.clients[0]
	if _, err := c.send(b.ctx); err != nil {
		return nil, err
	}
	return b.writing(podWrites, func(i int) call {
		return b.post("/api/v1/namespaces/"+namespace+"/pods", pod(i))
	}), nil
}

// allow answers an admission review.
func allow(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(encode(object{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": object{"uid": review.Request.UID, "allowed": true},
	}))
}

func afterPods(b *bench) (result, error) {
	if err := b.loadPods(); err != nil {
		return result{}, err
	}
	m, err := b.settled()
	return memoryRow(m), err
}

// readingPods is about reads that need the pods.
func (b *bench) readingPods(r read) (*work, error) {
	if err := b.loadPods(); err != nil {
		return nil, err
	}
	return b.reading(r)
}

func getPod(query string) func(*bench) (*work, error) {
	return func(b *bench) (*work, error) {
		path := func(i int) string { return podURL(i*7919%b.options.pods) + query }
		return b.readingPods(read{path: path, ops: smallReads, many: workers})
	}
}

func list(query, accept string) func(*bench) (*work, error) {
	return func(b *bench) (*work, error) {
		path := func(int) string { return "/api/v1/pods" + query }
		return b.readingPods(read{path: path, accept: accept, ops: listsPerRound, many: 1})
	}
}

func selected(kind string, selector func(i int) string) func(*bench) (*work, error) {
	return func(b *bench) (*work, error) {
		path := func(i int) string {
			return "/api/v1/pods?resourceVersion=0&" + kind + "=" + url.QueryEscape(selector(i))
		}
		return b.readingPods(read{path: path, ops: smallReads / 10, many: workers})
	}
}

// continues finds the token of the next page near the start of a list.
var continues = regexp.MustCompile(`"continue":"([^"]*)"`)

// page walks through all pods by pages, one after the other, and then measures them all again by the tokens found.
func page(b *bench) (*work, error) {
	if err := b.loadPods(); err != nil {
		return nil, err
	}
	first := fmt.Sprintf("/api/v1/pods?limit=%d", podsPerPage)
	paths := []string{first}
	for last := first; ; {
		var body bytes.Buffer
		c := call{client: b.clients[0], method: http.MethodGet, url: b.url + last, to: &body}
		if _, err := c.send(b.ctx); err != nil {
			return nil, err
		}
		found := continues.FindSubmatch(body.Bytes()[:min(body.Len(), 2000)])
		if found == nil || len(found[1]) == 0 {
			break
		}
		last = first + "&continue=" + url.QueryEscape(string(found[1]))
		paths = append(paths, last)
	}
	// There are more pods if other rows have created some.
	if least := (b.options.pods + podsPerPage - 1) / podsPerPage; len(paths) < least {
		return nil, fmt.Errorf("%d pages of %d instead of at least %d", len(paths), podsPerPage, least)
	}
	return b.readingPods(read{path: func(i int) string { return paths[i%len(paths)] }, ops: min(len(paths), 20), many: 1})
}

// peak is the most memory that the server held while several clients, each on its own connection, list everything.
func peak(b *bench) (result, error) {
	if err := b.loadPods(); err != nil {
		return result{}, err
	}
	if _, err := b.settled(); err != nil {
		return result{}, err
	}
	if err := b.server.forgetPeak(); err != nil {
		return result{}, err
	}
	before, err := b.server.memory()
	if err != nil {
		return result{}, err
	}
	errors := make([]error, atOnce)
	var group sync.WaitGroup
	for i := range atOnce {
		group.Go(func() {
			client := b.keys.client()
			defer client.CloseIdleConnections()
			_, errors[i] = call{client: client, method: http.MethodGet, url: b.url + "/api/v1/pods?resourceVersion=0"}.send(b.ctx)
		})
	}
	group.Wait()
	for _, err := range errors {
		if err != nil {
			return result{}, err
		}
	}
	m, err := b.server.memory()
	if err != nil {
		return result{}, err
	}
	after, err := b.settled()
	more := fmt.Sprintf("%.0f MB before, %.0f MB %v after; %.0f MB map files", mb(before.resident), mb(after.resident), settle, mb(m.file))
	return result{value: mb(m.peak), unit: megabytes, more: more}, err
}

func mergePatchPod(b *bench) (*work, error) {
	return b.writing(podWrites, func(i int) call {
		return b.patch(podURL(i%patchedPods), mergePatch, fmt.Appendf(nil, `{"metadata":{"annotations":{"bench/turn":"%d"}}}`, i))
	}), b.loadPods()
}

func patchStatus(b *bench) (*work, error) {
	return b.writing(podWrites, func(i int) call {
		return b.patch(podURL(i%patchedPods)+"/status", strategic, readyStatus(i))
	}), b.loadPods()
}

func apply(b *bench) (*work, error) {
	if err := b.namespace("applied"); err != nil {
		return nil, err
	}
	turn := func(i int) call {
		name := fmt.Sprintf("web-%02d", i%deployments)
		return b.patch("/apis/apps/v1/namespaces/applied/deployments/"+name+"?fieldManager=bench&force=true", applyPatch, deployment(name, i))
	}
	for i := range deployments {
		c := turn(i)
		c.client = b.clients[0]
		if _, err := c.send(b.ctx); err != nil {
			return nil, err
		}
	}
	return b.writing(podWrites, func(i int) call { return turn(deployments + i) }), nil
}

// itemCost lists ConfigMaps of a namespace that has so many.
func itemCost(n int) func(*bench) (*work, error) {
	return func(b *bench) (*work, error) {
		namespace := fmt.Sprintf("items-%d", n)
		if err := b.namespace(namespace); err != nil {
			return nil, err
		}
		say("  %s: creating %d ConfigMaps", b.binary.label, n)
		path := "/api/v1/namespaces/" + namespace + "/configmaps"
		if _, err := b.writes(n, func(i int) call { return b.post(path, configMap(fmt.Sprintf("item-%06d", i))) }); err != nil {
			return nil, err
		}
		work, err := b.reading(read{path: func(int) string { return path + "?resourceVersion=0" }, ops: max(1, itemsPerRound/n), many: 1})
		if err != nil {
			return nil, err
		}
		work.unit, work.figure = microseconds, func(s sample) float64 { return perOp(s) * 1000 / float64(n) }
		return work, nil
	}
}
