package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// planeLoaders is how many clients create objects at the same time.
	planeLoaders = 32
	// planeFilling is the size of the data of each object.
	planeFilling = 800
	// planesIdle is how many control planes share a process.
	planesIdle = 100
	// planesSettle and planesWatched are how long those are left alone, and then looked at.
	planesSettle, planesWatched = 20 * time.Second, 60 * time.Second
	// planeStarts is how many times a control plane is started.
	planeStarts = 5
)

// planeTable is the outcome: what was done, and how long it took or what it was.
type planeTable struct{ strings.Builder }

func (t *planeTable) row(what, figure string, args ...any) {
	figure = fmt.Sprintf(figure, args...)
	say("%s: %s", what, figure)
	fmt.Fprintf(t, "| %s | %s |\n", what, figure)
}

// plane is a server on a folder with a store of its own, with a client that is its administrator.
type plane struct {
	*process
	url    string
	client *http.Client
}

// startPlane starts a server and tells how long it took until it was ready.
func startPlane(ctx context.Context, binary, folder string, flags ...string) (*plane, time.Duration, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, 0, err
	}
	flags = append([]string{"--data-dir=" + filepath.Join(folder, "data"), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[0])}, flags...)
	began := time.Now()
	process, err := spawn(filepath.Join(folder, "server.log"), folder, binary, flags...)
	if err != nil {
		return nil, 0, err
	}
	p := &plane{process: process, url: fmt.Sprintf("https://127.0.0.1:%d", ports[0]), client: planeClient()}
	if err := process.await(ctx, p.ready); err != nil {
		process.stop()
		return nil, 0, err
	}
	took := time.Since(began)
	pki := filepath.Join(folder, "data/pki")
	admin, err := tls.LoadX509KeyPair(filepath.Join(pki, "admin.crt"), filepath.Join(pki, "admin.key"))
	if err != nil {
		process.stop()
		return nil, 0, err
	}
	p.client = planeClient(admin)
	return p, took, nil
}

func planeClient(certificates ...tls.Certificate) *http.Client {
	return &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}, // #nosec G402 it was just started
	}}
}

func (p *plane) ready() bool {
	answer, err := p.client.Get(p.url + "/readyz")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// fill creates so many ConfigMaps.
func (p *plane) fill(ctx context.Context, count int) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var loaders sync.WaitGroup
	for range planeLoaders {
		loaders.Go(func() {
			for i := next.Add(1); i <= int64(count) && ctx.Err() == nil; i = next.Add(1) {
				if err := p.create(ctx, i); err != nil {
					stop(err)
				}
			}
		})
	}
	loaders.Wait()
	return context.Cause(ctx)
}

func (p *plane) create(ctx context.Context, i int64) error {
	body := fmt.Sprintf(`{"metadata":{"name":"map-%07d"},"data":{"filling":"%s"}}`, i, strings.Repeat("x", planeFilling))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/api/v1/namespaces/default/configmaps", strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	return nil
}

// timed runs a command, and returns how long it took and what it said.
func timed(ctx context.Context, binary string, args ...string) (time.Duration, string, error) {
	began := time.Now()
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return time.Since(began), lines[len(lines)-1], err
}

// measurePlanes measures what the commands take that move control planes, and what idle ones cost.
func measurePlanes(ctx context.Context, o *options) error {
	table := &planeTable{}
	for _, server := range o.servers {
		fmt.Fprintf(table, "\n### %s\n\n| what | figure |\n| --- | --- |\n", server.label)
		binary, err := filepath.Abs(server.path)
		if err != nil {
			return err
		}
		folder, err := os.MkdirTemp(o.folder, "keelson-planes-")
		if err != nil {
			return err
		}
		err = errors.Join(planeStartTimes(ctx, binary, folder, table), planeMoves(ctx, o, binary, folder, table), planeHost(ctx, binary, folder, table))
		if err = errors.Join(err, os.RemoveAll(folder)); err != nil {
			return err
		}
	}
	fmt.Print(table)
	if o.markdown != "" {
		return os.WriteFile(o.markdown, []byte(table.String()), 0o644)
	}
	return nil
}

// planeStartTimes starts servers that have nothing yet.
func planeStartTimes(ctx context.Context, binary, folder string, table *planeTable) error {
	for _, medium := range []struct {
		name  string
		flags []string
	}{{"on disk", nil}, {"in memory", []string{"--in-memory"}}} {
		var least time.Duration
		for i := range planeStarts {
			at := filepath.Join(folder, fmt.Sprintf("fresh-%s-%d", strings.ReplaceAll(medium.name, " ", "-"), i))
			if err := os.Mkdir(at, 0o700); err != nil {
				return err
			}
			p, took, err := startPlane(ctx, binary, at, medium.flags...)
			if err != nil {
				return err
			}
			p.stop()
			if i == 0 || took < least {
				least = took
			}
		}
		table.row("start of a fresh plane "+medium.name+", from exec to ready, the best of a few", "%.0f ms", 1000*least.Seconds())
	}
	return nil
}

// planeMoves takes, restores, forks and migrates a store.
func planeMoves(ctx context.Context, o *options, binary, folder string, table *planeTable) error {
	at := filepath.Join(folder, "full")
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	p, _, err := startPlane(ctx, binary, at, "--disable-admission-plugins=ServiceAccount")
	if err != nil {
		return err
	}
	defer func() { p.stop() }()
	began := time.Now()
	if err := p.fill(ctx, o.objects); err != nil {
		return err
	}
	table.row(fmt.Sprintf("creating %d ConfigMaps of 1 kB by %d clients", o.objects, planeLoaders), "%.1f s", time.Since(began).Seconds())
	data, snapshot := filepath.Join(at, "data"), filepath.Join(folder, "a.snapshot")
	restored, forked, back := filepath.Join(folder, "restored"), filepath.Join(folder, "fork/data"), filepath.Join(folder, "back")
	etcd, err := freePorts(2)
	if err != nil {
		return err
	}
	url := fmt.Sprintf("http://127.0.0.1:%d", etcd[0])
	run := func(what string, args ...string) {
		if err != nil {
			return
		}
		var took time.Duration
		var said string
		if took, said, err = timed(ctx, binary, args...); err == nil {
			table.row(what, "%.2f s (%s)", took.Seconds(), strings.ReplaceAll(said, folder, ""))
		}
	}
	run("snapshot save, while it serves", "snapshot", "save", snapshot, "--data-dir="+data)
	run("snapshot status", "snapshot", "status", snapshot, "--output=json")
	run("snapshot restore", "snapshot", "restore", snapshot, "--data-dir="+restored)
	run("fork, while it serves", "fork", data, forked)
	if err != nil {
		return err
	}
	fork, took, err := startPlane(ctx, binary, filepath.Dir(forked))
	if err != nil {
		return err
	}
	fork.stop()
	table.row("start of the fork, until all its objects are cached", "%.0f ms", 1000*took.Seconds())
	p.stop()
	server, err := spawn(filepath.Join(folder, "etcd.log"), folder, o.etcd, "--data-dir="+filepath.Join(folder, "etcd"), "--listen-client-urls="+url,
		"--advertise-client-urls="+url, fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", etcd[1]), "--quota-backend-bytes=8589934592")
	if err != nil {
		return err
	}
	defer server.stop()
	if err := server.await(ctx, func() bool {
		answer, err := http.Get(url + "/health")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil && answer.StatusCode == http.StatusOK
	}); err != nil {
		return err
	}
	run("migrate to etcd, with the comparison of each object", "migrate", data, url)
	run("migrate from etcd, with the comparison of each object", "migrate", url, back)
	return err
}

// planeHost looks at many idle control planes in one process.
func planeHost(ctx context.Context, binary, folder string, table *planeTable) error {
	first, err := freePorts(1)
	if err != nil {
		return err
	}
	names := make([]string, planesIdle)
	for i := range names {
		names[i] = fmt.Sprintf("p%03d", i)
	}
	log := filepath.Join(folder, "host.log")
	began := time.Now()
	host, err := spawn(log, folder, binary, "host", filepath.Join(folder, "planes"), "--planes="+strings.Join(names, ","),
		fmt.Sprintf("--first-port=%d", first[0]), "--", "--bind-address=127.0.0.1")
	if err != nil {
		return err
	}
	defer host.stop()
	told := []byte("control planes are ready")
	if err := host.await(ctx, func() bool {
		text, _ := os.ReadFile(log)
		return bytes.Contains(text, told)
	}); err != nil {
		return err
	}
	took := time.Since(began)
	table.row(fmt.Sprintf("start of %d planes in one process", planesIdle), "%.1f s (%.0f ms each)", took.Seconds(), 1000*took.Seconds()/planesIdle)
	sleep(ctx, planesSettle)
	before, err := host.cpu()
	if err != nil {
		return err
	}
	sleep(ctx, planesWatched)
	after, err := host.cpu()
	if err != nil {
		return err
	}
	held, err := host.memory()
	if err != nil {
		return err
	}
	table.row("resident memory of them, idle", "%d MB (%.1f MB each)", held.resident>>20, float64(held.resident>>20)/planesIdle)
	table.row("CPU of them, idle", "%.2f %% of a core", 100*(after-before).Seconds()/planesWatched.Seconds())
	return ctx.Err()
}

func sleep(ctx context.Context, during time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(during):
	}
}
