// Package controlplane starts a control plane as kubeadm lays one out: etcd (or the embedded store), keelson in the place of
// kube-apiserver, the real kube-controller-manager and kube-scheduler, each with certificates of its own, and hollow nodes.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson/e2e/internal/hollow"
	"keelson/e2e/internal/pki"
	"keelson/e2e/internal/process"
)

const (
	serviceRange = "10.96.0.0/16"
	podRange     = "10.244.0.0/16"
	// advertised is what the endpoints of the kubernetes service say; loopback addresses are not allowed there.
	advertised = "10.0.0.254"
	// admins is kubeadm's group of administrators, who are so by a role binding.
	admins = "kubeadm:cluster-admins"
	// Joiners is the group of bootstrap tokens that may join nodes.
	Joiners = "system:bootstrappers:kubeadm:default-node-token"
	// nodeGrace is how long a node may be silent until it is not ready.
	nodeGrace = 6 * time.Second
	// compaction is how often the server has old revisions dropped; kube-apiserver's default is five minutes.
	compaction = 10 * time.Second
	// leaseTime, renewTime and retryTime are those of the components' leader election: a third of the defaults.
	leaseTime, renewTime, retryTime = 8 * time.Second, 6 * time.Second, time.Second
)

// Binaries are what the control plane is made of.
type Binaries struct {
	Keelson, Etcd, ControllerManager, Scheduler string
	// Extension is an extension API server, see StartExtension.
	Extension string
}

// Plane is a running control plane.
type Plane struct {
	// URL is where the server answers.
	URL string
	// Admin are the credentials of kubeadm's admin.conf, and Kubeconfig is that file.
	Admin      *rest.Config
	Kubeconfig string
	// Store is "embedded" or "etcd".
	Store string

	bin       Binaries
	folder    string
	super     *rest.Config // kubeadm's super-admin.conf
	ports     struct{ server, etcd, etcdPeer, etcdMetrics, controllers, scheduler int }
	authority *pki.Authority

	etcd, server           *process.Process
	controllers, scheduler *process.Keeper

	mu    sync.Mutex
	nodes map[string]*hollow.Node
	count int // of nodes ever
	// serving are the nodes whose kubelets serve, by whether they speak WebSocket.
	serving map[bool]*hollow.Node
}

// New lays out certificates and kubeconfig files in the folder; nothing runs yet.
func New(bin Binaries, folder, store string) (*Plane, error) {
	ports, err := process.FreePorts(6)
	if err != nil {
		return nil, err
	}
	p := &Plane{Store: store, bin: bin, folder: folder, nodes: map[string]*hollow.Node{}, serving: map[bool]*hollow.Node{}}
	p.ports.server, p.ports.etcd, p.ports.etcdPeer = ports[0], ports[1], ports[2]
	p.ports.etcdMetrics, p.ports.controllers, p.ports.scheduler = ports[3], ports[4], ports[5]
	p.URL = fmt.Sprintf("https://127.0.0.1:%d", p.ports.server)
	return p, p.certify()
}

// certify makes every certificate that kubeadm makes, under its names.
func (p *Plane) certify() error {
	dir := p.folder
	var err error
	if p.authority, err = pki.NewAuthority(dir, "ca", "kubernetes"); err != nil {
		return err
	}
	frontProxy, err := pki.NewAuthority(dir, "front-proxy-ca", "front-proxy-ca")
	if err != nil {
		return err
	}
	etcd, err := pki.NewAuthority(dir, "etcd/ca", "etcd-ca")
	if err != nil {
		return err
	}
	_, super, err := p.authority.Kubeconfig(p.URL, "super-admin", "kubernetes-super-admin", "system:masters")
	if err != nil {
		return err
	}
	if p.Kubeconfig, p.Admin, err = p.authority.Kubeconfig(p.URL, "admin", "kubernetes-admin", admins); err != nil {
		return err
	}
	p.super = super
	_, _, err = p.authority.Kubeconfig(p.URL, "controller-manager", "system:kube-controller-manager")
	_, _, err2 := p.authority.Kubeconfig(p.URL, "scheduler", "system:kube-scheduler")
	return errors.Join(err, err2,
		pki.SigningKeys(dir, "sa"),
		p.authority.Server("apiserver", "kube-apiserver", "127.0.0.1", "10.96.0.1", "localhost", "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local"),
		p.authority.Client("apiserver-kubelet-client", "kube-apiserver-kubelet-client", admins),
		frontProxy.Client("front-proxy-client", "front-proxy-client"),
		etcd.Server("etcd/server", "e2e", "127.0.0.1", "localhost"),
		etcd.Client("apiserver-etcd-client", "kube-apiserver-etcd-client"),
	)
}

func (p *Plane) file(name string) string { return filepath.Join(p.folder, name) }

// StartStore starts etcd, and waits until it answers. There is nothing to start on the embedded store.
func (p *Plane) StartStore(ctx context.Context) error {
	if p.Store == "embedded" {
		return nil
	}
	if p.Store != "etcd" {
		return fmt.Errorf("no store is called %q", p.Store)
	}
	client := fmt.Sprintf("https://127.0.0.1:%d", p.ports.etcd)
	peer := fmt.Sprintf("http://127.0.0.1:%d", p.ports.etcdPeer)
	var err error
	p.etcd, err = process.Start(p.file("etcd.log"), p.folder, p.bin.Etcd, "--name=e2e", "--log-level=warn",
		"--data-dir="+p.file("etcd-data"), "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=e2e="+peer,
		"--cert-file="+p.file("etcd/server.crt"), "--key-file="+p.file("etcd/server.key"),
		"--trusted-ca-file="+p.file("etcd/ca.crt"), "--client-cert-auth=true",
		// Its health is asked for without a certificate.
		fmt.Sprintf("--listen-metrics-urls=http://127.0.0.1:%d", p.ports.etcdMetrics))
	if err != nil {
		return err
	}
	if err := p.etcd.Await(ctx, func() bool {
		return process.Answers(fmt.Sprintf("http://127.0.0.1:%d/readyz", p.ports.etcdMetrics))
	}); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	return nil
}

// StartServer starts keelson with the flags of kubeadm's manifest, and waits until it is ready.
func (p *Plane) StartServer(ctx context.Context) error {
	args := []string{
		"--advertise-address=" + advertised,
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--client-ca-file=" + p.file("ca.crt"),
		"--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth=true",
		"--kubelet-certificate-authority=" + p.file("ca.crt"), // beside kubeadm's
		"--kubelet-client-certificate=" + p.file("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + p.file("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--proxy-client-cert-file=" + p.file("front-proxy-client.crt"),
		"--proxy-client-key-file=" + p.file("front-proxy-client.key"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-client-ca-file=" + p.file("front-proxy-ca.crt"),
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		fmt.Sprintf("--secure-port=%d", p.ports.server),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + p.file("sa.pub"),
		"--service-account-signing-key-file=" + p.file("sa.key"),
		"--service-cluster-ip-range=" + serviceRange,
		"--tls-cert-file=" + p.file("apiserver.crt"),
		"--tls-private-key-file=" + p.file("apiserver.key"),
		// Beside kubeadm's: this machine's own address, and a compaction that comes within the run.
		"--bind-address=127.0.0.1",
		"--etcd-compaction-interval=" + compaction.String(),
	}
	if p.Store == "etcd" {
		args = append(args,
			"--etcd-cafile="+p.file("etcd/ca.crt"),
			"--etcd-certfile="+p.file("apiserver-etcd-client.crt"),
			"--etcd-keyfile="+p.file("apiserver-etcd-client.key"),
			fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", p.ports.etcd))
	}
	var err error
	if p.server, err = process.Start(p.file("keelson.log"), p.folder, p.bin.Keelson, args...); err != nil {
		return err
	}
	if err := p.server.Await(ctx, func() bool { return process.Answers(p.URL + "/readyz") }); err != nil {
		return fmt.Errorf("keelson: %w", err)
	}
	return nil
}

// StartComponents starts the controller manager and the scheduler, which are started again whenever they end, and the first
// nodes. The server need not run yet.
func (p *Plane) StartComponents(nodes int) error {
	var err error
	common := func(name string, port int) []string {
		conf := p.file(name + ".conf")
		return []string{
			"--kubeconfig=" + conf, "--authentication-kubeconfig=" + conf, "--authorization-kubeconfig=" + conf,
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--leader-elect=true",
			"--leader-elect-lease-duration=" + leaseTime.String(), "--leader-elect-renew-deadline=" + renewTime.String(),
			"--leader-elect-retry-period=" + retryTime.String(),
		}
	}
	controllers := append(common("controller-manager", p.ports.controllers),
		"--allocate-node-cidrs=true",
		"--client-ca-file="+p.file("ca.crt"),
		"--cluster-cidr="+podRange,
		"--cluster-name=kubernetes",
		"--cluster-signing-cert-file="+p.file("ca.crt"),
		"--cluster-signing-key-file="+p.file("ca.key"),
		"--controllers=*,bootstrapsigner,tokencleaner",
		"--requestheader-client-ca-file="+p.file("front-proxy-ca.crt"),
		"--root-ca-file="+p.file("ca.crt"),
		"--service-account-private-key-file="+p.file("sa.key"),
		"--service-cluster-ip-range="+serviceRange,
		"--use-service-account-credentials=true",
		// Beside kubeadm's: what would otherwise take minutes.
		"--node-monitor-period=1s", "--node-monitor-grace-period="+nodeGrace.String(), "--node-startup-grace-period="+nodeGrace.String(),
		"--horizontal-pod-autoscaler-sync-period=2s", "--pvclaimbinder-sync-period=2s", "--resource-quota-sync-period=10s",
	)
	start := func(name, bin string, args []string) (*process.Keeper, error) {
		return process.Keep(func() (*process.Process, error) { return process.Start(p.file(name+".log"), p.folder, bin, args...) })
	}
	if p.controllers, err = start("controller-manager", p.bin.ControllerManager, controllers); err != nil {
		return err
	}
	if p.scheduler, err = start("scheduler", p.bin.Scheduler, common("scheduler", p.ports.scheduler)); err != nil {
		return err
	}
	for range nodes {
		if _, err := p.AddNode(nil); err != nil {
			return err
		}
	}
	return nil
}

// AddNode starts one more node, with a certificate of its own.
func (p *Plane) AddNode(labels map[string]string, taints ...corev1.Taint) (*hollow.Node, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	name := fmt.Sprintf("node-%d", p.count)
	_, config, err := p.authority.Kubeconfig(p.URL, "kubelet-"+name, "system:node:"+name, "system:nodes")
	if err != nil {
		return nil, err
	}
	return p.join(config, name, hollow.Options{Labels: labels, Taints: taints})
}

func (p *Plane) join(config *rest.Config, name string, options hollow.Options) (*hollow.Node, error) {
	if options.Address == "" {
		options.Address = fmt.Sprintf("10.0.0.%d", p.count)
	}
	node, err := hollow.Start(config, name, options)
	if err == nil {
		p.nodes[name] = node
	}
	return node, err
}

// Join starts a node that has credentials already.
func (p *Plane) Join(config *rest.Config, name string) (*hollow.Node, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	return p.join(config, name, hollow.Options{})
}

// Bootstrap makes the objects that kubeadm init makes.
func (p *Plane) Bootstrap(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(p.super)
	if err != nil {
		return err
	}
	bindings := map[string]struct{ role, group string }{
		admins:                                 {"cluster-admin", admins},
		"kubeadm:kubelet-bootstrap":            {"system:node-bootstrapper", Joiners},
		"kubeadm:node-autoapprove-bootstrap":   {"system:certificates.k8s.io:certificatesigningrequests:nodeclient", Joiners},
		"kubeadm:node-autoapprove-certificate": {"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"},
	}
	for name, binding := range bindings {
		object := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: binding.role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: binding.group}},
		}
		if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// KillServer ends keelson as the kernel would (SIGKILL).
func (p *Plane) KillServer() { p.server.Kill() }

// RestartServer asks keelson to stop, which must succeed, and starts another on the same store.
func (p *Plane) RestartServer(ctx context.Context) error {
	if err := p.server.Terminate(); err != nil {
		return err
	}
	return p.StartServer(ctx)
}

// store is the process that the store is in.
func (p *Plane) store() *process.Process {
	if p.etcd != nil {
		return p.etcd
	}
	return p.server
}

// PauseStore keeps etcd, or the server with the embedded store in it, from running until ResumeStore (SIGSTOP, SIGCONT).
func (p *Plane) PauseStore() error { return p.store().Signal(syscall.SIGSTOP) }

// ResumeStore lets it run again.
func (p *Plane) ResumeStore() error { return p.store().Signal(syscall.SIGCONT) }

// KillStore ends etcd, or the server with the embedded store in it, as the kernel would (SIGKILL).
func (p *Plane) KillStore() { p.store().Kill() }

// RestartStore starts what KillStore ended.
func (p *Plane) RestartStore(ctx context.Context) error {
	if p.etcd != nil {
		return p.StartStore(ctx)
	}
	return p.StartServer(ctx)
}

// LoseNode ends a node's kubelet as a loss of power does.
func (p *Plane) LoseNode(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes[name].Stop()
}

// ReturnNode starts a lost node again.
func (p *Plane) ReturnNode(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	node, err := p.nodes[name].Restart()
	if err == nil {
		p.nodes[name] = node
	}
	return err
}

// NodeConfig are the credentials of a node.
func (p *Plane) NodeConfig(name string) (*rest.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if node := p.nodes[name]; node != nil {
		return node.Config, nil
	}
	return nil, fmt.Errorf("there is no node %q", name)
}

// CA is the certificate of the cluster's authority.
func (p *Plane) CA() string { return string(p.authority.PEM()) }

// ServerUsage is what keelson has used.
func (p *Plane) ServerUsage() process.Usage { return p.server.Usage() }

// ServerLog is the end of keelson's log.
func (p *Plane) ServerLog(lines int) string { return p.server.Tail(lines) }

// ComponentLogs are the ends of the other components' logs.
func (p *Plane) ComponentLogs(lines int) string {
	var text strings.Builder
	for name, keeper := range map[string]*process.Keeper{"controller-manager": p.controllers, "scheduler": p.scheduler} {
		fmt.Fprintf(&text, "%s (started again %d times):\n%s\n", name, keeper.Restarts(), keeper.Child().Tail(lines))
	}
	return text.String()
}

// Stop ends everything.
func (p *Plane) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, node := range p.nodes {
		node.Stop()
	}
	for _, keeper := range []*process.Keeper{p.controllers, p.scheduler} {
		if keeper != nil {
			keeper.Stop()
		}
	}
	for _, child := range []*process.Process{p.server, p.etcd} {
		if child != nil {
			child.Kill()
		}
	}
}

// Start starts everything, the server last: the components have looked for it in vain before. It returns when the nodes are
// ready, for which all of them must have found it.
func (p *Plane) Start(ctx context.Context, nodes int) error {
	if err := p.StartComponents(nodes); err != nil {
		return err
	}
	for _, keeper := range []*process.Keeper{p.controllers, p.scheduler} {
		if err := keeper.Child().Await(ctx, func() bool { return strings.Contains(keeper.Child().Output(), "connection refused") }); err != nil {
			return fmt.Errorf("a component does not look for the server: %w", err)
		}
	}
	if err := p.StartStore(ctx); err != nil {
		return err
	}
	if err := p.StartServer(ctx); err != nil {
		return err
	}
	if err := p.Bootstrap(ctx); err != nil {
		return err
	}
	return p.awaitNodes(ctx)
}

// awaitNodes waits until every node is ready, and has the range of addresses for its pods that the controller manager gives.
func (p *Plane) awaitNodes(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(p.Admin)
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, time.Second/10, time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) < p.count {
			return false, nil
		}
		for _, node := range list.Items {
			if node.Spec.PodCIDR == "" || len(node.Spec.Taints) > 0 {
				return false, nil
			}
		}
		return true, nil
	})
}
