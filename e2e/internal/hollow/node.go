// Package hollow is a kubelet without containers: it registers its node, keeps its lease and status fresh, and takes the pods
// that are bound to it through their lives. It is a client like a kubelet: with the node's own credentials, and with no more
// requests than a kubelet makes, so that the node authorizer and NodeRestriction have their say.
package hollow

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"keelson/e2e/internal/kubelet"
)

const (
	// heartbeat is how often the lease is renewed.
	heartbeat = time.Second
	// report is how often the status is written though nothing changed.
	report = 5 * time.Second
	// retry is the pause after a request that failed.
	retry = 200 * time.Millisecond
	// leaseSeconds is what the lease says; kubelets say 40.
	leaseSeconds = 40
	// maxPods is what the node says it can run; kubelets say 110.
	maxPods = "110"
)

// Options say how the node differs from the others.
type Options struct {
	Labels map[string]string
	Taints []corev1.Taint
	// Address is the node's IP.
	Address string
	// Kubelet is there if the kubelet serves. Then containers with a command that is not pretended are processes.
	Kubelet *kubelet.Options
}

// Node is a running kubelet.
type Node struct {
	Name string
	// Config are its credentials.
	Config  *rest.Config
	options Options
	client  kubernetes.Interface
	events  record.EventRecorder

	stop context.CancelFunc
	done sync.WaitGroup
	pods *podWorker
	// kubelet is nil if it does not serve.
	kubelet *kubelet.Kubelet
}

// Start runs a kubelet with the credentials of its node until Stop. It need not reach the server yet.
func Start(config *rest.Config, name string, options Options) (*Node, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100 // what kubelets have
	config.UserAgent = "kubelet/v1.36.2"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	n := &Node{
		Name:    name,
		Config:  config,
		options: options,
		client:  client,
		events:  broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: name}),
		stop:    stop,
	}
	n.pods = newPodWorker(n)
	if options.Kubelet != nil {
		serve := *options.Kubelet
		serve.Node, serve.Address, serve.Client, serve.Pods = name, options.Address, client, n.pods.all
		if n.kubelet, err = kubelet.Start(serve); err != nil {
			stop()
			return nil, err
		}
	}
	n.done.Add(1)
	go func() {
		defer n.done.Done()
		defer broadcaster.Shutdown()
		n.run(ctx)
	}()
	return n, nil
}

// Stop ends the kubelet as a loss of power does: nothing is told to the server.
func (n *Node) Stop() {
	n.stop()
	n.done.Wait()
	if n.kubelet != nil {
		n.kubelet.Stop()
	}
}

// Restart starts a node that was stopped again.
func (n *Node) Restart() (*Node, error) { return Start(n.Config, n.Name, n.options) }

func (n *Node) run(ctx context.Context) {
	n.register(ctx)
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){
		func(ctx context.Context) { wait.UntilWithContext(ctx, n.renew, heartbeat) },
		func(ctx context.Context) { wait.UntilWithContext(ctx, n.reportStatus, report) },
		n.pods.run,
	} {
		loops.Add(1)
		go func() {
			defer loops.Done()
			loop(ctx)
		}()
	}
	loops.Wait()
}

// register creates the node object, and tries until it is there.
func (n *Node) register(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := n.client.CoreV1().Nodes().Create(ctx, n.object(), metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			return
		}
		pause(ctx, retry)
	}
}

func pause(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}

func (n *Node) object() *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name,
			Labels: map[string]string{
				corev1.LabelHostname:   n.Name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
			},
		},
	}
	for key, value := range n.options.Labels {
		node.Labels[key] = value
	}
	node.Spec.Taints = n.options.Taints
	node.Status = n.status(nil)
	return node
}

// status is what the kubelet says of its node; conditions keep the time of their last change.
func (n *Node) status(before []corev1.NodeCondition) corev1.NodeStatus {
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("32"),
		corev1.ResourceMemory:           resource.MustParse("64Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		corev1.ResourcePods:             resource.MustParse(maxPods),
	}
	status := corev1.NodeStatus{
		Capacity:    room,
		Allocatable: room,
		Conditions:  conditions(before),
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: n.options.Address},
			{Type: corev1.NodeHostName, Address: n.Name},
		},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion:          "v1.36.2",
			OperatingSystem:         "linux",
			Architecture:            "amd64",
			OSImage:                 "hollow",
			KernelVersion:           "6.0",
			ContainerRuntimeVersion: "hollow://1",
			MachineID:               n.Name,
			SystemUUID:              n.Name,
			BootID:                  n.Name,
		},
	}
	if n.kubelet != nil {
		status.DaemonEndpoints.KubeletEndpoint.Port = n.kubelet.Port
		if n.options.Kubelet.WebSockets {
			status.DeclaredFeatures = []string{kubelet.WebSockets}
		}
	}
	return status
}

func conditions(before []corev1.NodeCondition) []corev1.NodeCondition {
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		changed := now
		for _, one := range before {
			if one.Type == kind && one.Status == status {
				changed = one.LastTransitionTime
			}
		}
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: changed}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
	}
}

// reportStatus writes the node's status.
func (n *Node) reportStatus(ctx context.Context) {
	nodes := n.client.CoreV1().Nodes()
	old, err := nodes.Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return
	}
	next := old.DeepCopy()
	status := n.status(old.Status.Conditions)
	next.Status.Capacity, next.Status.Allocatable = status.Capacity, status.Allocatable
	next.Status.Addresses, next.Status.NodeInfo = status.Addresses, status.NodeInfo
	next.Status.DaemonEndpoints, next.Status.DeclaredFeatures = status.DaemonEndpoints, status.DeclaredFeatures
	next.Status.Conditions = status.Conditions
	for _, one := range old.Status.Conditions {
		if !hasCondition(next.Status.Conditions, one.Type) { // somebody else's
			next.Status.Conditions = append(next.Status.Conditions, one)
		}
	}
	if patch, err := difference(old, next, corev1.Node{}); err == nil {
		// What fails is tried again at the next report.
		_, _ = nodes.PatchStatus(ctx, n.Name, patch)
	}
	n.pods.setRange(old.Spec.PodCIDR)
}

func hasCondition(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) bool {
	for _, one := range conditions {
		if one.Type == kind {
			return true
		}
	}
	return false
}

// renew keeps the node's lease, which is owned by the node.
func (n *Node) renew(ctx context.Context) {
	leases := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, n.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		node, err := n.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return
		}
		seconds := int32(leaseSeconds)
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: node.UID}
		_, _ = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, OwnerReferences: []metav1.OwnerReference{owner}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &n.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}, metav1.CreateOptions{})
	case err == nil:
		lease.Spec.RenewTime = &now
		_, _ = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
}
