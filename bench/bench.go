package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// bench is one server under measurement, with its store and nginx beside it.
type bench struct {
	ctx      context.Context
	options  *options
	binary   binary
	folder   string
	keys     *keys
	etcd     *process // nil on the embedded store
	etcdURL  string
	server   *process
	url      string
	nginx    *process
	nginxURL string
	// readyAfter is how long the server took to be ready on a new store.
	readyAfter time.Duration
	// readyCPU is the CPU time that its latest start took, until it was ready.
	readyCPU time.Duration
	clients  []*http.Client
	nginxes  []*http.Client
	// published counts the bodies that nginx serves.
	published int
	// pods are how many were created.
	pods int
}

// start brings everything up, in a folder of its own.
func start(ctx context.Context, o *options, server binary) (b *bench, err error) {
	b = &bench{ctx: ctx, options: o, binary: server}
	defer func() {
		if err != nil {
			b.stop()
		}
	}()
	if b.folder, err = os.MkdirTemp(o.folder, "keelson-bench-"); err != nil {
		return b, err
	}
	if b.keys, err = makeKeys(b.folder); err != nil {
		return b, err
	}
	ports, err := freePorts(4)
	if err != nil {
		return b, err
	}
	b.url, b.nginxURL = fmt.Sprintf("https://127.0.0.1:%d", ports[0]), fmt.Sprintf("https://127.0.0.1:%d", ports[1])
	if o.store == "etcd" {
		if err := b.startEtcd(ports[2], ports[3]); err != nil {
			return b, err
		}
	}
	if !o.cluster.run && !o.overload {
		if err := b.startNginx(ports[1]); err != nil {
			return b, err
		}
	}
	begin := time.Now()
	if err := b.startServer(); err != nil {
		return b, err
	}
	b.readyAfter = time.Since(begin)
	say("%s is ready (%s, %s)", server.label, server.path, strings.TrimPrefix(b.folder, "/"))
	for range connections {
		b.clients = append(b.clients, b.keys.client())
		b.nginxes = append(b.nginxes, b.keys.client())
	}
	return b, nil
}

func (b *bench) stop() {
	b.server.stop()
	b.nginx.stop()
	b.etcd.stop()
	if b.folder != "" {
		_ = os.RemoveAll(b.folder)
	}
}

func (b *bench) path(name string) string { return filepath.Join(b.folder, name) }

func (b *bench) startEtcd(client, peer int) (err error) {
	b.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", client)
	peers := fmt.Sprintf("http://127.0.0.1:%d", peer)
	b.etcd, err = spawn(b.path("etcd.log"), b.folder, b.options.etcd, "--name=bench", "--log-level=warn", "--data-dir="+b.path("etcd"),
		"--listen-client-urls="+b.etcdURL, "--advertise-client-urls="+b.etcdURL, "--listen-peer-urls="+peers,
		"--initial-advertise-peer-urls="+peers, "--initial-cluster=bench="+peers, "--quota-backend-bytes=8589934592")
	if err != nil {
		return err
	}
	return b.etcd.await(b.ctx, func() bool { return answers(http.DefaultClient, b.etcdURL+"/readyz") })
}

// startServer starts the server as kubeadm's static pod does, and waits until it is ready.
func (b *bench) startServer() (err error) {
	port := b.url[strings.LastIndex(b.url, ":")+1:]
	args := []string{
		"--advertise-address=10.0.0.1", "--bind-address=127.0.0.1", "--secure-port=" + port, "--allow-privileged=true",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth=true",
		"--client-ca-file=" + b.path("ca.crt"), "--tls-cert-file=" + b.path("server.crt"), "--tls-private-key-file=" + b.path("server.key"),
		"--kubelet-client-certificate=" + b.path("admin.crt"), "--kubelet-client-key=" + b.path("admin.key"),
		"--proxy-client-cert-file=" + b.path("front-proxy.crt"), "--proxy-client-key-file=" + b.path("front-proxy.key"),
		"--requestheader-client-ca-file=" + b.path("ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + b.path("accounts.key"), "--service-account-signing-key-file=" + b.path("accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
	}
	if b.etcd != nil {
		args = append(args, "--etcd-servers="+b.etcdURL)
	} else {
		args = append(args, "--data-dir="+b.path("data"))
	}
	command := b.binary.command(append(args, b.options.flags...))
	if b.server, err = spawn(b.path("server.log"), b.folder, command[0], command[1:]...); err != nil {
		return err
	}
	client := b.keys.client()
	defer client.CloseIdleConnections()
	err = b.server.await(b.ctx, func() bool {
		// A connection that is refused costs less than a client's handshake.
		tcp, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return false
		}
		tcp.Close()
		return answers(client, b.url+"/readyz")
	})
	if err != nil {
		return err
	}
	b.readyCPU, err = b.server.cpu()
	return err
}

// leastThreads is the lowest --worker-threads that Keelson takes.
const leastThreads = 2

// command starts the server with the workers that it is to have: kube-apiserver by Go's own variable, others by their flag, and all
// on so many processors only. All three tools replace themselves, so that it is the server's process that is measured.
func (s binary) command(args []string) []string {
	if s.workers == 0 {
		return append([]string{s.path}, args...)
	}
	if s.label != against {
		args = append(args, fmt.Sprintf("--worker-threads=%d", max(s.workers, leastThreads)))
	}
	pinned := []string{"taskset", "-c", fmt.Sprintf("0-%d", s.workers-1), "env", fmt.Sprintf("GOMAXPROCS=%d", s.workers), s.path}
	return append(pinned, args...)
}

// restart stops the server and starts it again on the same store.
func (b *bench) restart() (time.Duration, error) {
	b.server.stop()
	for _, client := range b.clients {
		client.CloseIdleConnections()
	}
	begin := time.Now()
	err := b.startServer()
	return time.Since(begin), err
}

// nginxConfig is nginx as usual (sendfile, HTTP/2 over TLS), but in one process, without a log of requests.
const nginxConfig = `
daemon off; master_process off; pid %[1]s/nginx.pid; error_log %[1]s/nginx-errors.log warn;
events { worker_connections 1024; }
http {
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 10000000; default_type application/json;
  client_body_temp_path %[1]s/nginx-body; proxy_temp_path %[1]s/nginx-proxy; fastcgi_temp_path %[1]s/nginx-fastcgi;
  uwsgi_temp_path %[1]s/nginx-uwsgi; scgi_temp_path %[1]s/nginx-scgi;
  server {
    listen 127.0.0.1:%[2]d ssl http2; root %[1]s/www;
    ssl_certificate server.crt; ssl_certificate_key server.key; ssl_protocols TLSv1.2 TLSv1.3;
  }
}
`

func (b *bench) startNginx(port int) error {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		if nginx = "/usr/sbin/nginx"; !exists(nginx) {
			return fmt.Errorf("nginx is missing, which the server is compared with (apt-get install nginx-light)")
		}
	}
	if err := os.Mkdir(b.path("www"), 0o755); err != nil {
		return err
	}
	// If it gives up its rights, it still has to read the files.
	if err := os.Chmod(b.folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(b.path("nginx.conf"), fmt.Appendf(nil, nginxConfig, b.folder, port), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(b.path("www/ready"), []byte("ok"), 0o644); err != nil {
		return err
	}
	if b.nginx, err = spawn(b.path("nginx.log"), b.folder, nginx, "-p", b.folder, "-c", b.path("nginx.conf")); err != nil {
		return err
	}
	client := b.keys.client()
	defer client.CloseIdleConnections()
	return b.nginx.await(b.ctx, func() bool { return answers(client, b.nginxURL+"/ready") })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func answers(client *http.Client, url string) bool {
	response, err := client.Get(url)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// handshake tells what a connection to the server is encrypted with.
func (b *bench) handshake(url string) string {
	connection, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), b.keys.config())
	if err != nil {
		return err.Error()
	}
	defer connection.Close()
	return tls.CipherSuiteName(connection.ConnectionState().CipherSuite)
}
