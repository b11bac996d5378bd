package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	cadvisorv2 "github.com/google/cadvisor/info/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/server"
	"k8s.io/kubernetes/pkg/kubelet/server/stats"
	"k8s.io/utils/ptr"
)

// host is what the handlers of a kubelet ask of it. What is not here is not asked for, or answered with 500.
type host struct {
	server.HostInterface
	options   Options
	runtime   *runtime
	streaming streaming.Server
	begun     metav1.Time
}

func (h *host) GetPods() []*corev1.Pod { return h.options.Pods() }

func (h *host) GetRunningPods(context.Context) ([]*corev1.Pod, error) { return h.options.Pods(), nil }

func (h *host) GetPodByName(namespace, name string) (*corev1.Pod, bool) {
	for _, pod := range h.options.Pods() {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

func (h *host) SyncLoopHealthCheck(*http.Request) error { return nil }

func (h *host) GetCachedMachineInfo() (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{MachineID: h.options.Node}, nil
}

func (h *host) GetVersionInfo() (*cadvisorapi.VersionInfo, error) {
	return &cadvisorapi.VersionInfo{}, nil
}

func (h *host) GetRequestedContainersInfo(string, cadvisorv2.RequestOptions) (map[string]*cadvisorapi.ContainerInfo, error) {
	return nil, nil
}

// ServeLogs shows the machine's log files.
func (h *host) ServeLogs(w http.ResponseWriter, request *http.Request) {
	files := http.FileServer(http.Dir(filepath.Join(h.options.Folder, "logs")))
	http.StripPrefix("/logs/", files).ServeHTTP(w, request)
}

// id is that of a container of a pod that is on the node.
func (h *host) id(podFullName, name string) (string, error) {
	podName, namespace, err := kubecontainer.ParsePodFullName(podFullName)
	if err != nil {
		return "", err
	}
	pod, found := h.GetPodByName(namespace, podName)
	if !found {
		return "", fmt.Errorf("pod not found (%q)", podFullName)
	}
	return containerID(pod.UID, name), nil
}

func (h *host) RunInContainer(_ context.Context, podFullName string, _ types.UID, name string, words []string) ([]byte, error) {
	id, err := h.id(podFullName, name)
	if err != nil {
		return nil, err
	}
	c, err := h.runtime.find(id)
	if err != nil {
		return nil, err
	}
	return c.command(words).CombinedOutput()
}

func (h *host) GetKubeletContainerLogs(ctx context.Context, podFullName, name string, options *corev1.PodLogOptions, stdout, stderr io.Writer) error {
	id, err := h.id(podFullName, name)
	if err != nil {
		return err
	}
	c, err := h.runtime.find(id)
	if err != nil {
		return err
	}
	run, _, _ := c.state()
	if options.Previous {
		if run--; run == 0 {
			return fmt.Errorf("previous terminated container %q in pod %q not found", name, podFullName)
		}
	}
	asked := &logs.LogOptions{
		TailLines:  options.TailLines,
		LimitBytes: options.LimitBytes,
		Follow:     options.Follow,
		Timestamp:  options.Timestamps,
	}
	if options.SinceSeconds != nil {
		asked.Since = time.Now().Add(-time.Duration(*options.SinceSeconds) * time.Second)
	}
	if options.SinceTime != nil && options.SinceTime.After(asked.Since) {
		asked.Since = options.SinceTime.Time
	}
	return logs.ReadLogs(ctx, c.logFile(run), c.id, asked, &runs{container: c, run: run}, stdout, stderr)
}

// runs tells whoever follows a log whether there will be more.
type runs struct {
	internalapi.RuntimeService
	container *container
	run       int
}

func (r *runs) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	status := &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	if run, ended, _ := r.container.state(); ended || run != r.run {
		status.State = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return &runtimeapi.ContainerStatusResponse{Status: status}, nil
}

func (h *host) GetExec(_ context.Context, podFullName string, _ types.UID, name string, words []string, options remotecommand.Options) (*url.URL, error) {
	id, err := h.id(podFullName, name)
	if err != nil {
		return nil, err
	}
	answer, err := h.streaming.GetExec(&runtimeapi.ExecRequest{
		ContainerId: id, Cmd: words, Tty: options.TTY, Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr,
	})
	if err != nil {
		return nil, err
	}
	return url.Parse(answer.Url)
}

func (h *host) GetAttach(_ context.Context, podFullName string, _ types.UID, name string, options remotecommand.Options) (*url.URL, error) {
	id, err := h.id(podFullName, name)
	if err != nil {
		return nil, err
	}
	answer, err := h.streaming.GetAttach(&runtimeapi.AttachRequest{
		ContainerId: id, Tty: options.TTY, Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr,
	})
	if err != nil {
		return nil, err
	}
	return url.Parse(answer.Url)
}

func (h *host) GetPortForward(_ context.Context, _, _ string, uid types.UID, options portforward.V4Options) (*url.URL, error) {
	answer, err := h.streaming.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: string(uid), Port: options.Ports})
	if err != nil {
		return nil, err
	}
	return url.Parse(answer.Url)
}

// summary is what the kubelet measures: a little of everything for every container.
type summary struct{ host *host }

func (s summary) Start(context.Context) {}

func (s summary) GetPodVolumeStats(types.UID) (stats.PodVolumeStats, bool) {
	return stats.PodVolumeStats{}, false
}

func (s summary) Get(ctx context.Context, _ bool) (*statsapi.Summary, error) {
	return s.GetCPUAndMemoryStats(ctx)
}

func (s summary) GetCPUAndMemoryStats(context.Context) (*statsapi.Summary, error) {
	now := metav1.Now()
	used := uint64(now.Sub(s.host.begun.Time)) / 100 // a hundredth of a core
	cpu := &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: &used, UsageNanoCores: ptr.To[uint64](1e7)}
	memory := &statsapi.MemoryStats{Time: now, WorkingSetBytes: ptr.To[uint64](16 << 20)}
	all := &statsapi.Summary{Node: statsapi.NodeStats{NodeName: s.host.options.Node, StartTime: s.host.begun, CPU: cpu, Memory: memory}}
	for _, pod := range s.host.GetPods() {
		one := statsapi.PodStats{
			PodRef:    statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
			StartTime: s.host.begun, CPU: cpu, Memory: memory,
		}
		for _, container := range pod.Spec.Containers {
			one.Containers = append(one.Containers, statsapi.ContainerStats{Name: container.Name, StartTime: s.host.begun, CPU: cpu, Memory: memory})
		}
		all.Pods = append(all.Pods, one)
	}
	return all, nil
}
