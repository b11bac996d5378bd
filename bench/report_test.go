package main

import (
	"errors"
	"testing"
	"time"
)

func TestTheMiddleSampleCounts(t *testing.T) {
	of := func(cpu time.Duration) sample { return sample{ops: 2, cpu: cpu, latencies: []time.Duration{cpu}} }
	got := median([]sample{of(10), of(400), of(12)})
	if got.each() != 6 || len(got.latencies) != 3 || got.quantile(0.99) != 400 || got.quantile(0.5) != 12 {
		t.Errorf("%+v", got)
	}
}

func TestFiguresStandBesideTheirGoals(t *testing.T) {
	one := row{name: "read", theirs: "2 ms", goal: 0.25, unit: milliseconds}
	if got := one.goalText(); got != "< 0.25 ms" {
		t.Error(got)
	}
	for goal, want := range map[float64]string{120: "< 120 ms", 0.1: "< 0.1 ms", 5: "< 5 ms", 1.5: "< 1.5 ms", 0: ""} {
		if got := (row{goal: goal, unit: milliseconds}).goalText(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	cells := one.cells(result{value: 0.2, unit: milliseconds, nginx: 0.1}, true)
	if cells[0] != "0.200 ms" || cells[1] != "yes" || cells[4] != "2.00" {
		t.Errorf("%q", cells)
	}
	if cells := one.cells(result{value: 30, unit: milliseconds}, true); cells[0] != "30 ms" || cells[1] != "no" || cells[4] != "" {
		t.Errorf("%q", cells)
	}
	if cells := one.cells(failure(errors.New("a|b\nc")), true); cells[0] != "failed" || cells[5] != "a/b" {
		t.Errorf("%q", cells)
	}
}
