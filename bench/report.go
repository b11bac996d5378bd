package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// result is what a row came to.
type result struct {
	// value is the figure that the goal is for; unit says how it is written.
	value float64
	unit  unit
	// more are further figures, in words.
	more string
	// latency is empty where there is none to tell.
	latency string
	// nginx is the CPU time in ms that the same bytes cost it; 0 where there is no such thing.
	nginx float64
	err   error
}

type unit string

const (
	milliseconds unit = "ms"
	microseconds unit = "us"
	seconds      unit = "s"
	megabytes    unit = "MB"
	kilobytes    unit = "KB"
)

func (u unit) format(value float64) string {
	switch {
	case value == 0:
		return "0 " + string(u)
	case value < 1:
		return fmt.Sprintf("%.3f %s", value, u)
	case value < 20:
		return fmt.Sprintf("%.2f %s", value, u)
	default:
		return fmt.Sprintf("%.0f %s", value, u)
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mb(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

func failure(err error) result { return result{err: err} }

// perOp is the CPU time of an operation, with its latency.
func perOp(s sample) result {
	return result{value: ms(s.each()), unit: milliseconds,
		latency: fmt.Sprintf("%s (%s)", milliseconds.format(ms(s.mean())), milliseconds.format(ms(s.quantile(0.99))))}
}

func (r result) line() string {
	if r.err != nil {
		return "failed"
	}
	text := r.unit.format(r.value)
	if r.latency != "" {
		text += ", latency " + r.latency
	}
	if r.nginx > 0 {
		text += fmt.Sprintf(", nginx %s (%.2f times that)", milliseconds.format(r.nginx), r.value/r.nginx)
	}
	if r.more != "" {
		text += "; " + r.more
	}
	return text
}

// report gathers the results of all servers.
type report struct {
	options *options
	results map[string]map[string]result // by row, then by server
}

func newReport(o *options) *report {
	return &report{options: o, results: map[string]map[string]result{}}
}

func (r *report) add(server, row string, what result) {
	if r.results[row] == nil {
		r.results[row] = map[string]result{}
	}
	r.results[row][server] = what
}

// goalNginx is what nginx took for the list of 10 000 pods on the machine that the goals were set on.
const goalNginx = 65.0

// render is the table as Markdown. A goal is met where the figure is below it as it is (how fast the machine is, nginx's row
// tells); with a kube-apiserver in the same run, where it is below what the goal comes to here.
func (r *report) render() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %d CPUs (%s), store %s, %d pods; CPU time of the server per operation, memory as VmRSS, latency as mean (99th percentile); %d clients on %d connections unless a row says otherwise, Go's HTTP/2 client without compression, watches %d to a connection.\n\n",
		time.Now().UTC().Format("2006-01-02 15:04"), runtime.NumCPU(), processor(), r.options.store, r.options.pods, workers, connections, r.options.streams)
	head := []string{"work", "kube-apiserver", "goal"}
	if r.options.against != "" {
		head = append(head, "kube-apiserver here", "goal here")
	}
	for _, server := range r.options.servers {
		head = append(head, server.label, "met", "latency", "nginx, same bytes", "times nginx", "more")
	}
	line(&out, head)
	line(&out, strings.Split(strings.Repeat("---,", len(head)-1)+"---", ","))
	for _, row := range rows(r.options) {
		results := r.results[row.name]
		if results == nil {
			continue
		}
		goal := row.goal
		cells := []string{row.name, row.theirs, row.below(goal)}
		if r.options.against != "" {
			theirs := results[against]
			goal = row.goalHere(theirs)
			cells = append(cells, theirs.figure(), row.below(goal))
		}
		for _, server := range r.options.servers {
			result, measured := results[server.label]
			cells = append(cells, row.cells(result, measured, goal)...)
		}
		line(&out, cells)
	}
	for _, server := range r.options.servers {
		if list := r.results[listJSON][server.label]; list.nginx > 0 && r.options.pods == 10_000 {
			fmt.Fprintf(&out, "\n%s: nginx took %.0f ms for the list of 10 000 pods where the goals were set, and %.0f ms here: this run's processor is %.2f times as slow.\n",
				server.label, goalNginx, list.nginx, list.nginx/goalNginx)
		}
	}
	return out.String()
}

// below is a goal as the table says it; nothing if there is none.
func (row row) below(goal float64) string {
	if goal == 0 {
		return ""
	}
	return "< " + strings.TrimSuffix(strings.TrimSuffix(fmt.Sprintf("%.2f", goal), "0"), ".0") + " " + string(row.unit)
}

// goalHere is the goal on a machine where kube-apiserver takes what theirs says: the same share of it. Memory does not depend on
// the machine, and a row that kube-apiserver was not or could not be measured in keeps its goal.
func (row row) goalHere(theirs result) float64 {
	recorded := row.recorded()
	if row.unit == megabytes || row.unit == kilobytes || recorded == 0 || theirs.err != nil || theirs.value == 0 {
		return row.goal
	}
	return row.goal * theirs.value / recorded
}

// recorded is what kube-apiserver took where the goals were set, in the row's unit; of a range the upper end, 0 if there is none.
func (row row) recorded() (figure float64) {
	text := row.theirs[strings.LastIndex(row.theirs, "-")+1:]
	fmt.Sscan(strings.TrimSuffix(text, " "+string(row.unit)), &figure)
	return figure
}

// figure is a result's figure alone.
func (r result) figure() string {
	if r.err != nil {
		return "failed"
	}
	return r.unit.format(r.value)
}

func (row row) cells(r result, measured bool, goal float64) []string {
	if !measured {
		return make([]string, 6)
	}
	if r.err != nil {
		return []string{"failed", "no", "", "", "", strings.ReplaceAll(strings.Split(r.err.Error(), "\n")[0], "|", "/")}
	}
	met, nginx, times := "", "", ""
	if goal > 0 {
		if met = "no"; r.value < goal {
			met = "yes"
		}
	}
	if r.nginx > 0 {
		nginx, times = milliseconds.format(r.nginx), fmt.Sprintf("%.2f", r.value/r.nginx)
	}
	return []string{r.figure(), met, r.latency, nginx, times, r.more}
}

func line(out *strings.Builder, cells []string) {
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}

func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, found := strings.Cut(string(info), "model name\t: ")
	if !found {
		return runtime.GOARCH
	}
	name, _, _ := strings.Cut(rest, "\n")
	return name
}
