package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// connections are how many the requests of a row share, and workers how many of them are under way at a time.
	connections = 4
	workers     = 8
	// callTime is how long one request may take.
	callTime = 5 * time.Minute
	// settle is how long a server has to finish what it does behind its answers before its memory is read.
	settle = 3 * time.Second
	// roundTime is how long a round of reads may take, roughly: a slow server is asked less often.
	roundTime = 3 * time.Second
	// readBuffer is what a body is read into, and forgotten.
	readBuffer = 256 << 10
	// bodyShown is how much of an unwelcome answer an error shows.
	bodyShown = 500
)

// sample is what some operations cost.
type sample struct {
	ops       int
	cpu       time.Duration
	wall      time.Duration
	bytes     int64
	latencies []time.Duration
}

func (s sample) mean() time.Duration {
	var sum time.Duration
	for _, latency := range s.latencies {
		sum += latency
	}
	return sum / time.Duration(max(1, len(s.latencies)))
}

// quantile of the latencies, 0.99 for the slowest in a hundred.
func (s sample) quantile(part float64) time.Duration {
	if len(s.latencies) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s.latencies))
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}

// latency is the mean and the 99th percentile, as the table says it.
func (s sample) latency() string {
	if len(s.latencies) == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%s)", milliseconds.format(ms(s.mean())), milliseconds.format(ms(s.quantile(0.99))))
}

// perOp is the CPU time of an operation in milliseconds, what most rows show.
func perOp(s sample) float64 {
	return float64(s.cpu) / float64(time.Millisecond) / float64(max(1, s.ops))
}

// median is the sample with the middle figure: others may have been disturbed. It has everybody's latencies.
func median(samples []sample, figure func(sample) float64) sample {
	sorted := slices.SortedFunc(slices.Values(samples), func(a, b sample) int { return cmp.Compare(figure(a), figure(b)) })
	middle := sorted[len(sorted)/2]
	middle.latencies = nil
	for _, s := range samples {
		middle.latencies = append(middle.latencies, s.latencies...)
	}
	return middle
}

// call is a request. Bodies of answers are read and not looked at.
type call struct {
	client            *http.Client
	method, url       string
	accept, mediaType string
	body              []byte
	// to gets the answer's body where it is wanted.
	to io.Writer
}

var buffers = sync.Pool{New: func() any { b := make([]byte, readBuffer); return &b }}

// writerOnly hides io.ReaderFrom, so that copying uses the buffer it is given.
type writerOnly struct{ io.Writer }

// send makes the call and tells how many bytes the answer has. Anything but success is an error.
func (c call) send(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, c.method, c.url, bytes.NewReader(c.body))
	if err != nil {
		return 0, err
	}
	if c.accept != "" {
		request.Header.Set("Accept", c.accept)
	}
	if c.mediaType != "" {
		request.Header.Set("Content-Type", c.mediaType)
	}
	request.Header.Set("User-Agent", "keelson-bench")
	response, err := c.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.ProtoMajor != 2 {
		return 0, fmt.Errorf("%s answers with %s", c.url, response.Proto)
	}
	if response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, bodyShown))
		return 0, fmt.Errorf("%s %s: %s: %s", c.method, c.url, response.Status, text)
	}
	to := c.to
	if to == nil {
		to = io.Discard
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	return io.CopyBuffer(writerOnly{to}, response.Body, *buffer)
}

// repeat makes n calls, `many` at a time, and measures them and what they cost the process. The first error ends it.
func repeat(ctx context.Context, p *process, n, many int, make func(worker, i int) call) (sample, error) {
	s := sample{ops: n}
	before, err := p.cpu()
	if err != nil {
		return s, err
	}
	var (
		next   atomic.Int64
		group  sync.WaitGroup
		mutex  sync.Mutex
		failed error
		begin  = time.Now()
	)
	for worker := range min(many, n) {
		group.Go(func() {
			var latencies []time.Duration
			var total int64
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					break
				}
				sent := time.Now()
				size, err := make(worker, i).send(ctx)
				if err != nil {
					mutex.Lock()
					failed = err
					mutex.Unlock()
					next.Store(int64(n))
					break
				}
				total += size
				latencies = append(latencies, time.Since(sent))
			}
			mutex.Lock()
			s.latencies, s.bytes = append(s.latencies, latencies...), s.bytes+total
			mutex.Unlock()
		})
	}
	group.Wait()
	s.wall = time.Since(begin)
	after, err := p.cpu()
	if err != nil {
		return s, err
	}
	s.cpu = after - before
	return s, failed
}

// writes measures n calls in one go.
func (b *bench) writes(n int, make func(i int) call) (sample, error) {
	return repeat(b.ctx, b.server, n, workers, func(worker, i int) call {
		c := make(i)
		c.client = b.clients[worker%connections]
		return c
	})
}

// writing makes n calls in all, in some turns.
func (b *bench) writing(n int, make func(i int) call) *work {
	done := 0
	turn := func() (sample, error) {
		from := done
		done += n / rounds
		return b.writes(n/rounds, func(i int) call { return make(from + i) })
	}
	return &work{rounds: rounds, turn: turn, unit: milliseconds, figure: perOp}
}

// read is something to be read from the server again and again.
type read struct {
	// path has the i-th request's path and query.
	path   func(i int) string
	accept string
	// ops are made in each turn at most, `many` at a time.
	ops, many int
}

// reading reads from the server, and in turn with it nginx serves the first answer's bytes.
func (b *bench) reading(r read) (*work, error) {
	var body bytes.Buffer
	first := call{client: b.clients[0], method: http.MethodGet, url: b.url + r.path(0), accept: r.accept, to: &body}
	// Twice: the first time something is asked for may not be like others.
	var once time.Duration
	for range 2 {
		body.Reset()
		begin := time.Now()
		if _, err := first.send(b.ctx); err != nil {
			return nil, err
		}
		once = time.Since(begin)
	}
	ops := max(1, min(r.ops, int(roundTime/once)))
	file, err := b.publish(body.Bytes())
	if err != nil {
		return nil, err
	}
	ours := func(worker, i int) call {
		return call{client: b.clients[worker%connections], method: http.MethodGet, url: b.url + r.path(i), accept: r.accept}
	}
	theirs := func(worker, _ int) call {
		return call{client: b.nginxes[worker%connections], method: http.MethodGet, url: b.nginxURL + file}
	}
	if _, err := repeat(b.ctx, b.nginx, min(ops, workers), r.many, theirs); err != nil {
		return nil, err
	}
	return &work{
		rounds: rounds,
		turn:   func() (sample, error) { return repeat(b.ctx, b.server, ops, r.many, ours) },
		nginx:  func() (sample, error) { return repeat(b.ctx, b.nginx, ops, r.many, theirs) },
		unit:   milliseconds,
		figure: perOp,
		more:   func(s sample) string { return fmt.Sprintf("%.4g KB each", float64(s.bytes)/float64(s.ops)/1000) },
	}, nil
}

// publish gives nginx bytes to serve, and tells the path.
func (b *bench) publish(body []byte) (string, error) {
	b.published++
	path := fmt.Sprintf("/body-%d", b.published)
	return path, os.WriteFile(b.path("www"+path), body, 0o644)
}
