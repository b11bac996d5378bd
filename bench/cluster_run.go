package main

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// clusterOptions are those of the load of a cluster.
type clusterOptions struct {
	run     bool
	nodes   int
	rate    float64
	during  time.Duration
	rounds  int
	workers []int
}

const (
	// quiet is how long no event must arrive until a round has ended, quietTime how long that may take.
	quiet     = 200 * time.Millisecond
	quietTime = time.Minute
	// awake is what a server has to come to itself after it stood still.
	awake = 300 * time.Millisecond
	// failuresTaken is the share of requests that may fail.
	failuresTaken = 0.01
)

// lengthen makes it the long form, for a comparison that is to be trusted.
func (o *clusterOptions) lengthen() {
	o.nodes, o.rounds, o.during = 1000, 5, 8*time.Second
	o.workers = nil
	for _, n := range []int{1, 2, runtime.NumCPU()} {
		if n <= runtime.NumCPU() && !slices.Contains(o.workers, n) {
			o.workers = append(o.workers, n)
		}
	}
}

// round is what a server did in one round of a mix.
type round struct {
	cpu, wall, late time.Duration
	requests, lists int // lists are those of loops, which are requests, too
	events          int64
	took            map[string][]time.Duration
	failed          int
	first           error
	ended           int // watches that the server ended
}

// clusterResult is what a server did in all rounds of a mix.
type clusterResult struct {
	rounds []round
	peak   uint64
	err    error
}

// clusterReport has the results by workers, then by load, then by server.
type clusterReport struct {
	options *options
	rows    []clusterRow
}

type clusterRow struct {
	workers int
	load    string
	results []clusterResult // of each server
}

// measureCluster takes all servers through all loads, for each number of workers.
func measureCluster(ctx context.Context, o *options) (*clusterReport, error) {
	report := &clusterReport{options: o}
	if !slices.ContainsFunc(mixes, func(m mix) bool { return o.only.MatchString(m.name) }) {
		return report, nil
	}
	for _, workers := range o.cluster.workers {
		if err := report.measure(ctx, o, workers); err != nil {
			return report, err
		}
	}
	return report, nil
}

func (r *clusterReport) measure(ctx context.Context, o *options, workers int) error {
	var clusters []*cluster
	starts := clusterRow{workers: workers, load: "all informers start"}
	for _, binary := range o.all() {
		binary.workers = workers
		b, err := start(ctx, o, binary)
		if err != nil {
			return fmt.Errorf("%s: %w", binary.label, err)
		}
		defer b.stop()
		c, err := newCluster(b)
		if err != nil {
			return fmt.Errorf("%s: %w", binary.label, err)
		}
		defer c.close()
		connected, err := c.start()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", binary.label, err, b.server.tail(20))
		}
		starts.results = append(starts.results, connected)
		clusters = append(clusters, c)
		b.server.pause()
	}
	r.rows = append(r.rows, starts)
	for _, m := range mixes {
		if !o.only.MatchString(m.name) {
			continue
		}
		row := clusterRow{workers: workers, load: m.name, results: measureMix(o, m, clusters)}
		r.rows = append(r.rows, row)
		for i, result := range row.results {
			say("  %s, %s: %s", m.name, clusters[i].b.binary.label, result.line())
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// start connects everything, which is measured as a load of one round, and brings the first pods to life.
func (c *cluster) start() (clusterResult, error) {
	say("  %s: connecting %d nodes", c.b.binary.label, c.b.options.cluster.nodes)
	one, err := c.round(func(*round) error { return c.connect() })
	if err != nil {
		return clusterResult{}, err
	}
	m, err := c.b.server.memory()
	if err != nil {
		return clusterResult{}, err
	}
	one.requests = int(c.watches.Load())
	result := clusterResult{rounds: []round{one}, peak: m.peak}
	say("  %s: %s", c.b.binary.label, result.line())
	return result, c.prepare()
}

// measureMix takes all servers through the rounds of a load, in turn.
func measureMix(o *options, m mix, clusters []*cluster) []clusterResult {
	results := make([]clusterResult, len(clusters))
	for n := range o.cluster.rounds + 1 {
		for i := range clusters {
			if n%2 == 1 { // turned round every time
				i = len(clusters) - 1 - i
			}
			c, result := clusters[i], &results[i]
			if result.err != nil {
				continue
			}
			c.b.server.resume()
			time.Sleep(awake)
			c.settle()
			if n == 1 {
				result.err = c.b.server.forgetPeak()
			}
			one, err := c.measured(o, m, n == 0)
			c.b.server.pause()
			if err != nil {
				result.err = err
			}
			if n > 0 { // the first one warms up
				result.rounds = append(result.rounds, one)
				say("  %s, %s, round %d: %d requests, %d events, CPU %.2f s", m.name, c.b.binary.label, n, one.requests, one.events, one.cpu.Seconds())
			}
		}
	}
	for i, c := range clusters {
		memory, err := c.b.server.memory()
		if err != nil && results[i].err == nil {
			results[i].err = err
		}
		results[i].peak = memory.peak
	}
	return results
}

// measured is a round of a mix, under perf where that is asked for. A round to warm up is short.
func (c *cluster) measured(o *options, m mix, warm bool) (one round, err error) {
	during := o.cluster.during
	if warm {
		during /= 3
	}
	work := func() (err error) {
		one, err = c.round(func(r *round) error { return c.load(m, during, r) })
		return err
	}
	if o.profile && !warm {
		err = profile(c.b.server, c.b.folder, work)
	} else {
		err = work()
	}
	return one, err
}

// round measures what the work and its events take.
func (c *cluster) round(work func(*round) error) (r round, err error) {
	c.recorder.reset()
	if _, err := c.check(); err != nil {
		return r, err
	}
	events := c.events.Load()
	begin := time.Now()
	before, err := c.b.server.cpu()
	if err != nil {
		return r, err
	}
	if err := work(&r); err != nil {
		return r, err
	}
	r.wall = time.Since(begin)
	c.settle()
	after, err := c.b.server.cpu()
	if err != nil {
		return r, err
	}
	r.cpu, r.events = after-before, c.events.Load()-events
	r.took, r.failed, r.first = c.recorder.reset()
	for _, took := range r.took {
		r.requests += len(took)
	}
	if float64(r.failed) > failuresTaken*float64(r.requests) {
		return r, fmt.Errorf("%d requests failed beside %d: %w", r.failed, r.requests, r.first)
	}
	r.ended, err = c.check()
	return r, err
}

// load runs all lanes of a mix for a time, and the loops of lists until the lanes have ended.
func (c *cluster) load(m mix, during time.Duration, r *round) error {
	var paced, looping sync.WaitGroup
	var lists atomic.Int64
	ended := make(chan struct{})
	for range m.loops {
		looping.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				// All kinds of lists in turn, however long each takes: what a list costs is to be compared.
				if c.list(int(lists.Add(1))) != nil { // which is recorded
					return
				}
			}
		})
	}
	late := make([]time.Duration, len(m.lanes))
	for i, l := range m.lanes {
		from, steps := c.turns[l.name], l.steps(c.b.options.cluster.rate, during)
		c.turns[l.name] += steps
		paced.Go(func() { late[i] = l.pace(c, steps, from, during) })
	}
	paced.Wait()
	close(ended)
	looping.Wait()
	r.late, r.lists = slices.Max(late), int(lists.Load())
	return nil
}

// settle waits until no more events arrive and no watch is being opened again.
func (c *cluster) settle() {
	for begin := time.Now(); time.Since(begin) < quietTime; {
		before := c.events.Load()
		time.Sleep(quiet)
		c.mutex.Lock()
		opening := c.opening
		c.mutex.Unlock()
		if c.events.Load() == before && opening == 0 {
			return
		}
	}
}

// clusterFigure is one line of the table for a load.
type clusterFigure struct {
	name string
	unit unit
	// of is the figure of one round; all that of all rounds, where one alone is too short to tell.
	of  func(round) float64
	all func(clusterResult) float64
}

// costs are what a load costs the server.
func (row clusterRow) costs() []clusterFigure {
	cost := func(name string, unit unit, scale float64, count func(round) int) clusterFigure {
		return clusterFigure{name: "CPU per " + name, unit: unit, of: func(r round) float64 { return r.cpu.Seconds() * scale / float64(max(1, count(r))) }}
	}
	peak := clusterFigure{name: "peak RSS", unit: megabytes, all: func(result clusterResult) float64 { return mb(result.peak) }}
	if row.loops() {
		return []clusterFigure{cost("list", milliseconds, 1e3, func(r round) int { return r.lists }), peak}
	}
	return []clusterFigure{
		cost("1000 requests", seconds, 1e3, func(r round) int { return r.requests }),
		cost("event", microseconds, 1e6, func(r round) int { return int(r.events) }),
		peak,
	}
}

// loops tells whether the load has loops of lists, of which a fast server makes more.
func (row clusterRow) loops() bool {
	return slices.ContainsFunc(row.results, func(result clusterResult) bool {
		return slices.ContainsFunc(result.rounds, func(r round) bool { return r.lists > 0 })
	})
}

// kinds of requests that the load has.
func (row clusterRow) kinds() []string {
	kinds := map[string]bool{}
	for _, result := range row.results {
		for _, r := range result.rounds {
			for kind := range r.took {
				kinds[kind] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// latency is how long requests of a kind took in all rounds.
func latency(kind string, part float64) clusterFigure {
	return clusterFigure{unit: milliseconds, all: func(result clusterResult) float64 {
		var s sample
		for _, r := range result.rounds {
			s.latencies = append(s.latencies, r.took[kind]...)
		}
		return ms(s.quantile(part))
	}}
}

// value of a result: the middle of the rounds, or of all of them.
func (f clusterFigure) value(result clusterResult) float64 {
	if f.all != nil {
		return f.all(result)
	}
	return middle(result.rounds, f.of)
}

// times is how much of the first server's figure another's is: the middle of what each round says.
func (f clusterFigure) times(result, first clusterResult) float64 {
	if f.all != nil {
		if f.all(first) == 0 {
			return 0
		}
		return f.all(result) / f.all(first)
	}
	var times []float64
	for i := range min(len(result.rounds), len(first.rounds)) {
		times = append(times, f.of(result.rounds[i])/f.of(first.rounds[i]))
	}
	return middle(times, func(t float64) float64 { return t })
}

func middle[T any](all []T, of func(T) float64) float64 {
	values := make([]float64, len(all))
	for i, one := range all {
		values[i] = of(one)
	}
	slices.Sort(values)
	if len(values) == 0 {
		return 0
	}
	return values[len(values)/2]
}

// line is what a result costs, in one progress line.
func (result clusterResult) line() string {
	if result.err != nil {
		return "failed: " + result.err.Error()
	}
	words := []string{}
	for _, f := range (clusterRow{results: []clusterResult{result}}).costs() {
		words = append(words, f.name+" "+f.unit.format(f.value(result)))
	}
	return strings.Join(words, "; ")
}

// render is the table as Markdown.
func (r *clusterReport) render() string {
	var out strings.Builder
	o := r.options.cluster
	fmt.Fprintf(&out, "%s, %d CPUs (%s), store %s; %d nodes with %d pods each, %.3g times the rates of a cluster of 1000 nodes; the middle of %d rounds of %v in which all take turns, latencies of all rounds together.\n\n",
		time.Now().UTC().Format("2006-01-02 15:04"), runtime.NumCPU(), processor(), r.options.store, o.nodes, podsPerNode, o.rate, o.rounds, o.during)
	servers := r.options.all()
	head := []string{"workers", "load", "figure"}
	for i, server := range servers {
		head = append(head, server.label)
		if i > 0 {
			head = append(head, "times "+servers[0].label)
		}
	}
	line(&out, head)
	line(&out, strings.Split(strings.Repeat("---,", len(head)-1)+"---", ","))
	for _, row := range r.rows {
		row.render(&out)
	}
	return out.String()
}

func (row clusterRow) render(out *strings.Builder) {
	workers := "all"
	if row.workers > 0 {
		workers = fmt.Sprint(row.workers)
	}
	for _, f := range row.costs() {
		line(out, append([]string{workers, row.load, f.name}, row.cells(f)...))
	}
	for _, kind := range row.kinds() {
		cells := row.cells(latency(kind, 0.5))
		for i, tail := range row.cells(latency(kind, 0.99)) {
			if cells[i] != tail {
				cells[i] += " (" + tail + ")"
			}
		}
		line(out, append([]string{workers, row.load, kind + ", p50 (p99)"}, cells...))
	}
	for i, result := range row.results {
		for _, said := range result.remarks() {
			line(out, []string{workers, row.load, fmt.Sprintf("server %d", i+1), said})
		}
	}
}

// remarks are what the figures do not tell.
func (result clusterResult) remarks() (all []string) {
	if result.err != nil {
		return []string{strings.ReplaceAll(strings.Split(result.err.Error(), "\n")[0], "|", "/")}
	}
	var late time.Duration
	ended, failed := 0, 0
	for _, r := range result.rounds {
		late, ended, failed = max(late, r.late), ended+r.ended, failed+r.failed
	}
	if late > time.Second {
		all = append(all, fmt.Sprintf("did not keep up: the last request began %.1f s late", late.Seconds()))
	}
	if ended > 0 {
		all = append(all, fmt.Sprintf("ended %d watches, which were opened again", ended))
	}
	if failed > 0 {
		all = append(all, fmt.Sprintf("failed %d requests", failed))
	}
	return all
}

// cells are a figure of all servers, each but the first with what it is of the first one's.
func (row clusterRow) cells(f clusterFigure) (cells []string) {
	first := row.results[0]
	for i, result := range row.results {
		value, times := "failed", ""
		if result.err == nil {
			value = f.unit.format(f.value(result))
			if first.err == nil {
				times = ratio(f.times(result, first))
			}
		}
		if cells = append(cells, value); i > 0 {
			cells = append(cells, times)
		}
	}
	return cells
}
