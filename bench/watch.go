package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// streamWindow and connectionWindow are what the server may send ahead, as Go's HTTP/2 client says.
	streamWindow     = 4 << 20
	connectionWindow = 1 << 30
	// eventTime is how long an event may take to reach everybody.
	eventTime = time.Minute
	// openTime is how long all watches may take to begin.
	openTime = 2 * time.Minute
	// eventsPerTurn are how many events a turn sends to watchers.
	eventsPerTurn = 20
)

// watchers are many watches of the same, on few connections. One goroutine reads a connection and takes frames apart, without
// one for each watch: thousands of those would take longer to wake than what they measure.
type watchers struct {
	count       int
	connections []*watchConnection
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

type watchConnection struct {
	all     *watchers
	tls     *tls.Conn
	framer  *http2.Framer
	streams map[uint32]*watched
	read    int
}

// watched is what has come of one watch.
type watched struct{ events, unacknowledged int }

// watch opens so many watches of a path.
func (b *bench) watch(count int, path string, events int) (*watchers, error) {
	w := &watchers{count: count, changed: make(chan struct{}, 1), failed: make(chan error, 1), base: time.Now(), sent: make([]atomic.Int64, events)}
	for left := count; left > 0; left -= b.options.streams {
		connection, err := b.watchConnection(w, path, min(left, b.options.streams))
		if err != nil {
			w.close()
			return nil, err
		}
		w.connections = append(w.connections, connection)
	}
	if err := w.wait(openTime, func() bool { return w.opened.Load() == int64(count) }); err != nil {
		w.close()
		return nil, fmt.Errorf("%d of %d watches began: %w", w.opened.Load(), count, err)
	}
	return w, nil
}

func (w *watchers) close() {
	for _, connection := range w.connections {
		connection.tls.Close()
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

func (b *bench) watchConnection(w *watchers, path string, streams int) (*watchConnection, error) {
	host := strings.TrimPrefix(b.url, "https://")
	socket, err := tls.Dial("tcp", host, b.keys.config())
	if err != nil {
		return nil, err
	}
	buffered := bufio.NewReaderSize(socket, 64<<10)
	out := bufio.NewWriter(socket)
	c := &watchConnection{all: w, tls: socket, framer: http2.NewFramer(out, buffered), streams: map[uint32]*watched{}}
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.framer.SetReuseFrames()
	_, _ = out.WriteString(http2.ClientPreface)
	_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow}, http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	_ = c.framer.WriteWindowUpdate(0, connectionWindow)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := range streams {
		id := uint32(2*i + 1)
		c.streams[id] = &watched{}
		block.Reset()
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", path},
			{"accept", jsonType}, {"user-agent", "keelson-bench"}} {
			_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	}
	if err := out.Flush(); err != nil {
		socket.Close()
		return nil, err
	}
	go func() {
		if err := c.run(out); err != nil {
			select {
			case w.failed <- err:
			default:
			}
		}
	}()
	return c, nil
}

// run reads frames until the connection ends.
func (c *watchConnection) run(out *bufio.Writer) error {
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return err
		}
		stream := c.streams[frame.Header().StreamID]
		switch frame := frame.(type) {
		case *http2.DataFrame:
			if stream != nil {
				err = c.data(stream, frame)
			}
		case *http2.MetaHeadersFrame:
			if status := frame.PseudoValue("status"); status != "200" {
				return fmt.Errorf("a watch was answered with %s", status)
			}
			if c.all.opened.Add(1) == int64(c.all.count) {
				c.all.signal()
			}
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = c.framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				err = c.framer.WritePing(true, frame.Data)
			}
		case *http2.RSTStreamFrame:
			return fmt.Errorf("a watch was reset: %v", frame.ErrCode)
		case *http2.GoAwayFrame:
			return fmt.Errorf("the server says good-bye: %v", frame.ErrCode)
		}
		if err == nil {
			err = out.Flush()
		}
		if err != nil {
			return err
		}
	}
}

// data counts the events that end in a frame: each ends with a line.
func (c *watchConnection) data(stream *watched, frame *http2.DataFrame) error {
	for range bytes.Count(frame.Data(), []byte{'\n'}) {
		if stream.events == len(c.all.sent) {
			return errors.New("an event came that nobody caused")
		}
		c.all.latency.Add(int64(time.Since(c.all.base)) - c.all.sent[stream.events].Load())
		stream.events++
		if c.all.due.Add(-1) == 0 {
			c.all.signal()
		}
	}
	if frame.StreamEnded() {
		return errors.New("a watch ended")
	}
	size := int(frame.Length)
	stream.unacknowledged += size
	c.read += size
	if stream.unacknowledged > streamWindow/2 {
		if err := c.framer.WriteWindowUpdate(frame.StreamID, uint32(stream.unacknowledged)); err != nil {
			return err
		}
		stream.unacknowledged = 0
	}
	if c.read > connectionWindow/2 {
		if err := c.framer.WriteWindowUpdate(0, uint32(c.read)); err != nil {
			return err
		}
		c.read = 0
	}
	return nil
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
