package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The load of -overload: users who want little beside one who wants everything.
const (
	// overloadObjects are the ConfigMaps that users list and get, 2 KB each.
	overloadObjects = 3000
	// users are well-behaved, each with so many requests a second at the most, one after the other.
	users       = 19
	userRate    = 10
	userWatches = 5
	// abuserLoops are lists of everything, one after the other without a pause; abuserWriters the same with writes.
	abuserLoops   = 300
	abuserWriters = 50
	// leaders renew a lease each time they should; one that takes longer than leaderLimit has lost it.
	leaders      = 3
	leaderPeriod = 2 * time.Second
	leaderLimit  = 5 * time.Second
	// calmTime is how long users are alone, overloadTime how long the abuser is there.
	calmTime     = 15 * time.Second
	overloadTime = 40 * time.Second
	// smallPage is the limit of users' lists.
	smallPage = 50
)

// measured are the requests of one party in one phase.
type measured struct {
	mutex     sync.Mutex
	latencies []time.Duration
	answered  map[int]int
	failed    int
}

func newMeasured() *measured { return &measured{answered: map[int]int{}} }

func (m *measured) add(status int, took time.Duration) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if status == 0 {
		m.failed++
		return
	}
	m.answered[status]++
	if status/100 == 2 {
		m.latencies = append(m.latencies, took)
	}
}

// percentile of the latencies of what succeeded.
func (m *measured) percentile(share float64) time.Duration {
	if len(m.latencies) == 0 {
		return 0
	}
	slices.Sort(m.latencies)
	return m.latencies[min(len(m.latencies)-1, int(float64(len(m.latencies))*share))]
}

func (m *measured) row(who string, during time.Duration) string {
	others := []string{}
	for status, count := range m.answered {
		if status/100 != 2 {
			others = append(others, fmt.Sprintf("%d × %d", count, status))
		}
	}
	slices.Sort(others)
	if m.failed > 0 {
		others = append(others, fmt.Sprintf("%d failed", m.failed))
	}
	return fmt.Sprintf("| %s | %.0f | %.1f | %.1f | %.1f | %s |\n", who, float64(len(m.latencies))/during.Seconds(),
		ms(m.percentile(0.5)), ms(m.percentile(0.99)), ms(m.percentile(1)), strings.Join(others, ", "))
}

// party is a user with a client of its own.
type party struct {
	client *http.Client
	url    string
}

func (b *bench) party(name string, groups ...string) (*party, error) {
	config, err := b.keys.user(name, groups...)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true}
	return &party{client: &http.Client{Transport: transport}, url: b.url}, nil
}

// do sends a request, reads the answer, and returns its status; 0 without one.
func (p *party) do(ctx context.Context, method, path string, body []byte) (int, time.Duration) {
	begin := time.Now()
	request, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, 0
	}
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", mergePatch)
	} else {
		request.Header.Set("Content-Type", jsonType)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return 0, 0
	}
	_, err = discard(response)
	if err != nil {
		return 0, 0
	}
	return response.StatusCode, time.Since(begin)
}

// discard reads an answer to its end.
func discard(response *http.Response) (int64, error) {
	defer response.Body.Close()
	buffer, total := make([]byte, 64<<10), int64(0)
	for {
		n, err := response.Body.Read(buffer)
		total += int64(n)
		if err != nil {
			if err.Error() == "EOF" {
				err = nil
			}
			return total, err
		}
	}
}

const overloadMaps = "/api/v1/namespaces/overload/configmaps"

func overloadMap(i int) string { return fmt.Sprintf("%s/map-%05d", overloadMaps, i) }

// behave sends requests at the rate of a user until the end.
func (p *party) behave(ctx context.Context, seed int64, into *measured) {
	random := rand.New(rand.NewSource(seed))
	ticks := time.NewTicker(time.Second / userRate)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		path, method, body := overloadMap(random.Intn(overloadObjects)), http.MethodGet, []byte(nil)
		switch random.Intn(10) {
		case 0:
			path = fmt.Sprintf("%s?limit=%d", overloadMaps, smallPage)
		case 1, 2:
			method, body = http.MethodPatch, encode(object{"data": object{"n": fmt.Sprint(random.Int63())}})
		}
		status, took := p.do(context.WithoutCancel(ctx), method, path, body)
		into.add(status, took)
	}
}

// abuse lists, or writes, without a pause.
func (p *party) abuse(ctx context.Context, writes bool, into *measured) {
	for i := 0; ctx.Err() == nil; i++ {
		method, path, body := http.MethodGet, "/api/v1/configmaps", []byte(nil)
		if writes {
			method, path = http.MethodPatch, overloadMap(i%overloadObjects)
			body = encode(object{"data": object{"m": fmt.Sprint(i)}})
		}
		status, took := p.do(ctx, method, path, body)
		if ctx.Err() == nil {
			into.add(status, took)
		}
		if status == http.StatusTooManyRequests {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// lead renews a lease as leader election does; late counts renewals that took too long.
func (p *party) lead(ctx context.Context, name string, into *measured, late *atomic.Int64) {
	path := "/apis/coordination.k8s.io/v1/namespaces/overload/leases"
	lease := func() []byte {
		spec := object{"holderIdentity": name, "leaseDurationSeconds": 15, "renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")}
		return encode(object{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": object{"name": name}, "spec": spec})
	}
	p.do(context.WithoutCancel(ctx), http.MethodPost, path, lease())
	for ctx.Err() == nil {
		begin := time.Now()
		renewal := encode(object{"spec": object{"renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")}})
		status, took := p.do(context.WithoutCancel(ctx), http.MethodPatch, path+"/"+name, renewal)
		into.add(status, took)
		if status/100 != 2 || took > leaderLimit {
			late.Add(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(leaderPeriod - time.Since(begin)):
		}
	}
}

// watchQuietly keeps a watch open until the end, again where it ends.
func (p *party) watchQuietly(ctx context.Context) {
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+overloadMaps+"?watch=1&labelSelector=watched=yes", nil)
		if err != nil {
			return
		}
		response, err := p.client.Do(request)
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		_, _ = discard(response)
	}
}

// prepare makes the objects, and lets the users do what they like.
func (b *bench) prepareOverload() error {
	if err := b.namespace("overload"); err != nil {
		return err
	}
	role := object{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": object{"name": "overload"},
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []object{{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "overload"}}}
	filling := strings.Repeat("x", 2000)
	_, err := b.writes(overloadObjects+1, func(i int) call {
		if i == overloadObjects {
			return b.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", encode(role))
		}
		metadata := object{"name": fmt.Sprintf("map-%05d", i)}
		return b.post(overloadMaps, encode(object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": object{"filling": filling}}))
	})
	return err
}

// measureOverload prints what well-behaved users notice of one who wants everything.
func measureOverload(ctx context.Context, o *options) error {
	var failed error
	table := ""
	for _, binary := range o.all() {
		rows, err := o.overloaded(ctx, binary)
		failed = errors.Join(failed, err)
		table += fmt.Sprintf("\n### %s\n\n| who | succeeded/s | p50 ms | p99 ms | longest ms | others |\n| --- | --- | --- | --- | --- | --- |\n%s", binary.label, rows)
	}
	return errors.Join(failed, o.print(table))
}

func (o *options) overloaded(ctx context.Context, binary binary) (string, error) {
	b, err := start(ctx, o, binary)
	if err != nil {
		return "", fmt.Errorf("%s: %w", binary.label, err)
	}
	defer b.stop()
	if err := b.prepareOverload(); err != nil {
		return "", err
	}
	before, err := b.settled()
	if err != nil {
		return "", err
	}
	rows := ""
	for _, phase := range []struct {
		name   string
		during time.Duration
		abused bool
	}{{"alone", calmTime, false}, {"overloaded", overloadTime, true}} {
		say("%s: %s", binary.label, phase.name)
		more, err := b.overloadPhase(ctx, phase.name, phase.during, phase.abused)
		if err != nil {
			return rows, err
		}
		rows += more
		if b.server.ended() {
			return rows, fmt.Errorf("%s stopped:\n%s", binary.label, b.server.tail(20))
		}
	}
	after, err := b.server.memory()
	rows += fmt.Sprintf("\nRSS %.0f MB before, %.0f MB at the peak\n", mb(before.resident), mb(after.peak))
	return rows, err
}

func (b *bench) overloadPhase(ctx context.Context, name string, during time.Duration, abused bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	well, abuse, leases := newMeasured(), newMeasured(), newMeasured()
	var late atomic.Int64
	var all sync.WaitGroup
	for i := range users {
		p, err := b.party(fmt.Sprintf("user-%02d", i), "overload")
		if err != nil {
			return "", err
		}
		for range userWatches {
			all.Go(func() { p.watchQuietly(ctx) })
		}
		all.Go(func() { p.behave(ctx, int64(i), well) })
	}
	for i := range leaders {
		p, err := b.party("system:kube-scheduler", "overload")
		if err != nil {
			return "", err
		}
		all.Go(func() { p.lead(ctx, fmt.Sprintf("leader-%d", i), leases, &late) })
	}
	if abused {
		for i := range abuserLoops + abuserWriters {
			p, err := b.party("abuser", "overload")
			if err != nil {
				return "", err
			}
			all.Go(func() { p.abuse(ctx, i >= abuserLoops, abuse) })
		}
	}
	all.Wait()
	rows := well.row(fmt.Sprintf("%d users, %s", users, name), during)
	rows += leases.row(fmt.Sprintf("%d leaders, %s: %d late", leaders, name, late.Load()), during)
	if abused {
		rows += abuse.row("the abuser", during)
	}
	return rows, nil
}
