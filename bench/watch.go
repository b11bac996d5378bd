package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// eventTime is how long an event may take to reach everybody.
	eventTime = time.Minute
	// openTime is how long all watches may take to begin.
	openTime = 2 * time.Minute
	// eventsPerTurn are how many events a turn sends to watchers.
	eventsPerTurn = 20
)

// watchers are many watches of the same, on few connections.
type watchers struct {
	count       int
	connections []*connection
	// opened counts the watches that began, due the watches that have not got the current event.
	opened, due atomic.Int64
	changed     chan struct{}
	failed      chan error
	// sent is when each event was caused, since `base`.
	base time.Time
	sent []atomic.Int64
	// latency sums the time from there to each delivery, in nanoseconds.
	latency atomic.Int64
}

// watch opens so many watches of a path.
func (b *bench) watch(count int, path string, events int) (*watchers, error) {
	w := &watchers{count: count, changed: make(chan struct{}, 1), failed: make(chan error, 1), base: time.Now(), sent: make([]atomic.Int64, events)}
	for left := count; left > 0; left -= b.options.streams {
		connection, err := connect(b.url, b.keys.config())
		if err != nil {
			w.close()
			return nil, err
		}
		w.connections = append(w.connections, connection)
		for range min(left, b.options.streams) {
			if _, err := connection.open(request{method: http.MethodGet, path: path, accept: jsonType}, w.handler()); err != nil {
				w.close()
				return nil, err
			}
		}
	}
	if err := w.wait(openTime, func() bool { return w.opened.Load() == int64(count) }); err != nil {
		w.close()
		return nil, fmt.Errorf("%d of %d watches began: %w", w.opened.Load(), count, err)
	}
	return w, nil
}

func (w *watchers) close() {
	for _, connection := range w.connections {
		connection.close()
	}
}

// wait until the condition holds, which readers signal when it may.
func (w *watchers) wait(limit time.Duration, done func() bool) error {
	deadline := time.After(limit)
	for !done() {
		select {
		case <-w.changed:
		case err := <-w.failed:
			return err
		case <-deadline:
			return errors.New("it takes too long")
		}
	}
	return nil
}

func (w *watchers) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// event causes the n-th event and waits until every watch has it.
func (w *watchers) event(n int, cause func() error) error {
	w.due.Store(int64(w.count))
	w.sent[n].Store(int64(time.Since(w.base)))
	if err := cause(); err != nil {
		return err
	}
	if err := w.wait(eventTime, func() bool { return w.due.Load() == 0 }); err != nil {
		return fmt.Errorf("%d of %d watchers have not got event %d: %w", w.due.Load(), w.count, n, err)
	}
	return nil
}

// handler counts the events of one watch: each ends with a line.
func (w *watchers) handler() handler {
	events := 0
	return handler{
		began: func(status int) {
			if status != http.StatusOK {
				w.fail(fmt.Errorf("a watch was answered with %d", status))
			}
			if w.opened.Add(1) == int64(w.count) {
				w.signal()
			}
		},
		body: func(part []byte) error {
			for range bytes.Count(part, []byte{'\n'}) {
				if events == len(w.sent) {
					return errors.New("an event came that nobody caused")
				}
				w.latency.Add(int64(time.Since(w.base)) - w.sent[events].Load())
				events++
				if w.due.Add(-1) == 0 {
					w.signal()
				}
			}
			return nil
		},
		ended: func(err error) { w.fail(fmt.Errorf("a watch ended: %v", err)) },
	}
}

// fail has what is waited for end with the first error.
func (w *watchers) fail(err error) {
	select {
	case w.failed <- err:
	default:
	}
}

// watchPath watches a resource from now on: it finds the revision of a list near its start.
func (b *bench) watchPath(resource string) (string, error) {
	var body bytes.Buffer
	c := call{client: b.clients[0], method: http.MethodGet, url: b.url + resource + "?limit=1", to: &body}
	if _, err := c.send(b.ctx); err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(body.String(), `"resourceVersion":"`)
	version, _, found := strings.Cut(rest, `"`)
	if !found {
		return "", errors.New("the list has no resourceVersion")
	}
	return resource + "?watch=true&timeoutSeconds=3600&resourceVersion=" + version, nil
}

// idleWatchers is how much the server grows by 5000 watches that nothing happens for, on a server that has just started.
func idleWatchers(b *bench) (result, error) {
	const count = 5000
	if _, err := b.restart(); err != nil {
		return result{}, err
	}
	path, err := b.watchPath("/api/v1/pods")
	if err != nil {
		return result{}, err
	}
	before, err := b.settled()
	if err != nil {
		return result{}, err
	}
	w, err := b.watch(count, path, 0)
	if err != nil {
		return result{}, err
	}
	defer w.close()
	after, err := b.settled()
	grown := float64(after.resident) - float64(before.resident)
	w.close()
	if _, again := b.restart(); again != nil {
		return result{}, again
	}
	return result{value: grown / count / 1024, unit: kilobytes, more: fmt.Sprintf("%.0f MB before, %.0f MB with them", mb(before.resident), mb(after.resident))}, err
}

// events sends events of one pod, which no other row has made larger, to watchers of all pods, each when all have got the one before.
func (b *bench) events(count int) (*work, error) {
	if err := b.loadPods(); err != nil {
		return nil, err
	}
	path, err := b.watchPath("/api/v1/pods")
	if err != nil {
		return nil, err
	}
	w, err := b.watch(count, path, rounds*eventsPerTurn)
	if err != nil {
		return nil, err
	}
	sent := 0
	turn := func() (s sample, err error) {
		s.ops = eventsPerTurn * count
		before, err := b.server.cpu()
		if err != nil {
			return s, err
		}
		for range eventsPerTurn {
			c := b.patch(podURL(patchedPods), mergePatch, fmt.Appendf(nil, `{"metadata":{"annotations":{"bench/event":"%d of %d"}}}`, sent, count))
			c.client = b.clients[0]
			delivered := w.latency.Load()
			if err := w.event(sent, func() error {
				begin := time.Now()
				_, err := c.send(b.ctx)
				s.wall += time.Since(begin)
				return err
			}); err != nil {
				return s, err
			}
			sent++
			s.latencies = append(s.latencies, time.Duration(w.latency.Load()-delivered)/time.Duration(count))
		}
		after, err := b.server.cpu()
		s.cpu = after - before
		return s, err
	}
	return &work{rounds: rounds, turn: turn, end: w.close}, nil
}

// eventCost is the server's CPU time for an event and watcher, with the write that causes it.
func eventCost(b *bench) (*work, error) {
	work, err := b.events(1000)
	if err == nil {
		work.unit, work.figure = microseconds, func(s sample) float64 { return perOp(s) * 1000 }
		work.more = func(sample) string { return "with the write itself" }
	}
	return work, err
}

// eventLatency is the mean time from sending a write to the arrival of its event, over all watchers.
func eventLatency(count int) func(*bench) (*work, error) {
	return func(b *bench) (*work, error) {
		work, err := b.events(count)
		if err == nil {
			work.unit, work.figure = milliseconds, func(s sample) float64 { return ms(s.mean()) }
			work.more = func(s sample) string {
				return fmt.Sprintf("from sending the write, which itself took %s; CPU %.2f us per event and watcher",
					milliseconds.format(ms(s.wall)/eventsPerTurn), perOp(s)*1000)
			}
		}
		return work, err
	}
}
