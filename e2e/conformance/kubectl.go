package conformance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// call is one run of kubectl in the check's namespace, and what its output must match.
type call struct {
	args  string // separated by spaces; '...' is one
	want  string // an expression; lines may be matched with ^ and $
	fails bool
	stdin string
	// editor is what kubectl edit runs.
	editor string
}

var words = regexp.MustCompile(`'[^']*'|\S+`)

// runs runs kubectl once after another.
func (t *T) runs(calls ...call) {
	for _, c := range calls {
		args := words.FindAllString(c.args, -1)
		for i := range args {
			args[i] = strings.Trim(args[i], "'")
		}
		out, err := t.kubectlEdit(c.stdin, c.editor, args...)
		if (err != nil) != c.fails {
			t.fail("kubectl %s: %v\n%s", c.args, err, out)
		}
		if !regexp.MustCompile("(?m)" + c.want).MatchString(out) {
			t.fail("kubectl %s\nno match for %q in:\n%s", c.args, c.want, out)
		}
	}
}

func (t *T) kubectlRun(stdin string, args ...string) (string, error) {
	return t.kubectlEdit(stdin, "", args...)
}

func (t *T) kubectlEdit(stdin, editor string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(t.ctx, soon)
	defer cancel()
	home := filepath.Dir(t.plane.Kubeconfig)
	cmd := exec.CommandContext(ctx, t.kubectl, append([]string{"--namespace=" + t.namespace}, args...)...)
	cmd.Env = []string{"HOME=" + home, "KUBECONFIG=" + t.plane.Kubeconfig, "PATH=" + os.Getenv("PATH"), "TERM=dumb", "KUBE_EDITOR=" + editor}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

const template1 = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 5, containers: [{name: app, image: "e2e/app:%d"}]}
`

// kubectlRollout: apply, rollout, scale, autoscale, expose, and what get shows of them.
func kubectlRollout(t *T) {
	t.runs(
		call{args: "apply -f -", stdin: fmt.Sprintf(template1, 1), want: `^deployment.apps/web created$`},
		call{args: "rollout status deployment/web", want: `deployment "web" successfully rolled out`},
		call{args: "get deployment web", want: `^web +2/2 +2 +2 +\S+$`},
		call{args: "get pods -l app=web", want: `^web-\S+ +1/1 +Running +0 +\S+$`},
		call{args: "get pods -o wide", want: `^web-\S+ +1/1 +Running +0 +\S+ +10\.244\.\d+\.\d+ +(node-\d+|joined) +<none> +<none>$`},
		call{args: "diff -f -", stdin: fmt.Sprintf(template1, 2), fails: true, want: `^\+.*image: e2e/app:2$`},
		call{args: "apply -f -", stdin: fmt.Sprintf(template1, 2), want: `^deployment.apps/web configured$`},
		call{args: "rollout status deployment/web", want: `successfully rolled out`},
		call{args: "rollout history deployment/web", want: `^2 +<none>$`},
		call{args: "rollout undo deployment/web", want: `^deployment.apps/web rolled back$`},
		call{args: "rollout status deployment/web", want: `successfully rolled out`},
		call{args: "get deployment web -o jsonpath={.spec.template.spec.containers[0].image}", want: `^e2e/app:1$`},
		call{args: "rollout restart deployment/web", want: `restarted$`},
		call{args: "rollout status deployment/web", want: `successfully rolled out`},
		call{args: "scale deployment/web --replicas=3 --current-replicas=2", want: `^deployment.apps/web scaled$`},
		call{args: "wait deployment/web --for=jsonpath={.status.availableReplicas}=3 --timeout=60s", want: `condition met$`},
		call{args: "wait pods -l app=web --for=condition=Ready --timeout=60s", want: `condition met$`},
		call{args: "expose deployment/web --port=80 --target-port=8080", want: `^service/web exposed$`},
		call{args: "wait endpoints/web --for=jsonpath={.subsets[0].addresses[0].ip} --timeout=60s", want: `condition met$`},
		call{args: "describe service web", want: `^Endpoints: +10\.244\.\S+:8080`},
		call{args: "autoscale deployment/web --min=4 --max=6 --cpu=50%", want: `autoscaled$`},
		call{args: "wait deployment/web --for=jsonpath={.status.availableReplicas}=4 --timeout=60s", want: `condition met$`},
		call{args: "get hpa web", want: `^web +Deployment/web +cpu: <unknown>/50% +4 +6 +\d`},
		call{args: "describe deployment web", want: `NewReplicaSet: +web-\S+ \(\d/\d replicas created\)`},
		call{args: "get events --field-selector involvedObject.kind=Deployment", want: `ScalingReplicaSet +deployment/web +Scaled up replica set web-\S+ from 0 to 2$`},
		call{args: "get rs -l app=web", want: `^web-\S+ +4 +4 +4 +`},
	)
}

// kubectlForms: get in every form of output.
func kubectlForms(t *T) {
	t.createPod(pod("web"))
	t.eventually("runs", t.podIs("web", corev1.PodRunning))
	t.eventually("its event is there", func() (string, error) {
		list, err := t.client.CoreV1().Events(t.namespace).List(t.ctx, metav1.ListOptions{FieldSelector: "reason=Scheduled"})
		if err != nil {
			return "", err
		}
		return differs("events", len(list.Items), 1), nil
	})
	get := "get pod web -o "
	t.runs(
		call{args: get + "name", want: `^pod/web$`},
		call{args: get + "json", want: `^    "kind": "Pod",$`},
		call{args: get + "yaml", want: `^  phase: Running$`},
		call{args: get + "kyaml", want: `^    phase: "Running",$`},
		call{args: get + "wide", want: `^web +1/1 +Running`},
		call{args: get + "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}", want: `^True$`},
		call{args: get + "jsonpath-as-json={.metadata.name}", want: `^    "web"$`},
		call{args: get + "go-template={{.metadata.name}}:{{.status.phase}}", want: `^web:Running$`},
		call{args: get + "custom-columns=NAME:.metadata.name,NODE:.spec.nodeName", want: `^web +(node-\d+|joined)$`},
		call{args: "get pod web --show-labels", want: `LABELS\n.* app=web$`},
		call{args: "get pod web --no-headers", want: `\Aweb +1/1`},
		call{args: "get all", want: `^pod/web +1/1`},
		call{args: "get --raw /api/v1/namespaces/" + t.namespace + "/pods/web", want: `^{"`},
		call{args: "describe pod web", want: `^  Normal +Scheduled +\S+ +default-scheduler +Successfully assigned`},
		call{args: "top pods", fails: true, want: `^error: Metrics API not available$`},
		call{args: "top nodes", fails: true, want: `^error: Metrics API not available$`},
	)
}

// kubectlDelete: with each way to treat dependents.
func kubectlDelete(t *T) {
	t.runs(
		call{args: "create deployment a --image=e2e/app:1", want: `created$`},
		call{args: "create deployment b --image=e2e/app:1", want: `created$`},
		call{args: "create deployment c --image=e2e/app:1", want: `created$`},
		call{args: "wait deployments --all --for=condition=Available --timeout=60s", want: `^deployment.apps/c condition met$`},
		call{args: "delete deployment a --cascade=orphan", want: `^deployment.apps "a" deleted`},
		call{args: "get rs -l app=a -o name", want: `^replicaset.apps/a-`},
		call{args: "delete rs -l app=a", want: `deleted`},
		call{args: "delete deployment b --cascade=foreground", want: `^deployment.apps "b" deleted`},
		call{args: "get rs -l app=b", want: `^No resources found`},
		call{args: "delete deployment c --cascade=background", want: `^deployment.apps "c" deleted`},
		call{args: "wait pods -l app=c --for=delete --timeout=60s", want: `\A(pod/\S+ condition met\n)?\z`},
		call{args: "create job once --image=e2e/app:1 -- true", want: `created$`},
		call{args: "wait job/once --for=condition=Complete --timeout=60s", want: `condition met$`},
		call{args: "get job once", want: `^once +Complete +1/1 +\S+ +\S+$`},
		call{args: "create cronjob rare --image=e2e/app:1 '--schedule=0 0 1 1 *' -- true", want: `created$`},
		call{args: "create job now --from=cronjob/rare", want: `created$`},
		call{args: "wait job/now --for=condition=Complete --timeout=60s", want: `condition met$`},
	)
}

// kubectlDrain: a node is cordoned, its pods are evicted as their budget allows, and it takes pods again afterwards.
func kubectlDrain(t *T) {
	nodes := t.pool(2)
	d := deployment("web", 3)
	t.inPool(&d.Spec.Template.Spec)
	t.createDeployment(d)
	t.budget("web", 2)
	t.eventually("runs", t.rolledOut("web", 3))
	t.eventually("the budget allows one", t.allows("web", 1))
	t.runs(
		call{args: "drain " + nodes[0] + " --timeout=60s", want: `^node/` + nodes[0] + ` drained$`},
		call{args: "get node " + nodes[0], want: `^\S+ +Ready,SchedulingDisabled `},
		call{args: "get pods -o wide", want: nodes[1]},
	)
	pods, err := t.client.CoreV1().Pods(t.namespace).List(t.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodes[0]})
	t.must(err)
	equal(t, "pods on the drained node", len(pods.Items), 0)
	t.eventually("all run elsewhere", t.rolledOut("web", 3))
	t.runs(
		call{args: "uncordon " + nodes[0], want: `uncordoned$`},
		call{args: "taint nodes " + nodes[1] + " e2e.keelson/drill=yes:NoExecute", want: `tainted$`},
		call{args: "label node " + nodes[1] + " tier=b", want: `labeled$`},
		call{args: "get nodes -l tier=b", want: `^` + nodes[1] + ` +Ready +<none> +\S+ +v1\.36\.2$`},
		call{args: "describe node " + nodes[1], want: `^Taints: +e2e.keelson/drill=yes:NoExecute$`},
	)
	t.eventually("all run on the first", func() (string, error) {
		for _, pod := range t.podsOf("web") {
			if pod.Spec.NodeName != nodes[0] {
				return pod.Name + " is elsewhere", nil
			}
		}
		return t.rolledOut("web", 3)()
	})
}

// kubectlWords: what else people type, against a cluster that acts on it.
func kubectlWords(t *T) {
	edit := "sed -i s/replicas:.1/replicas:\\ 2/"
	t.runs(
		call{args: "create deployment web --image=e2e/app:1", want: `^deployment.apps/web created$`},
		call{args: "edit deployment web", editor: edit, want: `^deployment.apps/web edited$`},
		call{args: "rollout status deployment/web", want: `successfully rolled out`},
		call{args: "edit deployment web", editor: "true", want: `^Edit cancelled, no changes made.$`},
		call{args: `patch deployment web -p {"spec":{"template":{"spec":{"containers":[{"name":"app","image":"e2e/app:2"}]}}}}`, want: `patched$`},
		call{args: `patch deployment web --subresource=scale --type=merge -p {"spec":{"replicas":3}}`, want: `patched$`},
		call{args: "rollout status deployment/web", want: `successfully rolled out`},
		call{args: "annotate pods -l app=web note=seen", want: `^pod/web-\S+ annotated$`},
		call{args: "get pods -l app=web -o jsonpath={.items[*].metadata.annotations.note}", want: `^seen seen seen$`},
		call{args: "set image deployment/web app=e2e/app:3", want: `image updated$`},
		call{args: "create configmap settings --from-literal=a=1", want: `created$`},
		call{args: "create secret generic key --from-literal=a=1", want: `created$`},
		call{args: "create quota few --hard=configmaps=9", want: `created$`},
		call{args: "wait quota/few --for=jsonpath={.status.used.configmaps}=2 --timeout=30s", want: `condition met$`},
		call{args: "create token default --duration=10m", want: `^ey[\w-]+\.ey[\w-]+\.[\w-]+$`},
		call{args: "create rolebinding viewers --clusterrole=view --user=jane", want: `created$`},
		call{args: "auth can-i list pods --as=jane", want: `^yes$`},
		call{args: "auth can-i delete pods --as=jane", fails: true, want: `^no$`},
		call{args: "auth can-i --list --as=jane", want: `^pods +\[\] +\[\] +\[get list watch\]$`},
		call{args: "auth whoami -o jsonpath={.status.userInfo.username}", want: `^kubernetes-admin$`},
		call{args: "api-resources --verbs=list --namespaced -o name", want: `^deployments.apps$`},
		call{args: "api-versions", want: `^apps/v1$`},
		call{args: "explain deployment.spec.strategy.type", want: `^FIELD: type <string>$`},
		call{args: "explain pod --recursive", want: `imagePullPolicy\t<string>`},
		call{args: "delete deployment web --wait", want: `deleted`},
	)
}
