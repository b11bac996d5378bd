package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// samplesPerSecond is how often perf looks at each thread: no multiple of what programs do regularly.
	samplesPerSecond = "299"
	// callers is how stacks are taken: by the tables for unwinding, from so many bytes. Release builds have no frame pointers.
	callers = "dwarf,32768"
	// topFunctions is how many lines of a profile are printed.
	topFunctions = 40
	// lineShown is how much of a line is: symbols of generic functions are long.
	lineShown = 160
	// perfStarts is how long perf takes until it samples.
	perfStarts = 500 * time.Millisecond
)

// profile runs the work with perf on the process, if there is perf, and prints the functions that took most time.
func profile(p *process, folder string, work func() error) error {
	perf, err := exec.LookPath("perf")
	if err != nil {
		say("  no profile: perf is not installed (apt-get install linux-perf)")
		return work()
	}
	data := filepath.Join(folder, "perf.data")
	defer os.Remove(data)
	recorder, err := spawn(filepath.Join(folder, "perf.log"), folder, perf,
		"record", "-q", "-e", "cpu-clock", "-F", samplesPerSecond, "--call-graph", callers, "-p", fmt.Sprint(p.pid()), "-o", data)
	if err != nil {
		return err
	}
	time.Sleep(perfStarts)
	if recorder.ended() {
		say("  no profile: %s", recorder.tail(3))
		return work()
	}
	failed := work()
	_ = recorder.cmd.Process.Signal(syscall.SIGINT)
	<-recorder.done
	top(perf, data, "in the function itself", "--no-children")
	top(perf, data, "with what it calls", "--children")
	return failed
}

// top prints the functions that took most time.
func top(perf, data, what, children string) {
	say("    %s:", what)
	out, err := exec.Command(perf, "report", "-i", data, "--stdio", children, "--no-inline", "-g", "none", "--sort", "dso,symbol").Output()
	if err != nil {
		say("  no profile: %v", err)
	}
	printed := 0
	for _, line := range strings.Split(string(out), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") || printed == topFunctions {
			continue
		}
		printed++
		say("    %s", line[:min(len(line), lineShown)])
	}
}
