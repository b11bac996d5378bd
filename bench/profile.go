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
	samplesPerSecond = "997"
	// topFunctions is how many lines of a profile are printed.
	topFunctions = 30
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
		"record", "-q", "-e", "cpu-clock", "-F", samplesPerSecond, "-g", "-p", fmt.Sprint(p.pid()), "-o", data)
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
	out, err := exec.Command(perf, "report", "-i", data, "--stdio", "--no-children", "-g", "none", "--sort", "dso,symbol").Output()
	if err != nil {
		say("  no profile: %v", err)
	}
	printed := 0
	for _, line := range strings.Split(string(out), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") || printed == topFunctions {
			continue
		}
		printed++
		say("    %s", line)
	}
	return failed
}
