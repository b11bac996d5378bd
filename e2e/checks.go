package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// check is one thing that must work: a run of kubectl whose output must match, or a function for what one run cannot say.
type check struct {
	name string
	// args of kubectl, separated by spaces; `'a b'` is one.
	args  string
	stdin string
	env   []string
	// want are expressions that the output must match, wantNot those that it may not.
	want, wantNot []string
	// fails: kubectl must exit with an error.
	fails bool
	// run replaces all of the above.
	run func(context.Context, *cluster) error
}

func (k check) do(ctx context.Context, c *cluster) error {
	if k.run != nil {
		return k.run(ctx, c)
	}
	out, err := c.kubectl(ctx, call{args: fields(k.args), stdin: k.stdin, env: k.env})
	if (err != nil) != k.fails {
		return fmt.Errorf("kubectl %s: %v\n%s", k.args, err, shorten(out))
	}
	for _, want := range k.want {
		if !regexp.MustCompile("(?m)" + want).MatchString(out) {
			return fmt.Errorf("kubectl %s\nno match for %q in:\n%s", k.args, want, shorten(out))
		}
	}
	for _, not := range k.wantNot {
		if regexp.MustCompile("(?m)" + not).MatchString(out) {
			return fmt.Errorf("kubectl %s\n%q matches in:\n%s", k.args, not, shorten(out))
		}
	}
	return nil
}

var word = regexp.MustCompile(`'[^']*'|\S+`)

func fields(args string) []string {
	words := word.FindAllString(args, -1)
	for i := range words {
		words[i] = strings.Trim(words[i], "'")
	}
	return words
}

// shorten keeps the start of a long output.
func shorten(text string) string {
	const most = 3000
	if len(text) > most {
		return text[:most] + "\n..."
	}
	return text
}

const configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: applied}, data: {key: "%s"}}`

const pod = `
apiVersion: v1
kind: Pod
metadata: {name: single, labels: {app: single}}
spec:
  containers:
  - name: main
    image: busybox:1.36
    command: [sleep, "1000"]
    resources: {requests: {cpu: 100m, memory: 64Mi}}
    ports: [{containerPort: 8080}]
`

const application = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: api}
spec:
  replicas: 2
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec: {containers: [{name: api, image: "api:%s", env: [{name: MODE, value: plain}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: api}
spec: {selector: {app: api}, ports: [{name: http, port: 80, targetPort: 8080}]}
`

const node = `{apiVersion: v1, kind: Node, metadata: {name: worker-1, labels: {kubernetes.io/hostname: worker-1}}}`

// checks run in this order, on one server; later ones use what earlier ones made.
var checks = []check{
	{name: "starts fast and stays small", run: fastAndSmall},
	{name: "version", args: "version", want: []string{`^Server Version: v1\.36\.`}, wantNot: []string{"WARNING"}},
	{name: "cluster-info", args: "cluster-info", want: []string{"control plane.* is running at .*https://127.0.0.1:"}},
	{name: "api-versions", args: "api-versions", want: []string{`^apps/v1$`, `^v1$`, `^rbac.authorization.k8s.io/v1$`}},
	{name: "api-resources", args: "api-resources", want: []string{
		`^configmaps +cm +v1 +true +ConfigMap$`, `^deployments +deploy +apps/v1 +true +Deployment$`, `^namespaces +ns +v1 +false +Namespace$`,
		`^horizontalpodautoscalers +hpa +autoscaling/v2 +true +HorizontalPodAutoscaler$`,
	}},
	{name: "api-resources by verb and group", args: "api-resources --api-group=batch --verbs=list,watch -o name",
		want: []string{`^cronjobs.batch$`, `^jobs.batch$`}, wantNot: []string{"pods"}},
	{name: "get namespaces", args: "get namespaces", want: []string{`^NAME +STATUS +AGE$`, `^default +Active +\d`, `^kube-system +Active`}},
	{name: "create deployment", args: "create deployment web --image=nginx --replicas=2", want: []string{`^deployment.apps/web created$`}},
	{name: "create it again", args: "create deployment web --image=nginx", fails: true,
		want: []string{`deployments.apps "web" already exists`}},
	{name: "get several kinds", args: "get deploy,ns,clusterroles", want: []string{
		`^deployment.apps/web +0/2 +0 +0 +\d`, `^namespace/default +Active`, `^clusterrole.rbac.authorization.k8s.io/cluster-admin `}},
	{name: "get -o wide", args: "get deployments -o wide", want: []string{
		`^NAME +READY +UP-TO-DATE +AVAILABLE +AGE +CONTAINERS +IMAGES +SELECTOR$`, `^web +0/2 +0 +0 +\S+ +nginx +nginx +app=web$`}},
	{name: "get -o yaml", args: "get deployment web -o yaml", want: []string{
		`^  revisionHistoryLimit: 10$`, `^    type: RollingUpdate$`, `^        imagePullPolicy: Always$`, `^status: \{\}$`}, wantNot: []string{"managedFields"}},
	{name: "managed fields", args: "get deployment web -o yaml --show-managed-fields", want: []string{
		`manager: kubectl-create`, `operation: Update`, `f:replicas: \{\}`}},
	{name: "get -o jsonpath", args: "get deployment web -o jsonpath={.spec.template.spec.containers[*].image}", want: []string{`^nginx$`}},
	{name: "get -o custom-columns", args: "get deployment web -o custom-columns=N:.metadata.name,R:.spec.replicas", want: []string{`^web +2$`}},
	{name: "describe deployment", args: "describe deployment web", want: []string{
		`^Name: +web$`, `^Namespace: +default$`, `^Selector: +app=web$`, `^Replicas: +2 desired \| 0 updated`, `^ +Image: +nginx$`}},
	{name: "get what is not there", args: "get deployment nothing", fails: true,
		want: []string{`^Error from server \(NotFound\): deployments.apps "nothing" not found$`}},
	{name: "get a kind that is not there", args: "get wombats", fails: true, want: []string{`doesn't have a resource type "wombats"`}},

	// A controller of Kubernetes makes it, and none runs here.
	{name: "create the default service account", args: "create serviceaccount default", want: []string{`^serviceaccount/default created$`}},
	{name: "create pod from yaml", args: "create -f -", stdin: pod, want: []string{`^pod/single created$`}},
	{name: "get pods -o wide", args: "get pods -o wide", want: []string{
		`^NAME +READY +STATUS +RESTARTS +AGE +IP +NODE +NOMINATED NODE +READINESS GATES$`, `^single +0/1 +Pending +0 +\S+ +<none> +<none>`}},
	{name: "describe pod", args: "describe pod single", want: []string{
		`^Status: +Pending$`, `^QoS Class: +Burstable$`, `^ +Image: +busybox:1.36$`, `memory: +64Mi`, `node.kubernetes.io/not-ready:NoExecute op=Exists for 300s`}},
	{name: "get by label and field", args: "get pods -l app=single --field-selector=status.phase=Pending -o name", want: []string{`^pod/single$`}},
	{name: "get in all namespaces", args: "get pods -A", want: []string{`^default +single +0/1 +Pending`}},
	{name: "get sorted", args: "get clusterroles --sort-by=.metadata.name -o name", want: []string{`clusterrole.rbac.authorization.k8s.io/view`}},

	{name: "apply creates", args: "apply -f -", stdin: fmt.Sprintf(configMap, "1"), want: []string{`^configmap/applied created$`}},
	{name: "apply changes", args: "apply -f -", stdin: fmt.Sprintf(configMap, "2"), want: []string{`^configmap/applied configured$`}},
	{name: "apply changes nothing", args: "apply -f -", stdin: fmt.Sprintf(configMap, "2"), want: []string{`^configmap/applied unchanged$`}},
	{name: "apply several", args: "apply -f -", stdin: fmt.Sprintf(application, "1"), want: []string{`^deployment.apps/api created$`, `^service/api created$`}},
	{name: "apply a change of one", args: "apply -f -", stdin: fmt.Sprintf(application, "2"),
		want: []string{`^deployment.apps/api configured$`, `^service/api unchanged$`}},
	{name: "apply dry run", args: "apply --dry-run=server -f -", stdin: fmt.Sprintf(application, "3"), want: []string{`^deployment.apps/api configured \(server dry run\)$`}},
	{name: "a dry run changed nothing", args: "get deployment api -o jsonpath={.spec.template.spec.containers[0].image}", want: []string{`^api:2$`}},
	{name: "diff", args: "diff -f -", stdin: fmt.Sprintf(application, "4"), fails: true, want: []string{`^-.*image: api:2$`, `^\+.*image: api:4$`}},
	{name: "strict validation", args: "create --validate=strict -f -", fails: true,
		stdin: strings.Replace(pod, "containers:", "containerz: []\n  containers:", 1), want: []string{`unknown field "spec.containerz"`}},
	{name: "validation by the server", args: "create --validate=false -f -", fails: true,
		stdin: strings.Replace(strings.Replace(pod, "single", "bad", 1), "8080", "80800", 1),
		want:  []string{`The Pod "bad" is invalid: spec.containers\[0\].ports\[0\].containerPort: Invalid value: 80800: must be between 1 and 65535, inclusive`}},
	{name: "replace", args: "replace -f -", stdin: fmt.Sprintf(configMap, "3"), want: []string{`^configmap/applied replaced$`}},

	{name: "edit", args: "edit deployment web", env: []string{"KUBE_EDITOR=sed -i s/replicas:.2/replicas:\\ 3/"}, want: []string{`^deployment.apps/web edited$`}},
	{name: "edit did it", args: "get deployment web -o jsonpath={.spec.replicas}/{.metadata.generation}", want: []string{`^3/2$`}},
	{name: "edit without a change", args: "edit deployment web", env: []string{"KUBE_EDITOR=true"}, want: []string{`Edit cancelled, no changes made`}},
	{name: "label", args: "label deployment web tier=front", want: []string{`^deployment.apps/web labeled$`}},
	{name: "label that is there", args: "label deployment web tier=back", fails: true, want: []string{`'tier' already has a value`}},
	{name: "label overwrites", args: "label deployment web tier=back --overwrite", want: []string{`^deployment.apps/web labeled$`}},
	{name: "get shows labels", args: "get deployment web -L tier --show-labels", want: []string{`TIER +LABELS$`, `back +app=web,tier=back$`}},
	{name: "label goes", args: "label deployment web tier-", want: []string{`^deployment.apps/web unlabeled$`}},
	{name: "annotate", args: "annotate deployment web 'note=a b'", want: []string{`^deployment.apps/web annotated$`}},
	{name: "annotation goes", args: "annotate deployment web note-", want: []string{`^deployment.apps/web annotated$`}},
	{name: "patch, merge", args: `patch deployment web --type=merge -p {"spec":{"paused":true}}`, want: []string{`^deployment.apps/web patched$`}},
	{name: "patch, json", args: `patch deployment web --type=json -p [{"op":"remove","path":"/spec/paused"}]`, want: []string{`^deployment.apps/web patched$`}},
	{name: "patch, strategic", args: `patch deployment web -p {"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side"}]}}}}`,
		want: []string{`^deployment.apps/web patched$`}},
	{name: "strategic patch merged the list", args: "get deployment web -o jsonpath={.spec.template.spec.containers[*].name}", want: []string{`^side nginx$`}},
	{name: "patch without a change", args: `patch deployment web --type=merge -p {"spec":{"replicas":3}}`, want: []string{`patched \(no change\)$`}},
	{name: "scale", args: "scale deployment web --replicas=5", want: []string{`^deployment.apps/web scaled$`}},
	{name: "set image", args: "set image deployment/web nginx=nginx:1.29", want: []string{`^deployment.apps/web image updated$`}},
	{name: "set env", args: "set env deployment/web MODE=fast", want: []string{`^deployment.apps/web env updated$`}},
	{name: "rollout restart", args: "rollout restart deployment/web", want: []string{`^deployment.apps/web restarted$`}},
	{name: "autoscale", args: "autoscale deployment web --min=1 --max=4 --cpu=80%", want: []string{`^horizontalpodautoscaler.autoscaling/web autoscaled$`}},
	{name: "get hpa", args: "get hpa web", want: []string{`^web +Deployment/web +cpu: <unknown>/80% +1 +4 +0 +`}},
	{name: "expose", args: "expose deployment web --port=80 --name=front", want: []string{`^service/front exposed$`}},
	{name: "get services", args: "get services", want: []string{`^front +ClusterIP +10\.\d+\.\d+\.\d+ +<none> +80/TCP +`, `^kubernetes +ClusterIP +10\.\d+\.\d+\.1 +<none> +443/TCP`}},
	{name: "describe service", args: "describe service front", want: []string{`^Type: +ClusterIP$`, `^Session Affinity: +None$`, `^Port: +<unset> +80/TCP$`}},

	{name: "create configmap", args: "create configmap settings --from-literal=a=1", want: []string{`created$`}},
	{name: "create secret", args: "create secret generic key --from-literal=token=s3", want: []string{`^secret/key created$`}},
	{name: "get secret", args: "get secret key -o jsonpath={.data.token}", want: []string{`^czM=$`}},
	{name: "create serviceaccount", args: "create serviceaccount robot", want: []string{`created$`}},
	{name: "create token", args: "create token robot", want: []string{`^ey[\w-]+\.ey[\w-]+\.[\w-]+$`}},
	{name: "create role", args: "create role reader --verb=get,list --resource=pods", want: []string{`created$`}},
	{name: "create rolebinding", args: "create rolebinding readers --role=reader --serviceaccount=default:robot", want: []string{`created$`}},
	{name: "describe role", args: "describe role reader", want: []string{`pods +\[\] +\[\] +\[get list\]`}},
	{name: "create job", args: "create job once --image=busybox -- true", want: []string{`^job.batch/once created$`}},
	{name: "get job", args: "get job once", want: []string{`^once +\S* *0/1 `}},
	{name: "create cronjob", args: "create cronjob often --image=busybox '--schedule=*/5 * * * *' -- true", want: []string{`created$`}},
	{name: "get cronjob", args: "get cronjob often", want: []string{`^often +\*/5 \* \* \* \* +<none> +False +0 +<none>`}},
	{name: "create ingress", args: "create ingress site --rule=example.org/=web:80", want: []string{`created$`}},
	{name: "get ingress", args: "get ingress site", want: []string{`^site +<none> +example.org +80 `}},
	{name: "create pdb", args: "create poddisruptionbudget web --selector=app=web --min-available=1", want: []string{`created$`}},
	{name: "create quota", args: "create quota few --hard=pods=9", want: []string{`created$`}},
	{name: "create priorityclass", args: "create priorityclass high --value=1000", want: []string{`created$`}},
	{name: "create node", args: "create -f -", stdin: node, want: []string{`^node/worker-1 created$`}},
	{name: "get nodes", args: "get nodes", want: []string{`^worker-1 +Unknown +<none> `}},
	{name: "cordon", args: "cordon worker-1", want: []string{`^node/worker-1 cordoned$`}},
	{name: "taint", args: "taint nodes worker-1 a=b:NoSchedule", want: []string{`^node/worker-1 tainted$`}},
	{name: "get events", args: "get events", want: []string{`No resources found|LAST SEEN`}},

	{name: "explain a kind", args: "explain deployment", want: []string{
		`^GROUP: +apps$`, `^KIND: +Deployment$`, `^VERSION: +v1$`, `^DESCRIPTION:$`, `^  spec\t<DeploymentSpec>$`}},
	{name: "explain a field", args: "explain pods.spec.containers.imagePullPolicy", want: []string{
		`^FIELD: imagePullPolicy <string>$`, `^ENUM:$`, `IfNotPresent`}},
	{name: "explain recursively", args: "explain service.spec --recursive", want: []string{`targetPort\t<IntOrString>`}},
	{name: "auth can-i", args: "auth can-i create pods", want: []string{`^yes$`}},
	{name: "auth can-i as another", args: "auth can-i create pods --as=alice", fails: true, want: []string{`^no$`}},
	{name: "auth can-i as a service account", args: "auth can-i list pods --as=system:serviceaccount:default:robot", want: []string{`^yes$`}},
	{name: "auth can-i --list", args: "auth can-i --list --as=system:serviceaccount:default:robot", want: []string{`^pods +\[\] +\[\] +\[get list\]$`}},
	{name: "auth whoami", args: "auth whoami", want: []string{`^Groups +\[.*system:authenticated.*\]$`}},
	{name: "forbidden", args: "get secrets --as=alice", fails: true, want: []string{
		`^Error from server \(Forbidden\): secrets is forbidden: User "alice" cannot list resource "secrets" in API group "" in the namespace "default"$`}},
	{name: "get --raw", args: "get --raw /livez?verbose", want: []string{`^\[\+\]ping ok$`, `livez check passed$`}},

	{name: "get -w", run: getWatch},
	{name: "wait", args: "wait --for=jsonpath={.spec.replicas}=5 deployment/web --timeout=10s", want: []string{`condition met$`}},
	{name: "delete waits for it", args: "delete configmap settings", want: []string{`^configmap "settings" deleted`}},
	{name: "delete by label", args: "delete deployments,services -l app=web", want: []string{`deployment.apps "web" deleted`, `service "front" deleted`}},
	{name: "delete pod", args: "delete pod single", want: []string{`^pod "single" deleted`}},
	{name: "delete with a file", args: "delete -f -", stdin: fmt.Sprintf(configMap, "3"), want: []string{`^configmap "applied" deleted`}},
	{name: "delete what is not there", args: "delete pod single", fails: true, want: []string{`pods "single" not found`}},
	{name: "delete all of a kind", args: "delete secrets --all", want: []string{`secret "key" deleted`}},
	{name: "create namespace", args: "create namespace team", want: []string{`^namespace/team created$`}},
	{name: "create in it", args: "create configmap theirs -n team", want: []string{`created$`}},
	{name: "delete namespace", args: "delete namespace team --wait=false", want: []string{`^namespace "team" deleted`}},
	{name: "namespace is terminating", args: "get namespace team", want: []string{`^team +Terminating `}},
	{name: "create in a terminating namespace", args: "create configmap late -n team", fails: true,
		want: []string{`unable to create new content in namespace team because it is being terminated`}},

	{name: "what etcd holds", run: storedBytes},
	{name: "restart", run: func(ctx context.Context, c *cluster) error { return c.restartServer(ctx) }},
	{name: "everything is still there", args: "get deployment/api service/api role/reader node/worker-1 -o name", want: []string{
		`^deployment.apps/api$`, `^service/api$`, `^role.rbac.authorization.k8s.io/reader$`, `^node/worker-1$`}},
	{name: "writes go on", args: "scale deployment api --replicas=1", want: []string{`scaled$`}},
}

const (
	// slow and big are far from what a release build takes, so that only a real change for the worse fails.
	slow = time.Second
	big  = 60 // MiB
)

// fastAndSmall looks at how long the server took to be ready on an empty store, and how much memory it has while idle.
func fastAndSmall(_ context.Context, c *cluster) error {
	memory, err := c.memory()
	if err != nil {
		return err
	}
	fmt.Printf("     %-9s ready after %.0f ms, %.0f MiB resident\n", c.store, float64(c.readyAfter.Microseconds())/1000, memory)
	if c.readyAfter > slow || memory > big {
		return fmt.Errorf("more than %v or %d MiB", slow, big)
	}
	return nil
}

// getWatch follows a list with `get -w` while an object comes, changes and goes.
func getWatch(ctx context.Context, c *cluster) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	watch := c.command(ctx, call{args: fields("get configmaps -l watched=yes --watch --output-watch-events")})
	var stderr bytes.Buffer
	watch.Stderr = &stderr
	out, err := watch.StdoutPipe()
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	const object = `{apiVersion: v1, kind: ConfigMap, metadata: {name: watched, labels: {watched: "yes"}}}`
	steps := []struct{ args, line string }{
		{"create -f -", `^ADDED +watched +0 `},
		{`patch configmap watched --type=merge -p {"data":{"a":"1","b":"2"}}`, `^MODIFIED +watched +2 `},
		{"delete configmap watched", `^DELETED +watched +2 `},
	}
	for i, step := range steps {
		if text, err := c.kubectl(ctx, call{args: fields(step.args), stdin: object}); err != nil {
			return fmt.Errorf("kubectl %s: %w\n%s", step.args, err, text)
		}
		if i == 0 { // now that there is something to list, whose line says that the watch runs
			if err := watch.Start(); err != nil {
				return err
			}
			defer func() {
				cancel()
				_ = watch.Wait()
			}()
			lines.Scan() // the header
		}
		if !lines.Scan() || !regexp.MustCompile(step.line).MatchString(lines.Text()) {
			return fmt.Errorf("get -w after kubectl %s: no match for %q in %q\n%s", step.args, step.line, lines.Text(), stderr.String())
		}
	}
	return nil
}

// storedBytes looks into etcd: keys and bytes are kube-apiserver's, so that either can take over from the other.
func storedBytes(_ context.Context, c *cluster) error {
	if c.store != "etcd" {
		return nil
	}
	for key, start := range map[string]string{
		"/registry/deployments/default/api":    "k8s\x00\n\x15\n\x07apps/v1\x12\nDeployment\x12",
		"/registry/services/specs/default/api": "k8s\x00\n\r\n\x02v1\x12\aService\x12",
		"/registry/minions/worker-1":           "k8s\x00\n\n\n\x02v1\x12\x04Node\x12",
		"/registry/roles/default/reader":       "k8s\x00\n$\n\x1crbac.authorization.k8s.io/v1\x12\x04Role\x12",
	} {
		value, err := c.stored(key)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(value, []byte(start)) {
			return fmt.Errorf("%s starts with %q, not %q", key, value[:min(len(value), len(start))], start)
		}
	}
	return nil
}
