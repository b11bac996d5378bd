package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"keelson/e2e/internal/process"
)

// cluster is a running keelson with its store, and a kubectl that is configured as the server's own output says.
type cluster struct {
	bin        tools
	folder     string
	store      string // "embedded" or "etcd"
	port       int
	etcdURL    string // empty on the embedded store
	etcd       *process.Process
	server     *process.Process
	kubeconfig string
	readyAfter time.Duration // how long the last start took
}

func startCluster(ctx context.Context, bin tools, folder, store string) (*cluster, error) {
	c := &cluster{bin: bin, folder: folder, store: store}
	ports, err := process.FreePorts(3)
	if err != nil {
		return nil, err
	}
	c.port = ports[0]
	switch store {
	case "embedded":
	case "etcd":
		c.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", ports[1])
		peers := fmt.Sprintf("http://127.0.0.1:%d", ports[2])
		c.etcd, err = process.Start(filepath.Join(folder, "etcd.log"), folder, bin.etcd, "--name=e2e", "--log-level=warn",
			"--data-dir="+filepath.Join(folder, "etcd"), "--listen-client-urls="+c.etcdURL, "--advertise-client-urls="+c.etcdURL,
			"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=e2e="+peers)
		if err != nil {
			return nil, err
		}
		if err := c.etcd.Await(ctx, func() bool { return process.Answers(c.etcdURL + "/readyz") }); err != nil {
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
	if c.server, err = process.Start(filepath.Join(c.folder, "keelson.log"), c.folder, c.bin.keelson, args...); err != nil {
		return err
	}
	begin := time.Now()
	if err := c.server.Await(ctx, func() bool { return process.Answers(fmt.Sprintf("https://127.0.0.1:%d/readyz", c.port)) }); err != nil {
		return fmt.Errorf("keelson: %w", err)
	}
	c.readyAfter = time.Since(begin)
	found := nextLine.FindStringSubmatch(c.server.Output())
	if found == nil {
		return fmt.Errorf("keelson does not say which kubeconfig to use:\n%s", c.server.Tail(20))
	}
	if c.kubeconfig = found[1]; !filepath.IsAbs(c.kubeconfig) {
		c.kubeconfig = filepath.Join(c.folder, c.kubeconfig)
	}
	return nil
}

// memory is the resident memory of the server in MiB.
func (c *cluster) memory() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.server.Pid()))
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
	if err := c.server.Terminate(); err != nil {
		return err
	}
	return c.startServer(ctx)
}

func (c *cluster) stop() {
	for _, p := range []*process.Process{c.server, c.etcd} {
		if p != nil {
			p.Kill()
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
