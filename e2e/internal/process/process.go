// Package process runs children whose output goes to a file, and that die with us.
package process

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	// startTime is how long a child may take until it is ready; it takes a fraction of that.
	startTime = 30 * time.Second
	// stopTime is how long a child may take to stop when it is asked to.
	stopTime = 10 * time.Second
	// look is the time between two looks at something that is about to happen.
	look = 2 * time.Millisecond
)

// Process is a child with its output in a file.
type Process struct {
	cmd  *exec.Cmd
	log  string
	from int64 // where its output starts in the file
	done chan struct{}
}

// Start runs bin in dir. Its output is appended to the file log.
func Start(log, dir, bin string, args ...string) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(bin, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, file, file
	// The child dies with us, however we die.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, log: log, from: info.Size(), done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Pid is the child's.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Await waits until ready holds; the error has the end of the output.
func (p *Process) Await(ctx context.Context, ready func() bool) error {
	deadline := time.After(startTime)
	for !ready() {
		select {
		case <-p.done:
			return fmt.Errorf("it stopped: %v\n%s", p.cmd.ProcessState, p.Tail(20))
		case <-deadline:
			return fmt.Errorf("not ready after %v\n%s", startTime, p.Tail(20))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(look):
		}
	}
	return nil
}

// Terminate asks it to stop and waits until it has, which must be with success.
func (p *Process) Terminate() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-time.After(stopTime):
		p.Kill()
		return fmt.Errorf("still running %v after SIGTERM\n%s", stopTime, p.Tail(20))
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%v after SIGTERM\n%s", p.cmd.ProcessState, p.Tail(20))
	}
	return nil
}

// Signal sends the child a signal.
func (p *Process) Signal(signal syscall.Signal) error { return p.cmd.Process.Signal(signal) }

// Kill ends the child at once (SIGKILL), and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Output is what the child has written so far.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.log)
	if err != nil || int64(len(text)) < p.from {
		return ""
	}
	return string(text[p.from:])
}

// Tail is the last lines of the output.
func (p *Process) Tail(lines int) string {
	all := strings.Split(strings.TrimRight(p.Output(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// FreePorts finds ports that nothing listens on now.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// probe trusts any server: it only asks whether one is there.
var probe = http.Client{
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	Timeout:   5 * time.Second,
}

// Answers tells whether a GET of the URL is answered with 200.
func Answers(url string) bool {
	response, err := probe.Get(url)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}
