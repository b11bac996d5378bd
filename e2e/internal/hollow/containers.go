package hollow

import (
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

var everything = labels.Everything()

// MissingImage is an image that no registry has: containers with it wait for ever.
const MissingImage = "e2e/app:missing"

// exit is how a container ends.
type exit struct {
	after time.Duration
	code  int32
}

// endOf is what a container's command comes to, of those that a hollow node understands: `true`, `false`, `sleep SECONDS`,
// with `!` before it for an exit with 1. All others run until they are stopped.
func endOf(container corev1.Container) (end exit, ends bool) {
	command := slices.Concat(container.Command, container.Args)
	if len(command) > 0 && command[0] == "!" {
		end.code, command = 1, command[1:]
	}
	switch line := strings.Join(command, " "); {
	case line == "true":
		return end, true
	case line == "false":
		end.code = 1
		return end, true
	case len(command) == 2 && command[0] == "sleep":
		seconds, err := strconv.ParseFloat(command[1], 64)
		end.after = time.Duration(seconds * float64(time.Second))
		return end, err == nil
	}
	return exit{}, false
}

// restarts tells whether a container that ended like this is started again.
func restarts(pod *corev1.Pod, end exit) bool {
	switch pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return end.code != 0
	}
	return true
}

// running is the status of a container that was just started, or that waits for its image.
func running(container corev1.Container, now metav1.Time) corev1.ContainerStatus {
	started := true
	status := corev1.ContainerStatus{
		Name:        container.Name,
		Image:       container.Image,
		ImageID:     "hollow://" + container.Image,
		ContainerID: "hollow://" + container.Name,
		Started:     &started,
		Ready:       !neverReady(container),
		State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}
	if container.Image == MissingImage {
		started = false
		status.ImageID, status.ContainerID, status.Ready = "", "", false
		status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
	}
	return status
}

// neverReady: a readiness probe that runs `false`.
func neverReady(container corev1.Container) bool {
	probe := container.ReadinessProbe
	return probe != nil && probe.Exec != nil && slices.Equal(probe.Exec.Command, []string{"false"})
}

// terminate ends a container.
func terminate(status *corev1.ContainerStatus, end exit) {
	ended := &corev1.ContainerStateTerminated{
		ExitCode:    end.code,
		Reason:      "Completed",
		FinishedAt:  metav1.Now(),
		ContainerID: status.ContainerID,
	}
	if end.code != 0 {
		ended.Reason = "Error"
	}
	if status.State.Running != nil {
		ended.StartedAt = status.State.Running.StartedAt
	}
	status.State = corev1.ContainerState{Terminated: ended}
	status.Ready = false
	started := false
	status.Started = &started
}

// settle derives phase and conditions from the containers.
func settle(pod *corev1.Pod) {
	ready, over, failed, waiting := true, true, false, false
	for _, status := range pod.Status.ContainerStatuses {
		ready = ready && status.Ready
		over = over && status.State.Terminated != nil
		failed = failed || (status.State.Terminated != nil && status.State.Terminated.ExitCode != 0)
		waiting = waiting || status.State.Waiting != nil
	}
	if len(pod.Status.ContainerStatuses) == 0 { // deleted before it began
		pod.Status.Phase = corev1.PodFailed
		return
	}
	reason := ""
	switch {
	case over && failed:
		pod.Status.Phase, reason = corev1.PodFailed, "PodFailed"
	case over:
		pod.Status.Phase, reason = corev1.PodSucceeded, "PodCompleted"
	case waiting:
		pod.Status.Phase, reason = corev1.PodPending, "ContainersNotReady"
	default:
		pod.Status.Phase = corev1.PodRunning
		if !ready {
			reason = "ContainersNotReady"
		}
	}
	setCondition(pod, corev1.PodReadyToStartContainers, !over, "")
	setCondition(pod, corev1.PodInitialized, true, "")
	setCondition(pod, corev1.PodReady, ready, reason)
	setCondition(pod, corev1.ContainersReady, ready, reason)
}

func setCondition(pod *corev1.Pod, kind corev1.PodConditionType, holds bool, reason string) {
	status := corev1.ConditionFalse
	if holds {
		status = corev1.ConditionTrue
	}
	next := corev1.PodCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.Now()}
	for i, one := range pod.Status.Conditions {
		if one.Type == kind {
			if one.Status == status {
				next.LastTransitionTime = one.LastTransitionTime
			}
			pod.Status.Conditions[i] = next
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, next)
}

// tokenRequest is what a kubelet asks for to fill a projected token volume.
func tokenRequest(pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection) *authenticationv1.TokenRequest {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	return request
}
