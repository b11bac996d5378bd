package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	// startTime is how long a server may take until it is ready; it takes a fraction of that.
	startTime = 30 * time.Second
	// stopTime is how long a server may take to stop when it is asked to.
	stopTime = 10 * time.Second
	// look is the time between two looks at something that is about to happen.
	look = 2 * time.Millisecond
)

// cluster is a running keelson with its store, and a kubectl that is configured as the server's own output says.
type cluster struct {
	bin        tools
	folder     string
	store      string // "embedded" or "etcd"
	port       int
	etcdURL    string // empty on the embedded store
	etcd       *process
	server     *process
	kubeconfig string
	readyAfter time.Duration // how long the last start took
}

func startCluster(ctx context.Context, bin tools, folder, store string) (*cluster, error) {
	c := &cluster{bin: bin, folder: folder, store: store}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	c.port = ports[0]
	switch store {
	case "embedded":
	case "etcd":
		c.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", ports[1])
		peers := fmt.Sprintf("http://127.0.0.1:%d", ports[2])
		c.etcd, err = start(filepath.Join(folder, "etcd.log"), folder, bin.etcd, "--name=e2e", "--log-level=warn",
			"--data-dir="+filepath.Join(folder, "etcd"), "--listen-client-urls="+c.etcdURL, "--advertise-client-urls="+c.etcdURL,
			"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=e2e="+peers)
		if err != nil {
			return nil, err
		}
		if err := c.etcd.await(ctx, func() bool { return answers(c.etcdURL + "/readyz") }); err != nil {
			c.stop()
			return nil, fmt.Errorf("etcd: %w", err)
		}
	default:
		return nil, fmt.Errorf("no store is called %q", store)
	}
	if err := c.startServer(ctx); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// nextLine is how the server's output tells which kubeconfig to use.
var nextLine = regexp.MustCompile(`(?:--kubeconfig[= ]|KUBECONFIG=)(\S+)`)

// startServer starts keelson with hardly a flag, as make run does, and waits until it is ready.
func (c *cluster) startServer(ctx context.Context) error {
	args := []string{fmt.Sprintf("--secure-port=%d", c.port), "--bind-address=127.0.0.1"}
	if c.etcdURL != "" {
		args = append(args, "--etcd-servers="+c.etcdURL)
	}
	var err error
	if c.server, err = start(filepath.Join(c.folder, "keelson.log"), c.folder, c.bin.keelson, args...); err != nil {
		return err
	}
	begin := time.Now()
	if err := c.server.await(ctx, func() bool { return answers(fmt.Sprintf("https://127.0.0.1:%d/readyz", c.port)) }); err != nil {
		return fmt.Errorf("keelson: %w", err)
	}
	c.readyAfter = time.Since(begin)
	found := nextLine.FindStringSubmatch(c.server.output())
	if found == nil {
		return fmt.Errorf("keelson does not say which kubeconfig to use:\n%s", c.server.tail(20))
	}
	if c.kubeconfig = found[1]; !filepath.IsAbs(c.kubeconfig) {
		c.kubeconfig = filepath.Join(c.folder, c.kubeconfig)
	}
	return nil
}

// memory is the resident memory of the server in MiB.
func (c *cluster) memory() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.server.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	var kib float64
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	_, err = fmt.Sscan(rest, &kib)
	return kib / 1024, err
}

// restartServer asks the server to stop, and starts another on the same data.
func (c *cluster) restartServer(ctx context.Context) error {
	if err := c.server.terminate(); err != nil {
		return err
	}
	return c.startServer(ctx)
}

func (c *cluster) stop() {
	for _, p := range []*process{c.server, c.etcd} {
		if p != nil {
			p.kill()
		}
	}
}

// call is one run of kubectl.
type call struct {
	args  []string
	stdin string
	env   []string
}

// command is kubectl with the cluster's kubeconfig and a home (and cache) of its own.
func (c *cluster) command(ctx context.Context, in call) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.bin.kubectl, in.args...)
	cmd.Dir = c.folder
	cmd.Stdin = strings.NewReader(in.stdin)
	cmd.Env = append([]string{"HOME=" + c.folder, "KUBECONFIG=" + c.kubeconfig, "PATH=" + os.Getenv("PATH"), "TERM=dumb"}, in.env...)
	return cmd
}

// callTime bounds one run of kubectl.
const callTime = 60 * time.Second

// kubectl runs it and returns what it printed, on both channels.
func (c *cluster) kubectl(ctx context.Context, in call) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	out, err := c.command(ctx, in).CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return string(out), err
}

// process is a child with its output in a file.
type process struct {
	cmd  *exec.Cmd
	log  string
	from int64 // where its output starts in the file
	done chan struct{}
}

func start(log, dir, bin string, args ...string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(bin, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, file, file
	// The child dies with us, however we die.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, log: log, from: info.Size(), done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// await waits until ready holds; the error has the end of the output.
func (p *process) await(ctx context.Context, ready func() bool) error {
	deadline := time.After(startTime)
	for !ready() {
		select {
		case <-p.done:
			return fmt.Errorf("it stopped: %v\n%s", p.cmd.ProcessState, p.tail(20))
		case <-deadline:
			return fmt.Errorf("not ready after %v\n%s", startTime, p.tail(20))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(look):
		}
	}
	return nil
}

// terminate asks it to stop and waits until it has, which must be with success.
func (p *process) terminate() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-time.After(stopTime):
		return fmt.Errorf("it did not stop within %v of SIGTERM", stopTime)
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("it stopped with %v after SIGTERM", p.cmd.ProcessState)
	}
	return nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil || int64(len(text)) < p.from {
		return ""
	}
	return string(text[p.from:])
}

func (p *process) tail(lines int) string {
	all := strings.Split(strings.TrimRight(p.output(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// freePorts finds ports that nothing listens on now.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// probe trusts any server: it only asks whether one is there.
var probe = http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

func answers(url string) bool {
	response, err := probe.Get(url)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// stored is the value that etcd has under a key, read through its JSON gateway.
func (c *cluster) stored(key string) ([]byte, error) {
	var answer struct {
		Kvs []struct{ Value []byte }
	}
	request, err := json.Marshal(map[string][]byte{"key": []byte(key)})
	if err != nil {
		return nil, err
	}
	response, err := http.Post(c.etcdURL+"/v3/kv/range", "application/json", bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if len(answer.Kvs) != 1 {
		return nil, errors.New("etcd has no key " + key)
	}
	return answer.Kvs[0].Value, nil
}
