package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// way is how kubectl's streams get to a container: the protocol that kubectl speaks, and whether the kubelet speaks WebSocket. If
// it does not, the server translates.
type way struct {
	name       string
	kubelet    bool
	kubectlEnv []string
}

var ways = []way{
	{"WebSocket to a kubelet that speaks it", true, nil},
	{"WebSocket, translated for a kubelet that speaks SPDY", false, nil},
	{"SPDY to a kubelet that speaks both", true, []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}},
	{"SPDY to a kubelet that speaks SPDY", false, []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}},
}

// serve makes a pod whose container is a process, on a node whose kubelet serves.
func (t *T) serve(webSockets bool, one *corev1.Pod) *corev1.Pod {
	node, err := t.plane.ServingNode(webSockets)
	t.must(err)
	t.eventually("node "+node.Name+" is ready", func() (string, error) {
		node, err := t.client.CoreV1().Nodes().Get(t.ctx, node.Name, metav1.GetOptions{})
		if err != nil || node.Spec.PodCIDR == "" {
			return "no range of addresses", err
		}
		return t.nodeLacks(node.Name, corev1.ConditionTrue)
	})
	one.Spec.NodeName = node.Name
	one.Spec.HostNetwork = true
	return t.createPod(one)
}

// shell is a pod whose container runs a script.
func shell(name, script string) *corev1.Pod { return pod(name, "sh", "-c", script) }

// kubectlWith makes a run of kubectl in the check's namespace with more variables.
func (t *T) kubectlWith(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, t.kubectl, append([]string{"--namespace=" + t.namespace}, args...)...)
	cmd.Env = append([]string{"HOME=" + filepath.Dir(t.plane.Kubeconfig), "KUBECONFIG=" + t.plane.Kubeconfig, "PATH=" + os.Getenv("PATH"), "TERM=xterm"}, env...)
	return cmd
}

// says runs kubectl with input, and wants its output and the code that it ends with.
func (t *T) says(w way, input, stdout, stderr string, code int, args ...string) {
	ctx, cancel := context.WithTimeout(t.ctx, soon)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := t.kubectlWith(ctx, w.kubectlEnv, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		t.must(err)
	}
	matches := func(want, text string) bool { return regexp.MustCompile(`\A(?s:` + want + `)\z`).MatchString(text) }
	if got != code || !matches(stdout, out.String()) || !matches(stderr, errs.String()) {
		t.fail("%s: kubectl %s\nended with %d, not %d\noutput %q, not %q\nerrors %q, not %q",
			w.name, strings.Join(args, " "), got, code, out.String(), stdout, errs.String(), stderr)
	}
}

// kubectlLogs: a kubelet's logs with each option, those of the run before, and those that are yet to come.
func kubectlLogs(t *T) {
	w := ways[0]
	t.serve(true, shell("web", "echo one; echo two >&2; echo three; exec sleep 1000"))
	again := shell("again", "if [ -e seen ]; then echo second; exec sleep 1000; fi; touch seen; echo first; exit 3")
	t.serve(true, again)
	slow := shell("slow", "echo begun; read line; echo $line")
	slow.Spec.Containers[0].Stdin, slow.Spec.Containers[0].StdinOnce = true, true
	slow.Spec.RestartPolicy = corev1.RestartPolicyNever
	t.serve(true, slow)
	t.eventually("web runs", t.podIs("web", corev1.PodRunning))
	t.eventually("again runs again", func() (string, error) {
		one, err := t.client.CoreV1().Pods(t.namespace).Get(t.ctx, "again", metav1.GetOptions{})
		if err != nil || len(one.Status.ContainerStatuses) == 0 {
			return "no status", err
		}
		return differs("restarts", one.Status.ContainerStatuses[0].RestartCount, 1), nil
	})
	t.eventually("web has logged", func() (string, error) {
		log, err := t.client.CoreV1().Pods(t.namespace).GetLogs("web", &corev1.PodLogOptions{}).DoRaw(t.ctx)
		return differs("lines", bytes.Count(log, []byte("\n")), 3), err
	})
	stamp := `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[+-]\d\d:\d\d) `
	t.says(w, "", "(one\ntwo\nthree|one\nthree\ntwo|two\none\nthree)\n", "", 0, "logs", "web")
	t.says(w, "", "[a-z]+\n", "", 0, "logs", "web", "--tail=1")
	t.says(w, "", "", "", 0, "logs", "web", "--tail=0")
	t.says(w, "", ".{5}", "", 0, "logs", "web", "--limit-bytes=5")
	t.says(w, "", "("+stamp+"[a-z]+\n){3}", "", 0, "logs", "web", "--timestamps", "-c", "app")
	t.says(w, "", "([a-z]+\n){3}", "", 0, "logs", "web", "--since=1h")
	t.says(w, "", "", "", 0, "logs", "web", "--since-time=2100-01-01T00:00:00Z")
	t.says(w, "", `(\[pod/web/app\] [a-z]+`+"\n){3}", "", 0, "logs", "-l", "app=web", "--prefix")
	t.says(w, "", "second\n", "", 0, "logs", "again")
	t.says(w, "", "first\n", "", 0, "logs", "again", "--previous")
	t.says(w, "", "", `Error from server \(BadRequest\): previous terminated container "app" in pod "web_`+t.namespace+`" not found`+"\n", 1, "logs", "web", "--previous")
	t.says(w, "", "", `error: container none is not valid for pod web out of: app`+"\n", 1, "logs", "web", "-c", "none")

	ctx, cancel := context.WithTimeout(t.ctx, soon)
	defer cancel()
	follow := t.kubectlWith(ctx, nil, "logs", "--follow", "slow")
	lines := t.linesOf(follow)
	t.line(lines, "begun")
	t.says(w, "the end\n", "(the end\n)?", ".*", 0, "attach", "-i", "-q", "slow")
	t.line(lines, "the end")
	if line, more := <-lines; more {
		t.fail("after the end of the container: %q", line)
	}
	t.must(follow.Wait())
}

// linesOf starts a command, and returns the lines that it says.
func (t *T) linesOf(cmd *exec.Cmd) <-chan string {
	out, err := cmd.StdoutPipe()
	t.must(err)
	t.must(cmd.Start())
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

// line waits for the next line.
func (t *T) line(lines <-chan string, want string) string {
	select {
	case line := <-lines:
		if !regexp.MustCompile(want).MatchString(line) {
			t.fail("a line %q, not %q", line, want)
		}
		return line
	case <-time.After(soon):
		t.fail("no line %q", want)
		return ""
	}
}

// kubectlExec: commands with input, output, errors and exit codes, in a terminal whose size changes, and those that are none.
func kubectlExec(t *T) {
	for _, kubelet := range []bool{true, false} {
		one := pod(fmt.Sprintf("web-%v", kubelet))
		t.serve(kubelet, one)
		t.eventually("runs", t.podIs(one.Name, corev1.PodRunning))
	}
	for _, w := range ways {
		name := fmt.Sprintf("web-%v", w.kubelet)
		t.says(w, "", "out\n", "err\n", 0, "exec", name, "--", "sh", "-c", "echo out; echo err >&2")
		t.says(w, "ping", "ping", "", 0, "exec", "-i", name, "--", "cat")
		t.says(w, "", "", `command terminated with exit code 7`+"\n", 7, "exec", name, "--", "sh", "-c", "exit 7")
		t.says(w, "", "half", `command terminated with exit code 137`+"\n", 137, "exec", name, "--", "sh", "-c", "printf half; kill -9 $$")
		t.says(w, "", "", `.*executable file not found in \$PATH.*`, 1, "exec", name, "--", "no-such-command")
		t.says(w, "", "", `.*container none is not valid for pod `+name+".*", 1, "exec", name, "-c", "none", "--", "true")
		large := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB each way
		t.says(w, large, large, "", 0, "exec", "-i", name, "--", "cat")
		t.terminal(w, "exec", "-it", name, "--", "sh")
	}
}

// terminal talks to a shell in a terminal, changes its size, and has it exit with a code.
func (t *T) terminal(w way, args ...string) {
	ctx, cancel := context.WithTimeout(t.ctx, soon)
	defer cancel()
	cmd := t.kubectlWith(ctx, w.kubectlEnv, args...)
	screen, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	t.must(err)
	defer screen.Close()
	said := make(chan string, 1000)
	go func() {
		defer close(said)
		buffer := make([]byte, 4096)
		for {
			n, err := screen.Read(buffer)
			if err != nil {
				return
			}
			said <- string(buffer[:n])
		}
	}()
	var all strings.Builder
	// until asks again and again until the terminal shows what it is asked for.
	until := func(ask, want string) {
		deadline, tick := time.After(soon), time.NewTicker(500*time.Millisecond)
		defer tick.Stop()
		_, _ = io.WriteString(screen, ask)
		for !strings.Contains(all.String(), want) {
			select {
			case text := <-said:
				all.WriteString(text)
			case <-tick.C:
				_, _ = io.WriteString(screen, ask)
			case <-deadline:
				t.fail("%s: kubectl %s: no %q in %q", w.name, strings.Join(args, " "), want, all.String())
			}
		}
	}
	until("stty size\n", "\n24 80")
	t.must(pty.Setsize(screen, &pty.Winsize{Rows: 50, Cols: 132}))
	until("stty size\n", "\n50 132")
	_, _ = io.WriteString(screen, "exit 9\n")
	go func() {
		for range said {
		}
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 9 {
		t.fail("%s: kubectl %s: ended with %v\n%s", w.name, strings.Join(args, " "), err, all.String())
	}
}

// kubectlAttach: to the main process of a container, and to that of one that is added to debug it.
func kubectlAttach(t *T) {
	for i, w := range ways {
		one := shell(fmt.Sprintf("talk-%d", i), "while read line; do echo you said $line; done; echo bye")
		one.Spec.Containers[0].Stdin, one.Spec.Containers[0].StdinOnce = true, true
		one.Spec.RestartPolicy = corev1.RestartPolicyNever
		t.serve(w.kubelet, one)
		t.eventually("runs", t.podIs(one.Name, corev1.PodRunning))
		t.says(w, "a\nb\n", "you said a\nyou said b\nbye\n", ".*", 0, "attach", "-i", "-q", one.Name)
		t.eventually("ends", t.podIs(one.Name, corev1.PodSucceeded))

		sick := pod(fmt.Sprintf("sick-%d", i))
		t.serve(w.kubelet, sick)
		t.eventually("runs", t.podIs(sick.Name, corev1.PodRunning))
		t.says(w, "echo looked at $((6 * 7))\nexit\n", "looked at 42\n", ".*", 0,
			"debug", "-i", "-q", sick.Name, "--image=e2e/tools:1", "--container=tools", "--target=app", "--", "sh")
		t.says(w, "", "looked at 42\n", "", 0, "logs", sick.Name, "-c", "tools")
		debugged, err := t.client.CoreV1().Pods(t.namespace).Get(t.ctx, sick.Name, metav1.GetOptions{})
		t.must(err)
		equal(t, "ephemeral containers", len(debugged.Spec.EphemeralContainers), 1)
		equal(t, "its target", debugged.Spec.EphemeralContainers[0].TargetContainerName, "app")
	}
}

// kubectlCopy: files and folders into a container and out of it.
func kubectlCopy(t *T) {
	here, err := os.MkdirTemp("", "e2e-copy-")
	t.must(err)
	t.cleanup(func() { _ = os.RemoveAll(here) })
	content := make([]byte, 3<<20)
	_, _ = rand.Read(content)
	t.must(os.MkdirAll(filepath.Join(here, "there/deep"), 0o755))
	t.must(os.WriteFile(filepath.Join(here, "there/deep/random"), content, 0o644))
	t.must(os.WriteFile(filepath.Join(here, "there/small"), []byte("small\n"), 0o600))
	for i, w := range ways {
		name := fmt.Sprintf("web-%d", i)
		t.serve(w.kubelet, pod(name))
		t.eventually("runs", t.podIs(name, corev1.PodRunning))
		t.says(w, "", "", "", 0, "cp", filepath.Join(here, "there"), name+":in")
		t.says(w, "", "small\n", "", 0, "exec", name, "--", "cat", "in/small")
		back := filepath.Join(here, fmt.Sprintf("back-%d", i))
		t.says(w, "", "", ".*", 0, "cp", name+":in", back)
		returned, err := os.ReadFile(filepath.Join(back, "deep/random"))
		t.must(err)
		if !bytes.Equal(returned, content) {
			t.fail("%s: %d bytes of %d came back, or others", w.name, len(returned), len(content))
		}
	}
}

// listen serves HTTP and an echo of bytes at ports of this machine.
func (t *T) listen() (web, echo int) {
	pages, err := net.Listen("tcp", ":0")
	t.must(err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		w.Header().Set("X-Path", request.URL.String())
		fmt.Fprintf(w, "%s %s %d", request.Method, request.URL.Path, len(body))
	})}
	go func() { _ = server.Serve(pages) }()
	bytes, err := net.Listen("tcp", ":0")
	t.must(err)
	go func() {
		for {
			conn, err := bytes.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	t.cleanup(func() {
		_ = server.Close()
		_ = bytes.Close()
	})
	return pages.Addr().(*net.TCPAddr).Port, bytes.Addr().(*net.TCPAddr).Port
}

// forward runs kubectl port-forward, and returns the ports of this machine in the order of the arguments, and what it says later.
func (t *T) forward(w way, ports int, args ...string) ([]string, <-chan string, func()) {
	ctx, stop := context.WithCancel(t.ctx)
	cmd := t.kubectlWith(ctx, w.kubectlEnv, append([]string{"port-forward", "--address=127.0.0.1"}, args...)...)
	cmd.Stderr = cmd.Stdout
	lines := t.linesOf(cmd)
	var local []string
	for range ports {
		line := t.line(lines, `^Forwarding from 127\.0\.0\.1:\d+ -> \d+$`)
		local = append(local, strings.Fields(strings.TrimPrefix(line, "Forwarding from "))[0])
	}
	return local, lines, func() {
		stop()
		_ = cmd.Wait()
	}
}

// kubectlPortForward: to ports of a pod and of a service, several at a time, with ends of one side, and to one where nobody is.
func kubectlPortForward(t *T) {
	web, echo := t.listen()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	t.must(err)
	nobody := closed.Addr().(*net.TCPAddr).Port
	t.must(closed.Close())
	for i, w := range ways {
		name := fmt.Sprintf("web-%d", i)
		t.serve(w.kubelet, pod(name))
		t.eventually("runs", t.podIs(name, corev1.PodRunning))
		local, _, stop := t.forward(w, 2, name, fmt.Sprintf(":%d", web), fmt.Sprintf(":%d", echo))
		done := make(chan string, 20)
		for range cap(done) / 2 {
			go func() { done <- fetch("http://" + local[0] + "/page") }()
			go func() { done <- exchange(local[1], 1<<20) }()
		}
		for range cap(done) {
			if wrong := <-done; wrong != "" && wrong != "200 GET /page 0" {
				t.fail("%s: %s", w.name, wrong)
			}
		}
		stop()

		one := service(name)
		one.Spec.Ports[0].TargetPort = intstr.FromInt(web)
		_, err := t.client.CoreV1().Services(t.namespace).Create(t.ctx, one, metav1.CreateOptions{})
		t.must(err)
		local, _, stop = t.forward(w, 1, "service/"+name, ":80")
		equal(t, w.name, fetch("http://"+local[0]+"/by-service"), "200 GET /by-service 0")
		stop()

		local, lines, stop := t.forward(w, 1, "pod/"+name, fmt.Sprintf(":%d", nobody))
		if wrong := exchange(local[0], 1); wrong == "" {
			t.fail("%s: somebody answers where nobody is", w.name)
		}
		t.line(lines, "^Handling connection for")
		stop()
	}
}

// fetch tells the answer to a GET.
func fetch(url string) string {
	answer, err := http.Get(url) //nolint:noctx
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, body)
}

// exchange sends bytes and the end, and wants them back with the end; it tells what is wrong.
func exchange(address string, size int) string {
	conn, err := net.DialTimeout("tcp", address, soon)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(soon))
	sent := make([]byte, size)
	_, _ = rand.Read(sent)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	returned, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(returned, sent) {
		return fmt.Sprintf("%d bytes of %d came back: %v", len(returned), size, err)
	}
	return ""
}

// kubectlProxy: the paths of a kubelet, of pods and of services, through the server and through kubectl's own proxy.
func kubectlProxy(t *T) {
	web, _ := t.listen()
	one := shell("web", "echo hello; exec sleep 1000")
	one.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: int32(web), HostPort: int32(web)}}
	made := t.serve(true, one)
	t.eventually("runs", t.podIs("web", corev1.PodRunning))
	service := service("web")
	service.Spec.Ports[0].TargetPort = intstr.FromInt(web)
	_, err := t.client.CoreV1().Services(t.namespace).Create(t.ctx, service, metav1.CreateOptions{})
	t.must(err)
	t.eventually("the service has an endpoint", func() (string, error) {
		endpoints, err := t.client.CoreV1().Endpoints(t.namespace).Get(t.ctx, "web", metav1.GetOptions{})
		if err != nil || len(endpoints.Subsets) == 0 || len(endpoints.Subsets[0].Addresses) == 0 {
			return "none", err
		}
		return "", nil
	})
	node, err := t.client.CoreV1().Nodes().Get(t.ctx, made.Spec.NodeName, metav1.GetOptions{})
	t.must(err)
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	pods := "/api/v1/namespaces/" + t.namespace + "/pods/"
	services := "/api/v1/namespaces/" + t.namespace + "/services/"
	kubelet := "/api/v1/nodes/" + node.Name + "/proxy"
	paths := []struct{ path, want string }{
		{kubelet + "/healthz", "ok"},
		{kubelet + "/metrics", "# HELP .*"},
		{kubelet + "/metrics/resource", `.*node_cpu_usage_seconds_total .*pod_memory_working_set_bytes\{.*`},
		{kubelet + "/pods", `.*"name":"web".*`},
		{kubelet + "/runningpods/", `\{"kind":"PodList".*`},
		{kubelet + "/configz", `\{.*`},
		{kubelet + "/stats/summary", `.*"nodeName": *"` + node.Name + `".*`},
		{kubelet + "/logs/", `<!doctype html>.*<pre>.*`},
		{kubelet + "/containerLogs/" + t.namespace + "/web/app", "hello\n"},
		{fmt.Sprintf("/api/v1/nodes/%s:%d/proxy/healthz", node.Name, port), "ok"},
		{fmt.Sprintf("/api/v1/nodes/http:%s:%d/proxy/there?x=1", node.Name, web), "GET /there 0"},
		{pods + "web/proxy/there", "GET /there 0"},
		{fmt.Sprintf("%shttp:web:%d/proxy/deep/there", pods, web), "GET /deep/there 0"},
		{services + "web:http/proxy/", "GET / 0"},
		{services + "web:http/proxy/there", "GET /there 0"},
		{services + "http:web:80/proxy/there", "GET /there 0"},
	}
	for _, one := range paths {
		t.says(ways[0], "", one.want, "", 0, "get", "--raw", one.path)
	}
	t.says(ways[0], "", "", `Error from server \(NotFound\): .*`, 1, "get", "--raw", kubelet+"/none")
	t.says(ways[0], "", "", `Error from server \(ServiceUnavailable\): no endpoints available for service "web"`+"\n", 1, "get", "--raw", services+"web/proxy/")
	ctx, stop := context.WithCancel(t.ctx)
	defer stop()
	lines := t.linesOf(t.kubectlWith(ctx, nil, "proxy", "--port=0"))
	at := strings.TrimPrefix(t.line(lines, `^Starting to serve on 127\.0\.0\.1:\d+$`), "Starting to serve on ")
	equal(t, "through kubectl proxy", fetch("http://"+at+services+"web:http/proxy/there"), "200 GET /there 0")
	equal(t, "the kubelet through kubectl proxy", fetch("http://"+at+kubelet+"/healthz"), "200 ok")
}
