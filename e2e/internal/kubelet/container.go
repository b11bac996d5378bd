package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// pipeTime is how long the output of a command is read that has ended, when others still hold it.
const pipeTime = 500 * time.Millisecond

// container is one of a pod. Its main process, and what is run in it later, are processes of this machine in its folder.
type container struct {
	id     string
	spec   corev1.Container
	folder string

	mu       sync.Mutex
	runs     int // how often the main process has been started
	ended    chan struct{}
	code     int32
	input    io.WriteCloser
	terminal *os.File
	watchers map[*watcher]struct{}
	children map[*exec.Cmd]struct{}
}

// watcher is somebody who is attached to the main process.
type watcher struct{ out, errs io.Writer }

// logFile is where the output of a run goes, in the format of container runtimes.
func (c *container) logFile(run int) string {
	return filepath.Join(filepath.Dir(c.folder), fmt.Sprintf("%d.log", run))
}

// command is one that is to run in the container.
func (c *container) command(words []string) *exec.Cmd {
	command := exec.Command(words[0], words[1:]...)
	command.Dir = c.folder
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.folder, "TERM=xterm"}
	command.WaitDelay = pipeTime
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return command
}

// start begins the next run of the main process; without a command there is none, and the container runs until it is stopped.
// over is called when the run has ended.
func (c *container) start(over func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	c.ended, c.code = make(chan struct{}), 0
	log, err := os.OpenFile(c.logFile(c.runs), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	words := append(append([]string{}, c.spec.Command...), c.spec.Args...)
	if err != nil || len(words) == 0 {
		return errors.Join(err, log.Close())
	}
	command := c.command(words)
	stdout := &output{container: c, stream: "stdout", log: log}
	if c.spec.TTY {
		if c.terminal, err = startInTerminal(command); err == nil {
			c.input = c.terminal
		}
	} else {
		command.Stdout, command.Stderr = stdout, &output{container: c, stream: "stderr", log: log}
		if c.spec.Stdin {
			c.input, err = command.StdinPipe()
		}
		err = errors.Join(err, command.Start())
	}
	if err != nil {
		return errors.Join(err, log.Close())
	}
	c.children[command] = struct{}{}
	ended, terminal := c.ended, c.terminal
	go func() {
		if terminal != nil {
			_, _ = io.Copy(stdout, terminal)
			_ = terminal.Close()
		}
		code := codeOf(c.wait(command))
		_ = log.Close()
		c.mu.Lock()
		c.code, c.input, c.terminal = code, nil, nil
		c.mu.Unlock()
		close(ended)
		over()
	}()
	return nil
}

// state tells how often the main process was started, and its code if it has ended.
func (c *container) state() (runs int, ended bool, code int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.ended:
		return c.runs, true, c.code
	default:
		return c.runs, false, 0
	}
}

// output takes what the main process says, for its log and for those who are attached.
type output struct {
	container *container
	stream    string
	log       *os.File
}

func (o *output) Write(text []byte) (int, error) {
	o.container.mu.Lock()
	defer o.container.mu.Unlock()
	for one := range o.container.watchers {
		to := one.out
		if o.stream == "stderr" {
			to = one.errs
		}
		if to != nil {
			if _, err := to.Write(text); err != nil {
				delete(o.container.watchers, one)
			}
		}
	}
	now := time.Now().Format(time.RFC3339Nano)
	for _, line := range bytes.SplitAfter(text, []byte("\n")) {
		tag, end := "F", ""
		if !bytes.HasSuffix(line, []byte("\n")) {
			tag, end = "P", "\n"
		}
		if len(line) > 0 {
			_, _ = fmt.Fprintf(o.log, "%s %s %s %s%s", now, o.stream, tag, line, end)
		}
	}
	return len(text), nil
}

// attach joins the streams to the main process until it ends.
func (c *container) attach(ctx context.Context, in io.Reader, out, errs io.Writer, resize <-chan remotecommand.TerminalSize) error {
	c.mu.Lock()
	one := &watcher{out, errs}
	c.watchers[one] = struct{}{}
	ended, input, terminal := c.ended, c.input, c.terminal
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.watchers, one)
		c.mu.Unlock()
	}()
	follow(terminal, resize)
	if in != nil && input != nil {
		go func() {
			_, _ = io.Copy(input, in)
			if c.spec.StdinOnce && terminal == nil {
				_ = input.Close()
			}
		}()
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return nil
}

// exec runs a command in the container to its end.
func (c *container) exec(words []string, in io.Reader, out, errs io.Writer, tty bool, resize <-chan remotecommand.TerminalSize) error {
	command := c.command(words)
	var input io.WriteCloser
	var terminal *os.File
	var err error
	if tty {
		if terminal, err = startInTerminal(command); err != nil {
			return err
		}
		defer terminal.Close()
		input = terminal
		follow(terminal, resize)
	} else {
		command.Stdout, command.Stderr = out, errs
		if in != nil { // not as Stdin: the end of the command would wait for its end
			if input, err = command.StdinPipe(); err != nil {
				return err
			}
		}
		if err := command.Start(); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.children[command] = struct{}{}
	c.mu.Unlock()
	if in != nil {
		go func() {
			_, _ = io.Copy(input, in)
			if terminal == nil {
				_ = input.Close()
			}
		}()
	}
	if terminal != nil && out != nil {
		_, _ = io.Copy(out, terminal) // ends with the last process in the terminal
	}
	if code := codeOf(c.wait(command)); code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: int(code)}
	}
	return nil
}

func (c *container) wait(command *exec.Cmd) error {
	err := command.Wait()
	c.mu.Lock()
	delete(c.children, command)
	c.mu.Unlock()
	return err
}

// kill ends every process of the container.
func (c *container) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for command := range c.children {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	}
}

// codeOf is the code that the end of a command is told by, as a shell tells it.
func codeOf(err error) int32 {
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return int32(exit.ExitCode())
	case errors.As(err, &exit):
		return 128 + int32(syscall.SIGKILL)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return 1
	}
	return 0
}

// startInTerminal starts a command in a terminal of its own.
func startInTerminal(command *exec.Cmd) (*os.File, error) {
	command.SysProcAttr = nil // the terminal's session has a group of its own
	return pty.Start(command)
}

// follow gives the terminal every size that comes.
func follow(terminal *os.File, sizes <-chan remotecommand.TerminalSize) {
	if terminal == nil || sizes == nil {
		return
	}
	go func() {
		for size := range sizes {
			_ = pty.Setsize(terminal, &pty.Winsize{Rows: size.Height, Cols: size.Width})
		}
	}()
}
