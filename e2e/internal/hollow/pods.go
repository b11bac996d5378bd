package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// workers is how many pods are looked at at once.
const workers = 8

// podWorker takes the pods of one node through their lives.
type podWorker struct {
	node  *Node
	queue workqueue.TypedRateLimitingInterface[string]
	pods  corelisters.PodLister
	ready chan struct{} // closed when there is a lister

	mu    sync.Mutex
	cidr  netip.Prefix
	taken map[netip.Addr]types.UID
}

func newPodWorker(node *Node) *podWorker {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](retry/4, 10*retry)
	return &podWorker{
		node:  node,
		queue: workqueue.NewTypedRateLimitingQueue(limiter),
		taken: map[netip.Addr]types.UID{},
		ready: make(chan struct{}),
	}
}

// all are the pods of the node.
func (w *podWorker) all() []*corev1.Pod {
	select {
	case <-w.ready:
		pods, _ := w.pods.List(everything)
		return pods
	default:
		return nil
	}
}

// run watches the pods that are bound to the node until the context ends.
func (w *podWorker) run(ctx context.Context) {
	mine := func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", w.node.Name).String()
	}
	factory := informers.NewSharedInformerFactoryWithOptions(w.node.client, 0, informers.WithTweakListOptions(mine))
	pods := factory.Core().V1().Pods()
	w.pods = pods.Lister()
	close(w.ready)
	enqueue := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			w.queue.Add(key)
		}
	}
	_, _ = pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
		DeleteFunc: enqueue,
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var all sync.WaitGroup
	for range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			for w.next(ctx) {
			}
		}()
	}
	<-ctx.Done()
	w.queue.ShutDown()
	all.Wait()
	factory.Shutdown()
}

func (w *podWorker) next(ctx context.Context) bool {
	key, quit := w.queue.Get()
	if quit {
		return false
	}
	defer w.queue.Done(key)
	again, err := w.sync(ctx, key)
	switch {
	case err != nil:
		w.queue.AddRateLimited(key)
	case again > 0:
		w.queue.Forget(key)
		w.queue.AddAfter(key, again)
	default:
		w.queue.Forget(key)
	}
	return true
}

// sync brings one pod a step further, and says when to look again.
func (w *podWorker) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return 0, nil
	}
	pod, err := w.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		w.forgetAddresses()
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case pod.DeletionTimestamp != nil:
		return 0, w.end(ctx, pod)
	case over:
		return 0, nil
	case len(pod.Status.ContainerStatuses) == 0:
		return w.start(ctx, pod)
	default:
		return w.follow(ctx, pod)
	}
}

// end stops the containers of a deleted pod and then deletes it for good. Containers stop at once when they are asked to.
func (w *podWorker) end(ctx context.Context, pod *corev1.Pod) error {
	next := pod.DeepCopy()
	for i := range next.Status.ContainerStatuses {
		if status := &next.Status.ContainerStatuses[i]; status.State.Terminated == nil {
			terminate(status, exit{})
		}
	}
	w.kill(pod)
	settle(next)
	if err := w.write(ctx, pod, next); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	err := w.node.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *options)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// start mounts the volumes, and runs the containers.
func (w *podWorker) start(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	if err := w.mount(ctx, pod); err != nil {
		w.node.events.Eventf(pod, corev1.EventTypeWarning, "FailedMount", "%v", err)
		return 0, err
	}
	address, err := w.address(pod)
	if err != nil {
		return 0, err
	}
	next := pod.DeepCopy()
	now := metav1.Now()
	next.Status.StartTime = &now
	next.Status.HostIP = w.node.options.Address
	next.Status.HostIPs = []corev1.HostIP{{IP: next.Status.HostIP}}
	next.Status.PodIP = address
	next.Status.PodIPs = []corev1.PodIP{{IP: address}}
	next.Status.InitContainerStatuses = nil
	for _, container := range pod.Spec.InitContainers {
		status := running(container, now)
		terminate(&status, exit{})
		next.Status.InitContainerStatuses = append(next.Status.InitContainerStatuses, status)
	}
	next.Status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		if err := w.runProcess(pod, container); err != nil {
			return 0, err
		}
		next.Status.ContainerStatuses = append(next.Status.ContainerStatuses, running(container, now))
	}
	settle(next)
	if err := w.write(ctx, pod, next); err != nil {
		return 0, err
	}
	w.node.events.Eventf(pod, corev1.EventTypeNormal, "Started", "Container started")
	return 0, nil // the write comes back as an event
}

// follow ends the containers whose command is over.
func (w *podWorker) follow(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	next := pod.DeepCopy()
	var again time.Duration
	for i := range next.Status.ContainerStatuses {
		status := &next.Status.ContainerStatuses[i]
		end, ends := w.endOf(pod, containerOf(pod, status.Name))
		if !ends || status.State.Running == nil {
			continue
		}
		left := time.Until(status.State.Running.StartedAt.Add(end.after))
		switch {
		case left > 0:
			if again == 0 || left < again {
				again = left
			}
		case restarts(pod, end):
			status.RestartCount++
			last := *status
			terminate(&last, end)
			status.LastTerminationState = last.State
			if err := w.runAgain(pod, status.Name); err != nil {
				return 0, err
			}
			status.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
			again = max(end.after, time.Second)
		default:
			terminate(status, end)
		}
	}
	if err := w.debug(pod, next); err != nil {
		return 0, err
	}
	settle(next)
	return again, w.write(ctx, pod, next)
}

func containerOf(pod *corev1.Pod, name string) corev1.Container {
	for _, container := range pod.Spec.Containers {
		if container.Name == name {
			return container
		}
	}
	return corev1.Container{}
}

// mount fetches what the pod's volumes are made of, as a kubelet has to before it can start the containers.
func (w *podWorker) mount(ctx context.Context, pod *corev1.Pod) error {
	for _, volume := range pod.Spec.Volumes {
		if err := w.mountOne(ctx, pod, volume.VolumeSource); err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", volume.Name, err)
		}
	}
	return nil
}

func (w *podWorker) mountOne(ctx context.Context, pod *corev1.Pod, source corev1.VolumeSource) error {
	switch {
	case source.ConfigMap != nil:
		return w.configMap(ctx, pod, source.ConfigMap.Name, source.ConfigMap.Optional)
	case source.Secret != nil:
		return w.secret(ctx, pod, source.Secret.SecretName, source.Secret.Optional)
	case source.PersistentVolumeClaim != nil:
		return w.claim(ctx, pod, source.PersistentVolumeClaim.ClaimName)
	case source.Projected != nil:
		for _, part := range source.Projected.Sources {
			if err := w.projected(ctx, pod, part); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *podWorker) projected(ctx context.Context, pod *corev1.Pod, part corev1.VolumeProjection) error {
	switch {
	case part.ConfigMap != nil:
		return w.configMap(ctx, pod, part.ConfigMap.Name, part.ConfigMap.Optional)
	case part.Secret != nil:
		return w.secret(ctx, pod, part.Secret.Name, part.Secret.Optional)
	case part.ServiceAccountToken != nil:
		return w.token(ctx, pod, part.ServiceAccountToken)
	}
	return nil
}

func (w *podWorker) configMap(ctx context.Context, pod *corev1.Pod, name string, optional *bool) error {
	_, err := w.node.client.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	return unlessOptional(err, optional)
}

func (w *podWorker) secret(ctx context.Context, pod *corev1.Pod, name string, optional *bool) error {
	_, err := w.node.client.CoreV1().Secrets(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	return unlessOptional(err, optional)
}

func unlessOptional(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return err
}

// claim looks at the claim and its volume, which must be bound to each other.
func (w *podWorker) claim(ctx context.Context, pod *corev1.Pod, name string) error {
	claim, err := w.node.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return fmt.Errorf("claim %s is %s", name, claim.Status.Phase)
	}
	volume, err := w.node.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID {
		return fmt.Errorf("volume %s is not bound to claim %s", volume.Name, name)
	}
	return nil
}

// token asks for a token of the pod's service account that is bound to the pod.
func (w *podWorker) token(ctx context.Context, pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection) error {
	request := tokenRequest(pod, source)
	answer, err := w.node.client.CoreV1().ServiceAccounts(pod.Namespace).
		CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if answer.Status.Token == "" {
		return fmt.Errorf("no token for service account %s", pod.Spec.ServiceAccountName)
	}
	return nil
}

// setRange is the range of addresses that the node's pods get theirs from; empty until the node has one.
func (w *podWorker) setRange(cidr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cidr, _ = netip.ParsePrefix(cidr)
}

// address gives the pod an address of the node's range, or the node's own.
func (w *podWorker) address(pod *corev1.Pod) (string, error) {
	if pod.Spec.HostNetwork {
		return w.node.options.Address, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.cidr.IsValid() {
		return "", fmt.Errorf("the node has no pod CIDR")
	}
	for address := w.cidr.Addr().Next().Next(); w.cidr.Contains(address); address = address.Next() {
		if owner, taken := w.taken[address]; !taken || owner == pod.UID {
			w.taken[address] = pod.UID
			return address.String(), nil
		}
	}
	return "", fmt.Errorf("no address is free in %v", w.cidr)
}

// forgetAddresses frees the addresses of pods that are gone.
func (w *podWorker) forgetAddresses() {
	all, err := w.pods.List(everything)
	if err != nil {
		return
	}
	live := map[types.UID]bool{}
	for _, pod := range all {
		live[pod.UID] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for address, uid := range w.taken {
		if !live[uid] {
			delete(w.taken, address)
		}
	}
}

// write patches the pod's status if it changed.
func (w *podWorker) write(ctx context.Context, old, next *corev1.Pod) error {
	patch, err := difference(old, next, corev1.Pod{})
	if err != nil || string(patch) == "{}" {
		return err
	}
	patch, err = withUID(patch, old.UID)
	if err != nil {
		return err
	}
	_, err = w.node.client.CoreV1().Pods(old.Namespace).
		Patch(ctx, old.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// withUID adds the UID to a patch, so that it is refused by another object of the same name.
func withUID(patch []byte, uid types.UID) ([]byte, error) {
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return nil, err
	}
	fields["metadata"] = map[string]any{"uid": uid}
	return json.Marshal(fields)
}

// difference is the strategic merge patch from one state of an object to another.
func difference(old, next, shape any) ([]byte, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(next)
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, shape)
}
