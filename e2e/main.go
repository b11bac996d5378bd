// Command e2e drives a real kubectl against keelson, first on the embedded store and then on a real etcd, and checks what
// it prints. Each check takes one line; the exit status is 1 where one failed. Nothing it starts outlives it.
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
)

// tools are the binaries under test and those that test them.
type tools struct {
	keelson, kubectl, etcd string
}

func main() {
	var bin tools
	flag.StringVar(&bin.keelson, "keelson", "../target/release/keelson", "the server")
	flag.StringVar(&bin.kubectl, "kubectl", "../.tools/bin/kubectl", "the client")
	flag.StringVar(&bin.etcd, "etcd", "../.tools/bin/etcd", "the store")
	stores := flag.String("stores", "embedded,etcd", "which stores to run on")
	only := flag.String("run", "", "only the checks whose name matches this expression (some need others before them)")
	keep := flag.Bool("keep", false, "keep the servers' folders and say where they are")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed := 0
	for _, store := range strings.Split(*stores, ",") {
		n, err := runOn(ctx, bin, store, regexp.MustCompile(*only), *keep)
		if err != nil {
			fmt.Printf("FAIL %-9s %v\n", store, err)
			n++
		}
		failed += n
	}
	if failed > 0 {
		fmt.Printf("%d failed\n", failed)
		os.Exit(1)
	}
}

// runOn runs every check on one store and counts those that failed. The error says why they could not be run.
func runOn(ctx context.Context, bin tools, store string, only *regexp.Regexp, keep bool) (failed int, err error) {
	for _, path := range []*string{&bin.keelson, &bin.kubectl, &bin.etcd} {
		if *path, err = filepath.Abs(*path); err != nil {
			return 0, err
		}
		if _, err := os.Stat(*path); err != nil {
			return 0, fmt.Errorf("%w (make e2e builds it)", err)
		}
	}
	folder, err := os.MkdirTemp("", "keelson-e2e-")
	if err != nil {
		return 0, err
	}
	if keep {
		fmt.Printf("     %-9s in %s\n", store, folder)
	} else {
		defer os.RemoveAll(folder)
	}

	cluster, err := startCluster(ctx, bin, folder, store)
	if err != nil {
		return 0, err
	}
	defer cluster.stop()

	passed := 0
	for _, check := range checks {
		if !only.MatchString(check.name) {
			continue
		}
		start := time.Now()
		if err := check.do(ctx, cluster); err != nil {
			failed++
			fmt.Printf("FAIL %-9s %6.0f ms  %s\n     %s\n", store, ms(start), check.name, strings.ReplaceAll(err.Error(), "\n", "\n     "))
			if errors.Is(ctx.Err(), context.Canceled) {
				return failed, ctx.Err()
			}
			continue
		}
		passed++
		fmt.Printf("ok   %-9s %6.0f ms  %s\n", store, ms(start), check.name)
	}
	fmt.Printf("     %-9s %d of %d checks passed\n", store, passed, passed+failed)
	if failed > 0 {
		fmt.Printf("the end of the server's log:\n%s\n", cluster.server.tail(30))
	}
	return failed, nil
}

func ms(start time.Time) float64 { return float64(time.Since(start).Microseconds()) / 1000 }
