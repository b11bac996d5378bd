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
	if got := one.below(one.goal); got != "< 0.25 ms" {
		t.Error(got)
	}
	for goal, want := range map[float64]string{120: "< 120 ms", 0.1: "< 0.1 ms", 5: "< 5 ms", 1.5: "< 1.5 ms", 0: ""} {
		if got := (row{unit: milliseconds}).below(goal); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	cells := one.cells(result{value: 0.2, unit: milliseconds, nginx: 0.1}, true, one.goal)
	if cells[0] != "0.200 ms" || cells[1] != "yes" || cells[4] != "2.00" {
		t.Errorf("%q", cells)
	}
	if cells := one.cells(result{value: 30, unit: milliseconds}, true, one.goal); cells[0] != "30 ms" || cells[1] != "no" || cells[4] != "" {
		t.Errorf("%q", cells)
	}
	if cells := one.cells(failure(errors.New("a|b\nc")), true, one.goal); cells[0] != "failed" || cells[5] != "a/b" {
		t.Errorf("%q", cells)
	}
}

func TestGoalsFollowAKubeAPIServerInTheSameRun(t *testing.T) {
	for _, c := range []struct {
		row    row
		theirs result
		want   float64
	}{
		{row{theirs: "2 ms", goal: 0.25, unit: milliseconds}, result{value: 6, unit: milliseconds}, 0.75},
		{row{theirs: "2.2-4 s", goal: 0.1, unit: seconds}, result{value: 8, unit: seconds}, 0.2},
		{row{theirs: "100 MB", goal: 10, unit: megabytes}, result{value: 200, unit: megabytes}, 10},
		{row{goal: 10, unit: milliseconds}, result{value: 200, unit: milliseconds}, 10},
		{row{theirs: "2 ms", goal: 0.25, unit: milliseconds}, failure(errors.New("no")), 0.25},
		{row{theirs: "2 ms", goal: 0.25, unit: milliseconds}, result{}, 0.25},
	} {
		if got := c.row.goalHere(c.theirs); got != c.want {
			t.Errorf("%v against %v: %v, not %v", c.row.theirs, c.theirs.value, got, c.want)
		}
	}
}
