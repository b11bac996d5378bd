package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStepsOfALaneFollowItsRate(t *testing.T) {
	for _, c := range []struct {
		lane   lane
		times  float64
		during time.Duration
		want   int
	}{
		{lane{rate: 100}, 1, 3 * time.Second, 300},
		{lane{rate: 100}, 0.5, time.Second, 50},
		{lane{rate: 0.1}, 1, time.Second, 1},
		{lane{fixed: 4}, 10, time.Minute, 4},
	} {
		if got := c.lane.steps(c.times, c.during); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestPacedStepsKeepTheirOrderAndNumber(t *testing.T) {
	var recorded recorder
	seen := make(chan int, 10)
	l := lane{name: "odd", step: func(c *cluster, i int) error {
		seen <- i
		if i%2 == 1 {
			return errors.New("odd")
		}
		return nil
	}}
	c := &cluster{}
	l.pace(c, 4, 7, 10*time.Millisecond)
	close(seen)
	var all []int
	for i := range seen {
		all = append(all, i)
	}
	slices.Sort(all)
	if !slices.Equal(all, []int{7, 8, 9, 10}) {
		t.Error(all)
	}
	if _, failed, first := c.recorder.reset(); failed != 2 || first == nil {
		t.Error(failed, first)
	}
	if _, failed, _ := recorded.reset(); failed != 0 {
		t.Error(failed)
	}
}

func ofRounds(cpu ...time.Duration) (result clusterResult) {
	for _, cpu := range cpu {
		result.rounds = append(result.rounds, round{cpu: cpu * time.Millisecond, requests: 10, events: 100,
			took: map[string][]time.Duration{"get": {time.Millisecond, 3 * time.Millisecond}}})
	}
	return result
}

func TestTheTableComparesRoundByRound(t *testing.T) {
	row := clusterRow{load: "load", results: []clusterResult{ofRounds(10, 100, 20), ofRounds(5, 10, 10), {err: errors.New("a|b\nc")}}}
	var out strings.Builder
	row.render(&out)
	want := `| all | load | CPU per 1000 requests | 2.00 s | 1.00 s | 0.500 | failed |  |
| all | load | CPU per event | 200 us | 100 us | 0.500 | failed |  |
| all | load | peak RSS | 0 MB | 0 MB |  | failed |  |
| all | load | get, p50 (p99) | 3.00 ms | 3.00 ms | 1.000 | failed |  |
| all | load | server 3 | a/b |
`
	if out.String() != want {
		t.Error(out.String())
	}
	row = clusterRow{workers: 2, load: "load", results: []clusterResult{{rounds: []round{{cpu: time.Second, lists: 10, late: 2 * time.Second, ended: 3, failed: 1}}}}}
	out.Reset()
	row.render(&out)
	if want := "| 2 | load | CPU per list | 100 ms |\n| 2 | load | peak RSS | 0 MB |\n| 2 | load | server 1 | did not keep up: the last request began 2.0 s late |\n| 2 | load | server 1 | ended 3 watches, which were opened again |\n| 2 | load | server 1 | failed 1 requests |\n"; out.String() != want {
		t.Error(out.String())
	}
}

func TestServersGetTheirWorkers(t *testing.T) {
	for want, server := range map[string]binary{
		"/keelson a": {label: "K", path: "/keelson"},
		"taskset -c 0-0 env GOMAXPROCS=1 /keelson a --worker-threads=2": {label: "K", path: "/keelson", workers: 1},
		"taskset -c 0-3 env GOMAXPROCS=4 /keelson a --worker-threads=4": {label: "K", path: "/keelson", workers: 4},
		"taskset -c 0-1 env GOMAXPROCS=2 /theirs a":                     {label: against, path: "/theirs", workers: 2},
	} {
		if got := strings.Join(server.command([]string{"a"}), " "); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

func TestEverythingIsTriedUntilOneFails(t *testing.T) {
	done := make([]bool, 50)
	if err := inParallel(len(done), 4, func(i int) error { done[i] = true; return nil }); err != nil || slices.Contains(done, false) {
		t.Error(err, done)
	}
	if err := inParallel(50, 1, func(i int) error {
		if i == 3 {
			return errors.New("three")
		}
		if i > 3 {
			t.Errorf("%d is tried after 3 has failed", i)
		}
		return nil
	}); err == nil || err.Error() != "three" {
		t.Error(err)
	}
}

func TestMixesHaveLanesAndNamesOfTheirOwn(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mixes {
		if len(m.lanes) == 0 || names[m.name] {
			t.Errorf("%q", m.name)
		}
		names[m.name] = true
	}
}
