package process

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// tick is the unit of CPU time in /proc (USER_HZ).
const tick = 10 * time.Millisecond

// Usage is what a process has used.
type Usage struct {
	// CPU is the time of all its threads.
	CPU time.Duration
	// Memory is what is resident, in bytes.
	Memory int64
}

// Usage tells what the child has used so far; nothing once it is gone.
func (p *Process) Usage() Usage {
	var usage Usage
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	// The name, in parentheses, may have spaces.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) > 21 {
		var user, system, pages int64
		_, _ = fmt.Sscan(fields[11], &user)
		_, _ = fmt.Sscan(fields[12], &system)
		_, _ = fmt.Sscan(fields[21], &pages)
		usage.CPU = time.Duration(user+system) * tick
		usage.Memory = pages * int64(os.Getpagesize())
	}
	return usage
}
