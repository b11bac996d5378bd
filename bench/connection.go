package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// connection is one HTTP/2 connection that requests and watches share, as those of one component of
// a cluster do. One goroutine reads it and hands out what arrives; with a goroutine for each of
// thousands of watches, waking them would take the client longer than the server takes to serve them.
type connection struct {
	socket *tls.Conn
	host   string
	framer *http2.Framer
	out    *bufio.Writer
	unread int // bytes since the connection's last window update

	mutex   sync.Mutex // for writing, and for all below
	opens   *sync.Cond // window or failed has changed
	encoder *hpack.Encoder
	block   bytes.Buffer
	next    uint32
	window  int64 // bytes of bodies that the server is ready to take
	streams map[uint32]*stream
	failed  error
}

// stream is one request and its answer.
type stream struct {
	handler
	id     uint32
	unread int
}

// handler is told what comes of a request, by the goroutine that reads the connection. It must not wait, nor use the connection.
type handler struct {
	// began is called with the status.
	began func(status int)
	// body is called with the parts of the body, which it must not keep.
	body func(part []byte) error
	// ended is called once, with what went wrong, if anything, before the end of the answer.
	ended func(err error)
}

// request is what is sent on a connection.
type request struct {
	method, path      string
	accept, mediaType string
	// gzip says that the answer may be compressed, as client-go always does.
	gzip bool
	body []byte
}

const (
	// streamWindow and connectionWindow are what the server may send ahead, as Go's HTTP/2 client says.
	streamWindow     = 4 << 20
	connectionWindow = 1 << 30
	// ownWindow is what a server takes before it says how much it takes (RFC 9113, 6.9.2).
	ownWindow = 65535
	// largestFrame is the size of a frame that every server takes.
	largestFrame = 16384
)

// connect opens a connection and starts to read it.
func connect(url string, config *tls.Config) (*connection, error) {
	host := strings.TrimPrefix(url, "https://")
	socket, err := tls.Dial("tcp", host, config)
	if err != nil {
		return nil, err
	}
	c := &connection{socket: socket, host: host, out: bufio.NewWriter(socket), next: 1, window: ownWindow, streams: map[uint32]*stream{}}
	c.opens = sync.NewCond(&c.mutex)
	c.encoder = hpack.NewEncoder(&c.block)
	c.framer = http2.NewFramer(c.out, bufio.NewReaderSize(socket, 64<<10))
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.framer.SetReuseFrames()
	_, _ = c.out.WriteString(http2.ClientPreface)
	_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow}, http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	_ = c.framer.WriteWindowUpdate(0, connectionWindow)
	if err := c.out.Flush(); err != nil {
		socket.Close()
		return nil, err
	}
	go func() { c.end(c.read()) }()
	return c, nil
}

func (c *connection) close() { c.socket.Close() }

// end fails all requests that have no answer yet.
func (c *connection) end(err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.failed = err
	c.opens.Broadcast()
	for _, s := range c.streams {
		s.ended(err)
	}
	clear(c.streams)
	c.socket.Close()
}

// open sends a request. The handler gets the answer.
func (c *connection) open(r request, h handler) (*stream, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for c.window < int64(len(r.body)) && c.failed == nil {
		c.opens.Wait()
	}
	if c.failed != nil {
		return nil, c.failed
	}
	s := &stream{handler: h, id: c.next}
	c.next += 2
	c.streams[s.id] = s
	c.window -= int64(len(r.body))
	c.block.Reset()
	field := func(name, value string) {
		if value != "" {
			_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
		}
	}
	field(":method", r.method)
	field(":scheme", "https")
	field(":authority", c.host)
	field(":path", r.path)
	field("accept", r.accept)
	field("content-type", r.mediaType)
	field("user-agent", "keelson-bench")
	if r.gzip {
		field("accept-encoding", "gzip")
	}
	if len(r.body) > 0 {
		field("content-length", strconv.Itoa(len(r.body)))
	}
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: c.block.Bytes(), EndStream: len(r.body) == 0, EndHeaders: true})
	for body := r.body; len(body) > 0; {
		part := body[:min(len(body), largestFrame)]
		body = body[len(part):]
		_ = c.framer.WriteData(s.id, len(body) == 0, part)
	}
	if err := c.out.Flush(); err != nil {
		delete(c.streams, s.id)
		return nil, err
	}
	return s, nil
}

// cancel ends a request whose answer has not ended.
func (c *connection) cancel(s *stream) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, open := c.streams[s.id]; open {
		delete(c.streams, s.id)
		_ = c.framer.WriteRSTStream(s.id, http2.ErrCodeCancel)
		_ = c.out.Flush()
	}
}

// refused is an answer other than success.
type refused struct {
	status int
	text   string
}

func (r *refused) Error() string { return r.text }

// call sends a request and waits for the whole answer, which it returns if it is to be kept.
func (c *connection) call(ctx context.Context, r request, keep bool) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var body []byte
	status, done := 0, make(chan error, 1)
	s, err := c.open(r, handler{
		began: func(answered int) { status = answered },
		body: func(part []byte) error {
			if keep || status/100 != 2 && len(body) < bodyShown {
				body = append(body, part...)
			}
			return nil
		},
		ended: func(err error) { done <- err },
	})
	if err != nil {
		return nil, err
	}
	select {
	case err = <-done:
	case <-ctx.Done():
		c.cancel(s)
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, ctx.Err())
	}
	if err == nil && status/100 != 2 {
		err = &refused{status, fmt.Sprintf("%s %s: %d: %s", r.method, r.path, status, body)}
	}
	return body, err
}

// read reads frames until the connection ends.
func (c *connection) read() error {
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return err
		}
		c.mutex.Lock()
		s := c.streams[frame.Header().StreamID]
		c.mutex.Unlock()
		ended := false
		switch frame := frame.(type) {
		case *http2.DataFrame:
			err, ended = c.data(s, frame), frame.StreamEnded()
		case *http2.MetaHeadersFrame:
			// Trailers have none.
			if status := frame.PseudoValue("status"); s != nil && status != "" {
				var number int
				if number, err = strconv.Atoi(status); err == nil {
					s.began(number)
				}
			}
			ended = frame.StreamEnded()
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = c.write(c.framer.WriteSettingsAck)
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				err = c.write(func() error { return c.framer.WritePing(true, frame.Data) })
			}
		case *http2.WindowUpdateFrame:
			if frame.StreamID == 0 {
				c.mutex.Lock()
				c.window += int64(frame.Increment)
				c.opens.Broadcast()
				c.mutex.Unlock()
			}
		case *http2.RSTStreamFrame:
			c.finish(s, fmt.Errorf("a request was reset: %v", frame.ErrCode))
		case *http2.GoAwayFrame:
			err = fmt.Errorf("the server closes the connection: %v", frame.ErrCode)
		}
		if err != nil {
			return err
		}
		if ended {
			c.finish(s, nil)
		}
	}
}

// write writes frames that the connection itself needs.
func (c *connection) write(frames func() error) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return errors.Join(frames(), c.out.Flush())
}

// finish says that an answer has ended; nothing if its request was cancelled.
func (c *connection) finish(s *stream, err error) {
	if s == nil {
		return
	}
	c.mutex.Lock()
	_, open := c.streams[s.id]
	delete(c.streams, s.id)
	c.mutex.Unlock()
	if open {
		s.ended(err)
	}
}

// data hands out a part of a body and widens windows before they are used up.
func (c *connection) data(s *stream, frame *http2.DataFrame) error {
	size := int(frame.Length)
	if c.unread += size; c.unread > connectionWindow/2 {
		by := uint32(c.unread)
		if err := c.write(func() error { return c.framer.WriteWindowUpdate(0, by) }); err != nil {
			return err
		}
		c.unread = 0
	}
	if s == nil {
		return nil
	}
	if s.unread += size; s.unread > streamWindow/2 && !frame.StreamEnded() {
		by := uint32(s.unread)
		if err := c.write(func() error { return c.framer.WriteWindowUpdate(s.id, by) }); err != nil {
			return err
		}
		s.unread = 0
	}
	return s.body(frame.Data())
}
