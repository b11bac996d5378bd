// Command bench measures API servers: what an operation costs the server in CPU time, how long it takes, and what memory
// holds it, row by row of the table that Keelson's goals are in. It starts etcd, the server and nginx on free ports of this
// machine, in a folder in memory that goes away at the end, whatever happens.
//
// CPU time is that of the server's process (user and system, in nanoseconds, from its CPU clock): unlike wall time it can
// be compared on a busy machine. Still it depends on the machine, and that changes from minute to minute: servers take turns,
// and what they are to each other is told round by round. nginx, in turn with them, serves the same bytes over TLS and HTTP/2;
// -against measures a kube-apiserver, too, and the goals are then also taken as what they are of its figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	servers  []binary
	against  string
	etcd     string
	store    string
	flags    []string
	only     *regexp.Regexp
	pods     int
	items    []int
	streams  int
	profile  bool
	markdown string
	folder   string
}

// against is the label of the kube-apiserver that others are measured against.
const against = "kube-apiserver"

// binary is a server to measure.
type binary struct{ label, path string }

// all servers; a kube-apiserver to measure against is the first.
func (o *options) all() []binary {
	if o.against == "" {
		return o.servers
	}
	return append([]binary{{against, o.against}}, o.servers...)
}

// begun is when the process started, for progress lines.
var begun = time.Now()

// say prints a progress line.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
}

func main() {
	// Children are to die with the thread that started them (Pdeathsig): it must be one that stays.
	runtime.LockOSThread()
	o, err := parse()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measureAll(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse() (*options, error) {
	o := &options{}
	flag.Func("server", "[LABEL=]BINARY of a server that takes kube-apiserver's flags; several times to compare some (default ../target/dist/keelson)",
		func(value string) error {
			label, path, named := strings.Cut(value, "=")
			if !named {
				label, path = filepath.Base(value), value
			}
			o.servers = append(o.servers, binary{label, path})
			return nil
		})
	flag.StringVar(&o.against, "against", "", "a kube-apiserver that takes turns with the servers: goals of time are then also to be as far below its figures as they are below the recorded ones")
	flag.StringVar(&o.etcd, "etcd", "../.tools/bin/etcd", "the etcd to start")
	flag.StringVar(&o.store, "store", "etcd", "etcd, or embedded for a server that has a store of its own")
	flags := flag.String("flags", "", "further flags for the servers, separated by spaces")
	only := flag.String("run", "", "only the rows whose name matches this expression; what they need is loaded nevertheless")
	list := flag.Bool("list", false, "print the names of the rows and exit")
	flag.IntVar(&o.pods, "pods", 10_000, "how many pods to load (100000 for a large cluster)")
	items := flag.String("items", "1000,10000,100000", "how many ConfigMaps to list for the cost of an item")
	flag.IntVar(&o.streams, "streams", 100, "watches on one connection")
	flag.BoolVar(&o.profile, "profile", false, "record the server with perf during each row and print where its time goes")
	flag.StringVar(&o.markdown, "markdown", "", "write the table to this file, too")
	flag.StringVar(&o.folder, "folder", defaultFolder(), "where a folder for data and certificates is made")
	flag.Parse()
	if *list {
		for _, row := range rows(o) {
			fmt.Println(row.name)
		}
		os.Exit(0)
	}
	if flag.NArg() > 0 {
		return nil, fmt.Errorf("what is %q?", flag.Arg(0))
	}
	var err error
	if o.only, err = regexp.Compile("(?i)" + *only); err != nil {
		return nil, err
	}
	if o.items, err = numbers(*items); err != nil {
		return nil, err
	}
	o.flags = strings.Fields(*flags)
	if len(o.servers) == 0 {
		o.servers = []binary{{"Keelson", "../target/dist/keelson"}}
	}
	return o, o.check()
}

func numbers(text string) (all []int, err error) {
	for _, word := range strings.Split(text, ",") {
		var n int
		if _, err := fmt.Sscan(word, &n); err != nil || n < 1 {
			return nil, fmt.Errorf("-items: %q is not a number of ConfigMaps", word)
		}
		all = append(all, n)
	}
	return all, nil
}

// check makes paths absolute and sees that everything is there.
func (o *options) check() error {
	paths := []*string{}
	switch o.store {
	case "etcd":
		paths = append(paths, &o.etcd)
	case "embedded":
	default:
		return fmt.Errorf("-store: there is no store %q", o.store)
	}
	labels := map[string]bool{against: o.against != ""}
	for i := range o.servers {
		paths = append(paths, &o.servers[i].path)
		if label := o.servers[i].label; labels[label] {
			return fmt.Errorf("two servers are called %q: LABEL=BINARY gives one another name", label)
		} else {
			labels[label] = true
		}
	}
	if o.against != "" {
		paths = append(paths, &o.against)
	}
	for _, path := range paths {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		if _, err := os.Stat(absolute); err != nil {
			return fmt.Errorf("%w (make bench builds it)", err)
		}
		*path = absolute
	}
	if least := max(podsPerPage, patchedPods+1); o.pods < least || o.streams < 1 {
		return fmt.Errorf("at least %d pods and one stream on a connection are needed", least)
	}
	return nil
}

// defaultFolder is in memory where that is possible: disks differ more than processors.
func defaultFolder() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return os.TempDir()
}

// measureAll brings all servers up, takes them through the rows, and prints the table.
func measureAll(ctx context.Context, o *options) error {
	var servers []*bench
	for _, binary := range o.all() {
		b, err := start(ctx, o, binary)
		if err != nil {
			return fmt.Errorf("%s: %w", binary.label, err)
		}
		defer b.stop()
		servers = append(servers, b)
	}
	report := newReport(o)
	failed := measureRows(ctx, o, servers, report)
	table := report.render()
	fmt.Print(table)
	if o.markdown != "" {
		failed = errors.Join(failed, os.WriteFile(o.markdown, []byte(table), 0o644))
	}
	return failed
}

func measureRows(ctx context.Context, o *options, servers []*bench, report *report) error {
	for _, row := range rows(o) {
		if !o.only.MatchString(row.name) {
			continue
		}
		say("%s", row.name)
		for i, result := range row.measure(o, servers) {
			label := servers[i].binary.label
			report.add(label, row.name, result)
			say("  %s: %s", label, result.line())
			if servers[i].server.ended() {
				return fmt.Errorf("%s stopped:\n%s", label, servers[i].server.tail(20))
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
