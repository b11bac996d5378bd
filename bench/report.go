package main

import (
	"errors"
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
	// nginx is the CPU time that the same bytes cost it, in the same unit; 0 where there is no such thing.
	nginx float64
	// times is how much of what the first server took this one did; 0 for the first one itself.
	times float64
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

func (r result) line() string {
	if r.err != nil {
		return "failed"
	}
	text := r.unit.format(r.value)
	if r.latency != "" {
		text += ", latency " + r.latency
	}
	if r.times > 0 {
		text += fmt.Sprintf(", %.3f times the first one's", r.times)
	}
	if r.nginx > 0 {
		text += fmt.Sprintf(", nginx %s (%.2f times that)", r.unit.format(r.nginx), r.value/r.nginx)
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

// render is the table as Markdown. A goal is met where the figure is below it; with a kube-apiserver in the same run, where it is
// also at most the share of that one's figure that the goal is of the recorded one.
func (r *report) render() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %d CPUs (%s), store %s, %d pods; CPU time of the server per operation, memory as VmRSS, latency as mean (99th percentile); the middle of %d rounds in which all take turns; %d clients on %d connections unless a row says otherwise, Go's HTTP/2 client without compression, watches %d to a connection.\n\n",
		time.Now().UTC().Format("2006-01-02 15:04"), runtime.NumCPU(), processor(), r.options.store, r.options.pods, rounds, workers, connections, r.options.streams)
	servers := r.options.all()
	first := servers[0].label
	head := []string{"work", "kube-apiserver", "goal"}
	if first == against {
		head = append(head, "share", "kube-apiserver here")
	}
	for _, server := range r.options.servers {
		head = append(head, server.label)
		if server.label != first {
			head = append(head, "times "+first)
		}
		head = append(head, "met", "latency", "nginx, same bytes", "times nginx", "more")
	}
	line(&out, head)
	line(&out, strings.Split(strings.Repeat("---,", len(head)-1)+"---", ","))
	for _, row := range rows(r.options) {
		results := r.results[row.name]
		if results == nil {
			continue
		}
		cells := []string{row.name, row.theirs, row.below()}
		if first == against {
			cells = append(cells, ratio(row.share()), results[against].figure())
		}
		for _, server := range r.options.servers {
			result, measured := results[server.label]
			if !measured {
				result = failure(errors.New("not measured"))
			}
			cells = append(cells, row.cells(result, server.label != first, first == against)...)
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

// below is the goal as the table says it; nothing if there is none.
func (row row) below() string {
	if row.goal == 0 {
		return ""
	}
	return "< " + strings.TrimSuffix(strings.TrimSuffix(fmt.Sprintf("%.2f", row.goal), "0"), ".0") + " " + string(row.unit)
}

// share is what the goal is of the recorded figure of kube-apiserver. 0 where there is none, and for memory, which does not depend
// on the machine.
func (row row) share() float64 {
	recorded := row.recorded()
	if row.unit == megabytes || row.unit == kilobytes || recorded == 0 {
		return 0
	}
	return row.goal / recorded
}

// ratio as the table says it.
func ratio(value float64) string {
	if value == 0 {
		return ""
	}
	return fmt.Sprintf("%.3f", value)
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

// cells of a server: its figure, how that compares with the first server's if it is `another`, whether the goal is met; the goal's
// share counts if the first server is the one to measure `against`.
func (row row) cells(r result, another, against bool) []string {
	cells := []string{r.figure()}
	if another {
		cells = append(cells, ratio(r.times))
	}
	if r.err != nil {
		return append(cells, "no", "", "", "", strings.ReplaceAll(strings.Split(r.err.Error(), "\n")[0], "|", "/"))
	}
	nginx, times := "", ""
	if r.nginx > 0 {
		nginx, times = r.unit.format(r.nginx), ratio(r.value/r.nginx)
	}
	return append(cells, row.met(r, against), r.latency, nginx, times, r.more)
}

// met tells whether a goal is reached: as it is written, and as a share of the server to measure against.
func (row row) met(r result, against bool) string {
	written := r.value < row.goal
	share := r.times < row.share()
	if !against || row.share() == 0 || r.times == 0 {
		share = written
	}
	switch {
	case row.goal == 0:
		return ""
	case written && share:
		return "yes"
	case written:
		return "as written, not the share"
	case share:
		return "the share, not as written"
	default:
		return "no"
	}
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
