package controlplane

import (
	"errors"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"

	"keelson/e2e/internal/hollow"
	"keelson/e2e/internal/kubelet"
)

// ServingNode returns the node whose kubelet serves logs and streams, from processes of this machine. There are two, started when
// they are first asked for: one speaks WebSocket itself, the other refuses it. Only pods that name the node run there.
func (p *Plane) ServingNode(webSockets bool) (*hollow.Node, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if node := p.serving[webSockets]; node != nil {
		return node, nil
	}
	address, err := ownAddress()
	if err != nil {
		return nil, err
	}
	p.count++
	name := fmt.Sprintf("serving-%d", p.count)
	_, config, err := p.authority.Kubeconfig(p.URL, "kubelet-"+name, "system:node:"+name, "system:nodes")
	if err != nil {
		return nil, err
	}
	if err := p.authority.Server("kubelet-server-"+name, "system:node:"+name, address); err != nil {
		return nil, err
	}
	node, err := p.join(config, name, hollow.Options{
		Address: address,
		Taints:  []corev1.Taint{{Key: "e2e.keelson/serving", Effect: corev1.TaintEffectNoSchedule}},
		Kubelet: &kubelet.Options{
			ClientCA: p.file("ca.crt"), Cert: p.file("kubelet-server-" + name + ".crt"), Key: p.file("kubelet-server-" + name + ".key"),
			Folder: p.file(name), WebSockets: webSockets,
		},
	})
	if err == nil {
		p.serving[webSockets] = node
	}
	return node, err
}

// ownAddress is one of this machine that others could reach: the server proxies to no other.
func ownAddress() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.IsGlobalUnicast() && network.IP.To4() != nil {
			return network.IP.String(), nil
		}
	}
	return "", errors.New("this machine has no address but its loopback's, and others are not proxied to")
}
