package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// namespaces the pods are in, and nodes and groups that they are spread over: a node has ten pods of 10 000, a group one in a hundred.
	namespaces = 20
	nodes      = 1000
	groups     = 100
	// environment is how many variables each container has: so many that a pod comes to about 7.3 KB of JSON.
	environment = 5
)

const (
	jsonType      = "application/json"
	mergePatch    = "application/merge-patch+json"
	strategic     = "application/strategic-merge-patch+json"
	applyPatch    = "application/apply-patch+yaml"
	protobufType  = "application/vnd.kubernetes.protobuf"
	metadataType  = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	tableType     = "application/json;as=Table;g=meta.k8s.io;v=v1"
	configMapSize = 700
)

type object = map[string]any

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // of our own making
	}
	return text
}

func podNamespace(i int) string { return fmt.Sprintf("bench-%02d", i%namespaces) }

func podName(i int) string { return fmt.Sprintf("web-6d4cf56db6-%06d", i) }

func podURL(i int) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/pods/%s", podNamespace(i), podName(i))
}

// pod is what a ReplicaSet makes, with what a scheduler adds.
func pod(i int) []byte { return encode(podObject(i)) }

func podObject(i int) object {
	group := fmt.Sprintf("g%02d", i%groups)
	container := func(name string, port int) object {
		env := []object{{"name": "POD_IP", "valueFrom": object{"fieldRef": object{"fieldPath": "status.podIP"}}}}
		for n := range environment {
			env = append(env, object{"name": fmt.Sprintf("SETTING_%02d", n), "value": fmt.Sprintf("value-%02d-of-%s", n, name)})
		}
		probe := func(path string) object {
			return object{"httpGet": object{"path": path, "port": port}, "periodSeconds": 10, "failureThreshold": 3}
		}
		return object{
			"name": name, "image": "registry.example.org/" + name + ":1.4.2", "command": []string{"/bin/" + name}, "args": []string{"--log-level=info"},
			"ports": []object{{"name": name, "containerPort": port}}, "env": env,
			"resources":     object{"limits": object{"cpu": "1", "memory": "512Mi"}, "requests": object{"cpu": "250m", "memory": "256Mi"}},
			"livenessProbe": probe("/healthz"), "readinessProbe": probe("/ready"),
			"volumeMounts":    []object{{"name": "config", "mountPath": "/etc/" + name, "readOnly": true}},
			"securityContext": object{"allowPrivilegeEscalation": false, "capabilities": object{"drop": []string{"ALL"}}},
		}
	}
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{
			"name": podName(i), "labels": object{"app": "web", "group": group, "pod-template-hash": "6d4cf56db6"},
			"annotations": object{"checksum/config": "f2ca1bb6c7e907d06dafe4687e579fce76b37e4e93b7605022da52e6ccc26fd2"},
			"ownerReferences": []object{{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4cf56db6", "controller": true,
				"blockOwnerDeletion": true, "uid": "0e9c5a0e-3bd1-4f6b-bd2c-0b8e1f2d3c4b"}},
		},
		"spec": object{
			"nodeName": fmt.Sprintf("worker-%03d", i%nodes), "automountServiceAccountToken": false,
			"containers": []object{container("web", 8080), container("proxy", 4143)},
			"volumes":    []object{{"name": "config", "configMap": object{"name": "web"}}},
			"affinity": object{"podAntiAffinity": object{"preferredDuringSchedulingIgnoredDuringExecution": []object{{"weight": 100,
				"podAffinityTerm": object{"labelSelector": object{"matchLabels": object{"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}}}}},
		},
	}
}

func configMap(name string) []byte {
	data := make([]byte, configMapSize)
	for i := range data {
		data[i] = 'a' + byte(i%26)
	}
	return encode(object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": name}, "data": object{"text": string(data), "more": "yes"}})
}

// deployment is to be applied: every turn has other images.
func deployment(name string, turn int) []byte {
	env := []object{}
	for n := range environment {
		env = append(env, object{"name": fmt.Sprintf("SETTING_%02d", n), "value": fmt.Sprintf("value-%02d", n)})
	}
	labels := object{"app": name}
	return encode(object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": name, "labels": labels},
		"spec": object{"replicas": 3, "selector": object{"matchLabels": labels}, "template": object{
			"metadata": object{"labels": labels},
			"spec": object{
				"containers": []object{{
					"name": "web", "image": fmt.Sprintf("registry.example.org/web:%d", turn), "env": env, "ports": []object{{"name": "http", "containerPort": 8080}},
					"resources":      object{"limits": object{"cpu": "1", "memory": "512Mi"}, "requests": object{"cpu": "250m", "memory": "256Mi"}},
					"readinessProbe": object{"httpGet": object{"path": "/ready", "port": 8080}},
					"volumeMounts":   []object{{"name": "config", "mountPath": "/etc/web"}},
				}},
				"volumes": []object{{"name": "config", "configMap": object{"name": "web"}}},
			},
		}},
	})
}

// readyStatus is what a kubelet sends when the containers of a pod are up.
func readyStatus(turn int) []byte {
	at := time.Unix(1_790_000_000+int64(turn), 0).UTC().Format(time.RFC3339)
	condition := func(kind string) object { return object{"type": kind, "status": "True", "lastTransitionTime": at} }
	container := func(name string) object {
		return object{"name": name, "ready": true, "started": true, "restartCount": turn, "image": "registry.example.org/" + name + ":1.4.2",
			"imageID": "", "state": object{"running": object{"startedAt": at}}}
	}
	return encode(object{"status": object{
		"phase": "Running", "hostIP": "192.0.2.1", "podIP": "10.244.1.7", "podIPs": []object{{"ip": "10.244.1.7"}}, "startTime": at,
		"conditions":        []object{condition("Initialized"), condition("Ready"), condition("ContainersReady")},
		"containerStatuses": []object{container("web"), container("proxy")},
	}})
}

func (b *bench) post(path string, body []byte) call {
	return call{method: http.MethodPost, url: b.url + path, mediaType: jsonType, body: body}
}

func (b *bench) patch(path, mediaType string, body []byte) call {
	return call{method: http.MethodPatch, url: b.url + path, mediaType: mediaType, body: body}
}

// namespace makes one with the service account that pods need: no controller runs here that would.
func (b *bench) namespace(name string) error {
	for _, c := range []call{
		b.post("/api/v1/namespaces", encode(object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name}})),
		b.post("/api/v1/namespaces/"+name+"/serviceaccounts", encode(object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": "default"}})),
	} {
		c.client = b.clients[0]
		if _, err := c.send(b.ctx); err != nil {
			return err
		}
	}
	return nil
}

// loadPods creates the pods that are not there yet.
func (b *bench) loadPods() error {
	if left := b.options.pods - b.pods; left > 0 {
		say("  %s: creating %d pods", b.binary.label, left)
		_, err := b.createPods(left)
		return err
	}
	return nil
}

// createPods creates the next n pods.
func (b *bench) createPods(n int) (sample, error) {
	if b.pods == 0 {
		for i := range namespaces {
			if err := b.namespace(podNamespace(i)); err != nil {
				return sample{}, err
			}
		}
	}
	from := b.pods
	b.pods += n
	return b.writes(n, func(i int) call { return b.post("/api/v1/namespaces/"+podNamespace(from+i)+"/pods", pod(from+i)) })
}

// settled is the server's memory after a pause.
func (b *bench) settled() (memory, error) {
	time.Sleep(settle)
	return b.server.memory()
}

// pendingStatus is what a kubelet sends when it has seen a pod.
func pendingStatus(uid string, turn int) []byte {
	at := time.Unix(1_790_000_000+int64(turn), 0).UTC().Format(time.RFC3339)
	container := func(name string) object {
		return object{"name": name, "ready": false, "started": false, "restartCount": 0, "image": "registry.example.org/" + name + ":1.4.2", "imageID": "",
			"state": object{"waiting": object{"reason": "ContainerCreating"}}}
	}
	return encode(object{"metadata": object{"uid": uid}, "status": object{
		"phase": "Pending", "hostIP": "192.0.2.1", "startTime": at, "conditions": []object{{"type": "Initialized", "status": "True", "lastTransitionTime": at}},
		"containerStatuses": []object{container("web"), container("proxy")},
	}})
}
