package hollow

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isProcess tells whether a container runs as a process: a kubelet serves, and the command is none of those that are pretended.
func (w *podWorker) isProcess(container corev1.Container) bool {
	_, ends := endOf(container)
	return w.node.kubelet != nil && !ends && len(container.Command)+len(container.Args) > 0
}

// runProcess makes the container, and starts its process if it has one.
func (w *podWorker) runProcess(pod *corev1.Pod, container corev1.Container) error {
	if w.node.kubelet == nil {
		return nil
	}
	if !w.isProcess(container) {
		container.Command, container.Args = nil, nil
	}
	return w.node.kubelet.Run(pod, container, w.overFor(pod))
}

// runAgain starts the process of a container again that has ended.
func (w *podWorker) runAgain(pod *corev1.Pod, name string) error {
	if !w.isProcess(containerOf(pod, name)) {
		return nil
	}
	return w.node.kubelet.Again(pod, name, w.overFor(pod))
}

// overFor has the pod looked at again.
func (w *podWorker) overFor(pod *corev1.Pod) func() {
	return func() { w.queue.Add(pod.Namespace + "/" + pod.Name) }
}

// endOf is how a container ends: as its process has, or as it is pretended.
func (w *podWorker) endOf(pod *corev1.Pod, container corev1.Container) (end exit, ends bool) {
	if !w.isProcess(container) {
		return endOf(container)
	}
	end.code, ends = w.node.kubelet.Ended(pod, container.Name)
	return end, ends
}

// kill ends the processes of a pod.
func (w *podWorker) kill(pod *corev1.Pod) {
	if w.node.kubelet != nil {
		w.node.kubelet.Kill(pod)
	}
}

// debug starts the containers that were added to a running pod, and tells when they have ended.
func (w *podWorker) debug(pod, next *corev1.Pod) error {
	for _, added := range pod.Spec.EphemeralContainers {
		container := corev1.Container(added.EphemeralContainerCommon)
		statuses := &next.Status.EphemeralContainerStatuses
		at := slices.IndexFunc(*statuses, func(one corev1.ContainerStatus) bool { return one.Name == container.Name })
		if at < 0 {
			if err := w.runProcess(pod, container); err != nil {
				return err
			}
			*statuses = append(*statuses, running(container, metav1.Now()))
			continue
		}
		status := &(*statuses)[at]
		if end, ends := w.endOf(pod, container); ends && status.State.Running != nil {
			terminate(status, end)
		}
	}
	return nil
}
