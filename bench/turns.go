package main

import (
	"fmt"
	"slices"
	"strings"
)

// measurement is how a row's figures come about: one for each server.
type measurement interface {
	measure(o *options, servers []*bench) []result
}

// once is measured of one server after the other: memory, starts.
type once func(*bench) (result, error)

// inTurns is measured of all servers in turn, round by round: what disturbs the machine for a while meets all of them, and the
// middle of what each round says of two servers tells more of them than two figures that were taken minutes apart.
type inTurns func(*bench) (*work, error)

// work is what a server does turn by turn.
type work struct {
	// rounds there are to be.
	rounds int
	// turn does a part of it and measures that.
	turn func() (sample, error)
	// nginx serves the same bytes, if it is to be compared.
	nginx func() (sample, error)
	// unit of what figure shows of a turn.
	unit   unit
	figure func(sample) float64
	// more tells of the middle turn what else there is to tell.
	more func(sample) string
	// end gives back what the turns needed.
	end func()
}

func (measure once) measure(_ *options, servers []*bench) []result {
	results := make([]result, len(servers))
	for i, b := range servers {
		said, err := measure(b)
		if err != nil {
			said = failure(err)
		}
		results[i] = said
	}
	if first := results[0]; first.err == nil && first.value > 0 {
		for i := 1; i < len(results); i++ {
			results[i].times = results[i].value / first.value
		}
	}
	return results
}

func (prepare inTurns) measure(o *options, servers []*bench) []result {
	all := make([]*taken, len(servers))
	rounds := 0
	for i, b := range servers {
		work, err := prepare(b)
		all[i] = &taken{bench: b, work: work, err: err}
		if err == nil {
			rounds = work.rounds
			if work.end != nil {
				defer work.end()
			}
		}
	}
	if o.profile {
		for _, t := range all {
			t.profile()
		}
	} else {
		for round := range rounds {
			for _, t := range inOrder(all, round) {
				t.alone(all)
			}
		}
	}
	var results []result
	for _, t := range all {
		results = append(results, t.result(all[0]))
	}
	return results
}

// inOrder turns the order round every time: what a server leaves to be done is not always in the way of the same one.
func inOrder(all []*taken, round int) []*taken {
	if round%2 == 0 {
		return all
	}
	turned := slices.Clone(all)
	slices.Reverse(turned)
	return turned
}

// taken are the turns that a server has taken.
type taken struct {
	bench       *bench
	work        *work
	turns, them []sample // them: nginx
	err         error
}

// alone takes a turn while the other servers stand still: what they would do meanwhile, collecting garbage most of all, is a part
// of their own turns.
func (t *taken) alone(all []*taken) {
	for _, other := range all {
		if other != t {
			other.bench.server.pause()
			defer other.bench.server.resume()
		}
	}
	t.turn()
}

// turn takes one more, unless one failed.
func (t *taken) turn() {
	if t.err != nil {
		return
	}
	s, err := t.work.turn()
	t.turns, t.err = append(t.turns, s), err
	if t.err == nil && t.work.nginx != nil {
		s, t.err = t.work.nginx()
		t.them = append(t.them, s)
	}
}

// profile takes all turns under perf, without nginx.
func (t *taken) profile() {
	if t.err != nil {
		return
	}
	t.work.nginx = nil
	t.err = profile(t.bench.server, t.bench.folder, func() error {
		for range t.work.rounds {
			t.turn()
		}
		return t.err
	})
}

// result of all turns; against the first server's, round by round.
func (t *taken) result(first *taken) result {
	if t.err != nil {
		return failure(t.err)
	}
	w := t.work
	middle := median(t.turns, w.figure)
	r := result{value: w.figure(middle), unit: w.unit, latency: middle.latency()}
	if len(t.them) > 0 {
		r.nginx = w.figure(median(t.them, w.figure))
	}
	if w.more != nil {
		r.more = w.more(middle)
	}
	if t != first && first.err == nil {
		var times []float64
		for i := range min(len(t.turns), len(first.turns)) {
			times = append(times, w.figure(t.turns[i])/w.figure(first.turns[i]))
		}
		slices.Sort(times)
		r.times = times[len(times)/2]
		r.more = strings.TrimPrefix(fmt.Sprintf("%s; %.3f to %.3f of %s's in the rounds", r.more, times[0], times[len(times)-1], first.bench.binary.label), "; ")
	}
	return r
}
