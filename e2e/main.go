// Command e2e drives keelson, first on the embedded store and then on a real etcd. The suite kubectl starts it with hardly a flag
// and checks what a real kubectl prints; the suite cluster starts it as kubeadm does, with the real controller manager and
// scheduler and with hollow nodes, and checks that such a cluster lives, also when parts of it fail. Each check takes one line;
// the exit status is 1 where one failed. Nothing it starts outlives it.
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
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	controllerlog "sigs.k8s.io/controller-runtime/pkg/log"

	"keelson/e2e/conformance"
	"keelson/e2e/controlplane"
)

// tools are the binaries under test and those that test them.
type tools struct {
	keelson, kubectl, etcd, controllers, scheduler, extension string
}

// run is one suite on one store.
type run struct {
	bin    tools
	folder string
	store  string
	only   *regexp.Regexp

	start          time.Time
	passed, failed int
}

// suites by name, in the order in which they run.
var suites = []struct {
	name string
	do   func(context.Context, *run) error
}{
	{"kubectl", kubectlSuite},
	{"cluster", clusterSuite},
}

func main() {
	var bin tools
	flag.StringVar(&bin.keelson, "keelson", "../target/dist/keelson", "the server")
	flag.StringVar(&bin.kubectl, "kubectl", "../.tools/bin/kubectl", "the client")
	flag.StringVar(&bin.etcd, "etcd", "../.tools/bin/etcd", "the store")
	flag.StringVar(&bin.controllers, "kube-controller-manager", "../.tools/bin/kube-controller-manager", "the controllers")
	flag.StringVar(&bin.scheduler, "kube-scheduler", "../.tools/bin/kube-scheduler", "the scheduler")
	flag.StringVar(&bin.extension, "sample-apiserver", "../.tools/bin/sample-apiserver", "an extension API server")
	stores := flag.String("stores", "embedded,etcd", "which stores to run on")
	which := flag.String("suites", "kubectl,cluster", "which suites to run")
	only := flag.String("run", "", "only the checks whose name matches this expression (some need others before them)")
	keep := flag.Bool("keep", false, "keep the servers' folders and say where they are")
	flag.Parse()
	quiet()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed := 0
	for _, suite := range suites {
		for _, store := range strings.Split(*stores, ",") {
			if !strings.Contains(","+*which+",", ","+suite.name+",") {
				continue
			}
			r := &run{bin: bin, store: store, only: regexp.MustCompile(*only), start: time.Now()}
			if err := r.inFolder(*keep, func() error { return suite.do(ctx, r) }); err != nil {
				fmt.Printf("FAIL %-9s %v\n", store, err)
				r.failed++
			}
			fmt.Printf("     %-9s %s: %d of %d checks passed in %.0f s\n", store, suite.name, r.passed, r.passed+r.failed, time.Since(r.start).Seconds())
			failed += r.failed
		}
	}
	if failed > 0 {
		fmt.Printf("%d failed\n", failed)
		os.Exit(1)
	}
}

// quiet keeps what client libraries log of lost connections out of the list of checks.
func quiet() {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("logtostderr", "false")
	_ = flags.Set("stderrthreshold", "FATAL")
	klog.SetOutput(discard{})
	controllerlog.SetLogger(klog.Background())
}

type discard struct{}

func (discard) Write(text []byte) (int, error) { return len(text), nil }

// inFolder does it with a folder of its own, which it removes unless it is to be kept.
func (r *run) inFolder(keep bool, do func() error) error {
	for _, path := range []*string{&r.bin.keelson, &r.bin.kubectl, &r.bin.etcd, &r.bin.controllers, &r.bin.scheduler, &r.bin.extension} {
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
		if _, err := os.Stat(*path); err != nil {
			return fmt.Errorf("%w (make e2e builds it)", err)
		}
	}
	var err error
	if r.folder, err = os.MkdirTemp("", "keelson-e2e-"); err != nil {
		return err
	}
	if keep {
		fmt.Printf("     %-9s in %s\n", r.store, r.folder)
	} else {
		defer os.RemoveAll(r.folder)
	}
	return do()
}

// tell prints how a check ended.
func (r *run) tell(name string, took time.Duration, err error) {
	if err != nil {
		r.failed++
		fmt.Printf("FAIL %-9s %6.0f ms  %s\n     %s\n", r.store, ms(took), name, strings.ReplaceAll(err.Error(), "\n", "\n     "))
		return
	}
	r.passed++
	fmt.Printf("ok   %-9s %6.0f ms  %s\n", r.store, ms(took), name)
}

func ms(took time.Duration) float64 { return float64(took.Microseconds()) / 1000 }

// kubectlSuite runs kubectl against a server that has the cluster for itself.
func kubectlSuite(ctx context.Context, r *run) error {
	cluster, err := startCluster(ctx, r.bin, r.folder, r.store)
	if err != nil {
		return err
	}
	defer cluster.stop()
	for _, check := range checks {
		if !r.only.MatchString(check.name) {
			continue
		}
		start := time.Now()
		err := check.do(ctx, cluster)
		r.tell(check.name, time.Since(start), err)
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
	}
	if r.failed > 0 {
		fmt.Printf("the end of the server's log:\n%s\n", cluster.server.Tail(30))
	}
	return nil
}

// firstNodes is how many nodes there are that all pods may run on.
const firstNodes = 3

// clusterSuite runs a control plane whose components and nodes are there before their server.
func clusterSuite(ctx context.Context, r *run) error {
	plane, err := controlplane.New(controlplane.Binaries{
		Keelson: r.bin.keelson, Etcd: r.bin.etcd, ControllerManager: r.bin.controllers, Scheduler: r.bin.scheduler,
		Extension: r.bin.extension,
	}, r.folder, r.store)
	if err != nil {
		return err
	}
	defer plane.Stop()
	start := time.Now()
	if err := plane.Start(ctx, firstNodes); err != nil {
		return err
	}
	r.tell("components and nodes that started before the server find it", time.Since(start), nil)
	err = conformance.Run(ctx, plane, r.bin.kubectl, r.only, func(result conformance.Result) {
		r.tell(result.Name, result.Time, result.Err)
		for _, note := range result.Notes {
			fmt.Printf("     %-9s            %s\n", r.store, note)
		}
	})
	if r.failed > 0 {
		fmt.Printf("the end of the server's log:\n%s\n%s", plane.ServerLog(30), plane.ComponentLogs(10))
	}
	return err
}
