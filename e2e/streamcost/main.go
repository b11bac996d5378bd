// Command streamcost measures what streams to a node cost the server: a long stream of bytes in both directions, and many streams in
// which nothing happens. `go run ./streamcost -server A=PATH -server B=PATH` compares servers that take the flags of kube-apiserver, and
// prints a table in Markdown.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"

	"keelson/e2e/controlplane"
)

// servers are the flags -server NAME=PATH.
type servers []string

func (s *servers) String() string { return strings.Join(*s, " ") }

func (s *servers) Set(text string) error {
	*s = append(*s, text)
	return nil
}

var (
	etcd     = flag.String("etcd", "../.tools/bin/etcd", "the etcd binary")
	bytes    = flag.Int64("bytes", 1<<30, "the length of the stream")
	idle     = flag.Int("idle", 1000, "how many streams nothing happens in")
	only     = flag.String("run", "", "only the ways whose name matches this expression")
	idleTime = flag.Duration("idle-time", 20*time.Second, "how long nothing happens")
)

// way is how the streams get to the kubelet.
type way struct {
	name       string
	webSockets bool // the client's protocol
	kubelet    bool // whether the kubelet speaks WebSocket
}

var ways = []way{
	{"WebSocket to SPDY", true, false},
	{"WebSocket through", true, true},
	{"SPDY through", false, false},
}

func main() {
	var all servers
	flag.Var(&all, "server", "NAME=PATH of a server, several times")
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	costs := &table{}
	for _, one := range all {
		name, path, _ := strings.Cut(one, "=")
		costs.servers = append(costs.servers, name)
		if err := measure(name, path, costs); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			defer os.Exit(1)
		}
	}
	costs.print(os.Stdout)
}

// bench is a server with a pod on a kubelet of each kind.
type bench struct {
	name   string
	plane  *controlplane.Plane
	config *rest.Config
	client kubernetes.Interface
	costs  *table
}

func measure(name, path string, costs *table) error {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "streamcost-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	abs := func(path string) string {
		full, _ := filepath.Abs(path)
		return full
	}
	plane, err := controlplane.New(controlplane.Binaries{Keelson: abs(path), Etcd: abs(*etcd)}, folder, "etcd")
	if err != nil {
		return err
	}
	defer plane.Stop()
	if err := errors.Join(plane.StartStore(ctx), plane.StartServer(ctx), plane.Bootstrap(ctx)); err != nil {
		return err
	}
	config := rest.CopyConfig(plane.Admin)
	config.QPS, config.Burst = -1, 0
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	b := &bench{name, plane, config, client, costs}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, kubelet := range []bool{true, false} {
		if err := b.addPod(ctx, kubelet); err != nil {
			return err
		}
	}
	var failed []error
	chosen := slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return !regexp.MustCompile(*only).MatchString(w.name) })
	for _, w := range chosen {
		failed = append(failed, b.long(ctx, w, true), b.long(ctx, w, false))
	}
	for _, w := range chosen {
		failed = append(failed, b.still(ctx, w))
	}
	return errors.Join(failed...)
}

func podName(kubelet bool) string { return fmt.Sprintf("pod-%v", kubelet) }

func (b *bench) addPod(ctx context.Context, kubelet bool) error {
	node, err := b.plane.ServingNode(kubelet)
	if err != nil {
		return err
	}
	no := false
	pods := b.client.CoreV1().Pods("default")
	_, err = pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName(kubelet)},
		Spec: corev1.PodSpec{
			NodeName: node.Name, HostNetwork: true, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "c", Image: "e2e/app:1"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, time.Second/10, time.Minute, true, func(ctx context.Context) (bool, error) {
		pod, err := pods.Get(ctx, podName(kubelet), metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, nil
	})
}

// exec runs a command with streams.
func (b *bench) exec(ctx context.Context, w way, in io.Reader, out io.Writer, command ...string) error {
	url := b.client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(podName(w.kubelet)).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdin: in != nil, Stdout: out != nil}, scheme.ParameterCodec).URL()
	var executor remotecommand.Executor
	var err error
	if w.webSockets {
		executor, err = remotecommand.NewWebSocketExecutor(b.config, "GET", url.String())
	} else {
		executor, err = remotecommand.NewSPDYExecutor(b.config, "POST", url)
	}
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out})
}

// counter counts what is written to it.
type counter struct{ n atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// zeros are as many zeros.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	z.left -= n
	return int(n), nil
}

// long measures one long stream out of a container, or into it.
func (b *bench) long(ctx context.Context, w way, outward bool) error {
	before, begun := b.plane.ServerUsage(), time.Now()
	peak := b.watchMemory()
	var moved int64
	var err error
	direction := "out"
	if outward {
		var all counter
		err = b.exec(ctx, w, nil, &all, "head", "-c", fmt.Sprint(*bytes), "/dev/zero")
		moved = all.n.Load()
	} else {
		direction = "in"
		var all counter
		var said strings.Builder
		err = b.exec(ctx, w, &zeros{*bytes}, io.MultiWriter(&all, &said), "wc", "-c")
		_, _ = fmt.Sscan(said.String(), &moved)
	}
	took, after := time.Since(begun), b.plane.ServerUsage()
	memory := peak()
	if err != nil || moved != *bytes {
		return fmt.Errorf("%s, %s: %d of %d bytes: %v", w.name, direction, moved, *bytes, err)
	}
	of := fmt.Sprintf("%d MB %s", moved>>20, direction)
	b.note(w, of+", time", "%.2f s", took.Seconds())
	b.note(w, of+", CPU time", "%.2f s", (after.CPU - before.CPU).Seconds())
	b.note(w, of+", memory at most", "%d MB", memory>>20)
	return nil
}

// note puts a figure into the table.
func (b *bench) note(w way, measure, format string, value any) {
	b.costs.add(w.name, measure, b.name, fmt.Sprintf(format, value))
}

// watchMemory returns what tells the most memory that the server has had since.
func (b *bench) watchMemory() func() int64 {
	done, most := make(chan struct{}), make(chan int64)
	go func() {
		var peak int64
		for {
			peak = max(peak, b.plane.ServerUsage().Memory)
			select {
			case <-done:
				most <- peak
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() int64 {
		close(done)
		return <-most
	}
}

// ready tells when the first bytes have come.
type ready struct {
	once sync.Once
	done func()
}

func (r *ready) Write(p []byte) (int, error) {
	r.once.Do(r.done)
	return len(p), nil
}

// still measures streams in which nothing happens once they are there.
func (b *bench) still(ctx context.Context, w way) error {
	before := b.plane.ServerUsage()
	begun := time.Now()
	var open, ended sync.WaitGroup
	var failed atomic.Pointer[error]
	var ends []*io.PipeWriter
	seats := make(chan struct{}, 20)
	for range *idle {
		reader, writer := io.Pipe()
		ends = append(ends, writer)
		open.Add(1)
		ended.Add(1)
		seats <- struct{}{}
		go func() {
			defer ended.Done()
			first := &ready{done: func() {
				<-seats
				open.Done()
			}}
			if err := b.exec(ctx, w, reader, first, "sh", "-c", "echo; exec cat"); err != nil {
				failed.Store(&err)
			}
			first.once.Do(first.done)
		}()
	}
	open.Wait()
	opened, full := time.Since(begun), b.plane.ServerUsage()
	time.Sleep(*idleTime)
	later := b.plane.ServerUsage()
	for _, end := range ends {
		_ = end.Close()
	}
	ended.Wait()
	time.Sleep(2 * time.Second)
	after := b.plane.ServerUsage()
	if err := failed.Load(); err != nil {
		return fmt.Errorf("%s: %w", w.name, *err)
	}
	of := fmt.Sprintf("%d idle streams", *idle)
	b.note(w, of+", time to open them", "%.2f s", opened.Seconds())
	b.note(w, of+", CPU time to open them", "%.2f s", (full.CPU - before.CPU).Seconds())
	b.note(w, fmt.Sprintf("%s, CPU time of %v", of, *idleTime), "%.3f s", (later.CPU - full.CPU).Seconds())
	b.note(w, of+", memory of each", "%.1f kB", float64(later.Memory-before.Memory)/1024/float64(*idle))
	b.note(w, of+", memory after them", "%d MB", after.Memory>>20)
	return nil
}
