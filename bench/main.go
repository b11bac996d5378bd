// Command bench measures API servers: what an operation costs the server in CPU time, how long it takes, and what memory
// holds it, row by row of the table that Keelson's goals are in. It starts etcd, the server and nginx on free ports of this
// machine, in a folder in memory that goes away at the end, whatever happens.
//
// CPU time is that of the server's process (user and system, in nanoseconds, from its CPU clock): unlike wall time it can
// be compared on a busy machine. Still it depends on the machine, and that changes from minute to minute: servers take turns,
// and what they are to each other is told round by round. nginx, in turn with them, serves the same bytes over TLS and HTTP/2;
// -against measures a kube-apiserver, too, and the goals are then also taken as what they are of its figures.
//
// # A cluster in miniature
//
// With -cluster there are no single operations but the load of a cluster: -nodes nodes, each with a kubelet and a kube-proxy on
// connections of their own, as users of their own (the Node authorizer and NodeRestriction see them), with eight watches between
// them; controllers, a scheduler, a garbage collector, operators and kubectl with the informers that they have. Informers are
// client-go's: initial events instead of a list before (WatchList), protobuf for built-in kinds, JSON for custom resources,
// metadata alone for the garbage collector, gzip accepted. Requests come at a fixed rate, whether or not the server has answered
// those before; -rate multiplies the rates. Each load has a few rounds of -during, which all servers take in turn on the same
// numbered requests while the others stand still:
//
//   - all informers start: every component connects, and gets the initial events of its informers; one round
//   - heartbeats of nodes: leases renewed by PUT in protobuf, and patches of the status of nodes
//   - pods come and go: each is created, bound, reported as pending and as running, leaves three events, and is deleted
//   - endpoints to all nodes: EndpointSlices and Services change, and every node hears of it
//   - custom resources: their status is patched; some are created and deleted
//   - the whole cluster: all of these at about the rates of a thousand nodes, gets, lists of some pods, and four lists of all
//   - four loops of lists: four clients list all pods without a pause, in JSON, protobuf, by pages and as a Table, beside gets and patches
//
// How to read it: the CPU time of the server is the figure to decide by, per 1000 requests and per event that reached a watch (both
// are the whole CPU time of the same rounds, divided by the one and by the other). Latencies are those of a client that shares the
// processors with the server and etcd: they tell where requests wait for each other, and little more. The column "times" compares
// with the first server round by round and takes the middle one. A server that "did not keep up" was overloaded: its latencies
// grow with the length of a round. Peak RSS is of all rounds of a load, and does not start from nothing: the order of loads counts.
//
//	go run . -cluster -server old=/tmp/keelson-old -server new=../target/dist/keelson           # one change, with and without
//	go run . -cluster -server a=A -server b=B -run 'endpoints|loops' -rounds 9                   # some loads, more rounds
//	go run . -cluster -long -against /usr/local/bin/kube-apiserver                               # 1000 nodes; 1, 2 and all workers
//	go run . -cluster -server ../target/dist/keelson -run heartbeats -profile                    # where the time goes
//
// Two runs with the same binary as a and b differ by 2 to 5 per cent (-rounds 9: by less); what is smaller than that is no result.
// -workers N gives each server N processors (taskset) and N workers: --worker-threads, of which Keelson has at least two, and
// GOMAXPROCS for kube-apiserver. Short of processors, the server competes with the clients: its CPU time is still its own.
//
// # Overload
//
// With -overload there are, for a minute, 19 users at a fixed rate of small requests, with watches; components that renew leases;
// and, from the first quarter on, one user with hundreds of lists of everything and writes at the same time. The table tells what
// the others notice: how many of their requests succeed, how long they take, which leases are late, and what memory it takes.
//
// # Control planes
//
// With -planes there are the commands of Keelson that take, restore, fork and migrate a store of 100 000 objects (-objects), the
// time that a fresh server takes to start, and a hundred idle control planes in one process: their memory and CPU time. -folder
// says on which filesystem; a fork shares blocks where that can.
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
	"strconv"
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
	cluster  clusterOptions
	overload bool
	planes   bool
	objects  int
}

// against is the label of the kube-apiserver that others are measured against.
const against = "kube-apiserver"

// binary is a server to measure.
type binary struct {
	label, path string
	// workers is how many threads and processors it has; 0 for as many as there are.
	workers int
}

// all servers; a kube-apiserver to measure against is the first.
func (o *options) all() []binary {
	if o.against == "" {
		return o.servers
	}
	return append([]binary{{label: against, path: o.against}}, o.servers...)
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
	measure := measureAll
	if o.cluster.run {
		measure = measureWhole
	}
	if o.overload {
		measure = measureOverload
	}
	if o.planes {
		measure = measurePlanes
	}
	if err := measure(ctx, o); err != nil {
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
			o.servers = append(o.servers, binary{label: label, path: path})
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
	flag.BoolVar(&o.cluster.run, "cluster", false, "measure the load of a cluster in miniature instead of the rows")
	flag.BoolVar(&o.overload, "overload", false, "measure for a minute what well-behaved users notice of one who wants everything, instead of the rows")
	flag.BoolVar(&o.planes, "planes", false, "measure what it takes to start, take, fork and move control planes of Keelson, and what idle ones cost, instead of the rows")
	flag.IntVar(&o.objects, "objects", 100_000, "-planes: how many objects are moved")
	long := flag.Bool("long", false, "the long form of -cluster: 1000 nodes, longer rounds, 1, 2 and as many workers as there are")
	flag.IntVar(&o.cluster.nodes, "nodes", 250, "-cluster: how many nodes, each with two connections, eight watches and ten pods")
	flag.Float64Var(&o.cluster.rate, "rate", 1, "-cluster: times the rates of requests of a cluster of 1000 nodes")
	flag.DurationVar(&o.cluster.during, "during", 3*time.Second, "-cluster: how long a round is")
	flag.IntVar(&o.cluster.rounds, "rounds", 3, "-cluster: how many rounds each load has")
	workers := flag.String("workers", "0", "-cluster: with how many workers, 0 for as many as there are; several separated by commas")
	flag.Parse()
	if *list {
		for _, row := range rows(o) {
			fmt.Println(row.name)
		}
		for _, m := range mixes {
			fmt.Println("-cluster:", m.name)
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
	if o.items, err = numbers(*items, 1); err != nil {
		return nil, fmt.Errorf("-items: %w", err)
	}
	if o.cluster.workers, err = numbers(*workers, 0); err != nil {
		return nil, fmt.Errorf("-workers: %w", err)
	}
	if *long {
		o.cluster.lengthen()
	}
	o.flags = strings.Fields(*flags)
	if len(o.servers) == 0 {
		o.servers = []binary{{label: "Keelson", path: "../target/dist/keelson"}}
	}
	return o, o.check()
}

// numbers are separated by commas and not below least.
func numbers(text string, least int) (all []int, err error) {
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < least {
			return nil, fmt.Errorf("%q is no number from %d", word, least)
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
	if c := o.cluster; c.nodes < endpointsOfSlice || c.rate <= 0 || c.during < time.Second || c.rounds < 1 {
		return fmt.Errorf("-cluster takes at least %d nodes, a rate, one round and a second for it", endpointsOfSlice)
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
	return errors.Join(failed, o.print(report.render()))
}

// measureWhole measures the load of a cluster.
func measureWhole(ctx context.Context, o *options) error {
	report, failed := measureCluster(ctx, o)
	return errors.Join(failed, o.print(report.render()))
}

// print prints a table, and writes it where it is to be written, too.
func (o *options) print(table string) error {
	fmt.Print(table)
	if o.markdown == "" {
		return nil
	}
	return os.WriteFile(o.markdown, []byte(table), 0o644)
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
