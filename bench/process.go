package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const (
	// startTime is how long a child may take until it is ready.
	startTime = 60 * time.Second
	// stopTime is how long it may take to stop when it is asked to.
	stopTime = 30 * time.Second
	// look is the time between two looks at something that is about to happen.
	look = time.Millisecond
)

// process is a child with its output in a file.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

func spawn(log, dir, bin string, args ...string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.Command(bin, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// await waits until ready holds.
func (p *process) await(ctx context.Context, ready func() bool) error {
	deadline := time.Now().Add(startTime)
	for !ready() {
		switch {
		case p.ended():
			return fmt.Errorf("%s stopped: %v\n%s", p.cmd.Path, p.cmd.ProcessState, p.tail(20))
		case time.Now().After(deadline):
			return fmt.Errorf("%s is not ready after %v\n%s", p.cmd.Path, startTime, p.tail(20))
		case ctx.Err() != nil:
			return ctx.Err()
		}
		time.Sleep(look)
	}
	return nil
}

// stop asks it to stop, and makes it.
func (p *process) stop() {
	if p == nil {
		return
	}
	p.resume()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// pause has it stand still until it is to resume.
func (p *process) pause() { p.signal(syscall.SIGSTOP) }

func (p *process) resume() { p.signal(syscall.SIGCONT) }

// signal is ignored where there is no process, or none any more: whoever waits for it finds out.
func (p *process) signal(which syscall.Signal) {
	if p != nil {
		_ = p.cmd.Process.Signal(which)
	}
}

func (p *process) tail(lines int) string {
	text, _ := os.ReadFile(p.log)
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// cpu is the CPU time that the process has used in all its threads, those that ended included, in user and system mode.
// It is what /proc/PID/stat counts in ticks of 10 ms, in nanoseconds.
func (p *process) cpu() (time.Duration, error) {
	const schedulerClock = 2 // CPUCLOCK_SCHED, include/linux/posix-timers.h
	clock := ^p.pid()<<3 | schedulerClock
	var at syscall.Timespec
	if _, _, code := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(uint32(int32(clock))), uintptr(unsafe.Pointer(&at)), 0); code != 0 {
		return 0, fmt.Errorf("the CPU clock of process %d: %w", p.pid(), code)
	}
	return time.Duration(at.Nano()), nil
}

// memory is what a process holds, in bytes.
type memory struct {
	resident, peak uint64
	// file is the part of resident that maps files: the program itself, mostly, and a database that is mapped.
	file uint64
}

func (p *process) memory() (m memory, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	if err != nil {
		return m, err
	}
	for name, into := range map[string]*uint64{"VmRSS:": &m.resident, "VmHWM:": &m.peak, "RssFile:": &m.file} {
		_, rest, _ := strings.Cut(string(status), name)
		if _, err := fmt.Sscan(rest, into); err != nil {
			return m, fmt.Errorf("no %s in /proc/%d/status", name, p.pid())
		}
		*into *= 1024
	}
	return m, nil
}

// forgetPeak makes the peak start again from what is resident now.
func (p *process) forgetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.pid()), []byte("5"), 0)
}

// freePorts finds ports that nothing listens on now.
func freePorts(n int) (ports []int, err error) {
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
