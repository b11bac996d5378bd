package kubelet

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// runtime holds containers, by the UIDs of their pods and their names. The streaming library asks it for streams.
type runtime struct {
	folder string

	mu         sync.Mutex
	containers map[string]*container
}

// containerID is what the containers are known by.
func containerID(pod types.UID, name string) string { return string(pod) + "/" + name }

func (r *runtime) find(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("container %q not found", id)
}

// Run starts a container unless it is there. over is called whenever its main process has ended.
func (r *runtime) Run(pod *corev1.Pod, spec corev1.Container, over func()) error {
	id := containerID(pod.UID, spec.Name)
	c := &container{
		id:       id,
		spec:     spec,
		folder:   filepath.Join(r.folder, id, "root"),
		watchers: map[*watcher]struct{}{},
		children: map[*exec.Cmd]struct{}{},
	}
	r.mu.Lock()
	if r.containers[id] != nil {
		r.mu.Unlock()
		return nil
	}
	if err := os.MkdirAll(c.folder, 0o755); err != nil {
		r.mu.Unlock()
		return err
	}
	r.containers[id] = c
	r.mu.Unlock()
	return c.start(over)
}

// Again starts the main process of a container that has ended once more.
func (r *runtime) Again(pod *corev1.Pod, name string, over func()) error {
	c, err := r.find(containerID(pod.UID, name))
	if err != nil {
		return err
	}
	return c.start(over)
}

// Ended tells whether the main process of a container has ended, and its code.
func (r *runtime) Ended(pod *corev1.Pod, name string) (code int32, ended bool) {
	c, err := r.find(containerID(pod.UID, name))
	if err != nil {
		return 0, false
	}
	_, ended, code = c.state()
	return code, ended
}

// Kill ends every process of a pod.
func (r *runtime) Kill(pod *corev1.Pod) { r.killAll(string(pod.UID) + "/") }

func (r *runtime) killAll(prefix string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, c := range r.containers {
		if strings.HasPrefix(id, prefix) {
			c.kill()
		}
	}
}

// Exec runs a command in a container.
func (r *runtime) Exec(_ context.Context, id string, words []string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	c, err := r.find(id)
	if err != nil {
		return err
	}
	return c.exec(words, in, out, errs, tty, resize)
}

// Attach joins streams to the main process of a container.
func (r *runtime) Attach(ctx context.Context, id string, in io.Reader, out, errs io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize) error {
	c, err := r.find(id)
	if err != nil {
		return err
	}
	return c.attach(ctx, in, out, errs, resize)
}

// PortForward joins a stream to a port of this machine.
func (r *runtime) PortForward(_ context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	return err
}
