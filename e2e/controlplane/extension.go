package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"

	"keelson/e2e/internal/process"
)

// Extension is upstream's sample API server with an etcd of its own, on this machine.
type Extension struct {
	Port         int
	etcd, server *process.Process
}

// StartExtension starts the sample API server, which is the user at keelson and known by the host to its clients, and waits until
// it is ready.
func (p *Plane) StartExtension(ctx context.Context, user, host string) (*Extension, error) {
	ports, err := process.FreePorts(3)
	if err != nil {
		return nil, err
	}
	folder := p.file("extension-" + host)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	conf, _, err := p.authority.Kubeconfig(p.URL, user, user)
	if err != nil {
		return nil, err
	}
	cert := "extension-" + host + "/serving"
	if err := p.authority.Server(cert, host, host); err != nil {
		return nil, err
	}
	e := &Extension{Port: ports[0]}
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1]), fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	e.etcd, err = process.Start(folder+"/etcd.log", folder, p.bin.Etcd, "--name=extension", "--log-level=warn", "--data-dir="+folder+"/etcd",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=extension="+peer)
	if err != nil {
		return nil, err
	}
	if err := e.etcd.Await(ctx, func() bool { return process.Answers(client + "/readyz") }); err != nil {
		e.Stop()
		return nil, fmt.Errorf("the extension's etcd: %w", err)
	}
	e.server, err = process.Start(folder+"/server.log", folder, p.bin.Extension,
		"--kubeconfig="+conf, "--authentication-kubeconfig="+conf, "--authorization-kubeconfig="+conf, "--etcd-servers="+client,
		"--tls-cert-file="+p.file(cert+".crt"), "--tls-private-key-file="+p.file(cert+".key"),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", e.Port))
	if err == nil {
		err = e.server.Await(ctx, func() bool { return process.Answers(fmt.Sprintf("https://127.0.0.1:%d/readyz", e.Port)) })
	}
	if err != nil {
		e.Stop()
		return nil, fmt.Errorf("the extension: %w", err)
	}
	return e, nil
}

// Log is the end of the extension's log.
func (e *Extension) Log(lines int) string { return e.server.Tail(lines) }

// Stop ends the extension as the kernel would (SIGKILL).
func (e *Extension) Stop() {
	for _, child := range []*process.Process{e.server, e.etcd} {
		if child != nil {
			child.Kill()
		}
	}
}

// Serving makes a certificate of a server that is known by the hosts, which the authority of the cluster signs.
func (p *Plane) Serving(name string, hosts ...string) (tls.Certificate, error) {
	if err := p.authority.Server(name, hosts[0], hosts...); err != nil {
		return tls.Certificate{}, err
	}
	return tls.LoadX509KeyPair(p.file(name+".crt"), p.file(name+".key"))
}
