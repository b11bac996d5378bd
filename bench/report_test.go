package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTheMiddleSampleCounts(t *testing.T) {
	of := func(cpu time.Duration) sample { return sample{ops: 2, cpu: cpu, latencies: []time.Duration{cpu}} }
	got := median([]sample{of(10), of(400), of(12)}, perOp)
	if got.cpu != 12 || len(got.latencies) != 3 || got.quantile(0.99) != 400 || got.quantile(0.5) != 12 {
		t.Errorf("%+v", got)
	}
}

func TestFiguresStandBesideTheirGoals(t *testing.T) {
	for goal, want := range map[float64]string{0.25: "< 0.25 ms", 120: "< 120 ms", 0.1: "< 0.1 ms", 5: "< 5 ms", 1.5: "< 1.5 ms", 0: ""} {
		if got := (row{goal: goal, unit: milliseconds}).below(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	one := row{name: "read", theirs: "2 ms", goal: 0.25, unit: milliseconds}
	for _, c := range []struct {
		result           result
		another, against bool
		want             string
	}{
		{result{value: 0.2, unit: milliseconds, nginx: 0.1, more: "x"}, false, false, "0.200 ms|yes||0.100 ms|2.000|x"},
		{result{value: 30, unit: milliseconds, latency: "1 ms"}, false, false, "30 ms|no|1 ms|||"},
		{result{value: 0.2, unit: milliseconds, times: 0.1}, true, true, "0.200 ms|0.100|yes||||"},
		{result{value: 0.2, unit: milliseconds, times: 0.2}, true, true, "0.200 ms|0.200|as written, not the share||||"},
		{result{value: 0.3, unit: milliseconds, times: 0.1}, true, true, "0.300 ms|0.100|the share, not as written||||"},
		{result{value: 0.3, unit: milliseconds, times: 0.2}, true, true, "0.300 ms|0.200|no||||"},
		{result{value: 0.2, unit: milliseconds, times: 1.1}, true, false, "0.200 ms|1.100|yes||||"},
		{result{value: 0.2, unit: milliseconds}, true, true, "0.200 ms||yes||||"},
		{failure(errors.New("a|b\nc")), true, true, "failed||no||||a/b"},
	} {
		if got := strings.Join(one.cells(c.result, c.another, c.against), "|"); got != c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}

func TestAGoalIsAShareOfWhatWasRecorded(t *testing.T) {
	for _, c := range []struct {
		row  row
		want float64
	}{
		{row{theirs: "2 ms", goal: 0.25, unit: milliseconds}, 0.125},
		{row{theirs: "2.2-4 s", goal: 0.1, unit: seconds}, 0.025},
		{row{theirs: "100 MB", goal: 10, unit: megabytes}, 0},
		{row{goal: 10, unit: milliseconds}, 0},
	} {
		if got := c.row.share(); got != c.want {
			t.Errorf("%q: %v, not %v", c.row.theirs, got, c.want)
		}
	}
}

// servers that answer as fast as they say, and write down who took a turn.
func servers(order *[]string, took map[string][]time.Duration) (all []*bench, prepare inTurns) {
	for _, label := range []string{"one", "other"} {
		all = append(all, &bench{binary: binary{label: label}})
	}
	return all, func(b *bench) (*work, error) {
		label, turns := b.binary.label, took[b.binary.label]
		turn := func() (sample, error) {
			*order = append(*order, label)
			if len(turns) == 0 {
				return sample{}, errors.New("it stopped")
			}
			s := sample{ops: 1, cpu: turns[0]}
			turns = turns[1:]
			return s, nil
		}
		return &work{rounds: 3, turn: turn, unit: milliseconds, figure: perOp, end: func() { *order = append(*order, "end") }}, nil
	}
}

func TestServersTakeTurns(t *testing.T) {
	const second = time.Second
	var order []string
	all, prepare := servers(&order, map[string][]time.Duration{"one": {2 * second, 20 * second, 4 * second}, "other": {second, 2 * second, 3 * second}})
	results := prepare.measure(&options{}, all)
	if got := strings.Join(order, " "); got != "one other other one one other end end" {
		t.Error(got)
	}
	if one, other := results[0], results[1]; one.value != 4000 || one.times != 0 || other.value != 2000 || other.times != 0.5 {
		t.Errorf("%+v", results)
	}
	if got, want := results[1].more, "0.100 to 0.750 of one's in the rounds"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	order = nil
	all, prepare = servers(&order, map[string][]time.Duration{"one": {second}, "other": {second, second, second}})
	results = prepare.measure(&options{}, all)
	if results[0].err == nil || results[1].err != nil || results[1].times != 0 {
		t.Errorf("%+v", results)
	}
}
