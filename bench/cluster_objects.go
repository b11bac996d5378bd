package main

import (
	"fmt"
	"time"
)

// The objects of the cluster in miniature. Those that are there from the start are created in JSON; what kubelets, controllers and
// the scheduler write while the load lasts is protobuf, as theirs is, and patches are JSON.

const (
	// imagesOfNode are how many images a node reports, which is most of its size.
	imagesOfNode = 30
	// endpointsOfSlice are how many endpoints an EndpointSlice has.
	endpointsOfSlice = 20
	leaseNamespace   = "kube-node-lease"
	leaseSeconds     = 40
	// widgetGroup is the API group of the custom resource.
	widgetGroup = "bench.example.org"
)

// nodeConditions are what a kubelet reports, and the status of a healthy node.
var nodeConditions = [][2]string{{"MemoryPressure", "False"}, {"DiskPressure", "False"}, {"PIDPressure", "False"}, {"Ready", "True"}}

func clusterNode(i int) string { return fmt.Sprintf("worker-%03d", i) }

// stamp is the time of the i-th change of something.
func stamp(i int) string { return time.Unix(1_790_000_000+int64(i), 0).UTC().Format(time.RFC3339) }

func nodeObject(i int) []byte {
	name := clusterNode(i)
	var conditions, images []object
	for _, c := range nodeConditions {
		conditions = append(conditions, object{"type": c[0], "status": c[1], "reason": "Kubelet" + c[0], "message": "kubelet reports " + c[0] + "=" + c[1],
			"lastHeartbeatTime": stamp(0), "lastTransitionTime": stamp(0)})
	}
	for n := range imagesOfNode {
		image := fmt.Sprintf("registry.example.org/team-%d/service-%02d", n%7, n)
		images = append(images, object{"names": []string{image + "@sha256:f2ca1bb6c7e907d06dafe4687e579fce76b37e4e93b7605022da52e6ccc26fd2", image + ":1.4.2"}, "sizeBytes": 50_000_000 + n})
	}
	capacity := object{"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "200Gi"}
	return encode(object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": object{"name": name, "labels": object{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
			"topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", i%3), "node.kubernetes.io/instance-type": "large"}},
		"spec": object{"podCIDR": "10.244.0.0/24", "podCIDRs": []string{"10.244.0.0/24"}, "providerID": "bench://" + name},
		"status": object{
			"capacity": capacity, "allocatable": capacity, "conditions": conditions, "images": images,
			"addresses": []object{{"type": "InternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": name}},
			"nodeInfo": object{"architecture": "amd64", "bootID": name, "containerRuntimeVersion": "containerd://2.1.0", "kernelVersion": "6.12.0", "kubeProxyVersion": "",
				"kubeletVersion": "v1.36.2", "machineID": name, "operatingSystem": "linux", "osImage": "Debian GNU/Linux 13", "systemUUID": name},
		},
	})
}

// nodeStatus is a kubelet's patch when nothing but the time has changed.
func nodeStatus(turn int) []byte {
	var order, conditions []object
	for _, c := range nodeConditions {
		order = append(order, object{"type": c[0]})
		conditions = append(conditions, object{"type": c[0], "lastHeartbeatTime": stamp(turn)})
	}
	return encode(object{"status": object{"$setElementOrder/conditions": order, "conditions": conditions}})
}

func leaseObject(node string) []byte {
	return encode(object{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": object{"name": node, "namespace": leaseNamespace},
		"spec": object{"holderIdentity": node, "leaseDurationSeconds": leaseSeconds, "renewTime": "2026-01-01T00:00:00.000000Z"}})
}

// renewedLease is the lease with the metadata that the server sent last, as a kubelet keeps it.
func renewedLease(node string, metadata []byte, now time.Time) []byte {
	at := message(4, varint(1, uint64(now.Unix())), varint(2, uint64(now.Nanosecond()/1000*1000)))
	return whole("coordination.k8s.io/v1", "Lease", text(1, metadata), message(2, text(1, node), varint(2, leaseSeconds), at))
}

// standingPod is a pod that is there from the start. It refers to the ConfigMap and the Secret that its kubelet watches.
func standingPod(i, node int) []byte {
	pod := podObject(i)
	spec := pod["spec"].(object)
	spec["nodeName"] = clusterNode(node)
	spec["volumes"] = append(spec["volumes"].([]object), object{"name": "tls", "secret": object{"secretName": "web-tls"}})
	return encode(pod)
}

func churnName(i int) string { return fmt.Sprintf("churn-7f9c6d5b4-%06d", i) }

// churnPod is what a controller of ReplicaSets creates, with a spec as the server sends it for such a pod.
func churnPod(i int, spec []byte) []byte {
	label := func(key, value string) []byte { return message(11, text(1, key), text(2, value)) }
	return whole("v1", "Pod", message(1, text(1, churnName(i)), text(3, podNamespace(i)),
		label("app", "churn"), label("group", fmt.Sprintf("g%02d", i%groups)), label("pod-template-hash", "7f9c6d5b4"),
		message(13, text(1, "ReplicaSet"), text(3, "churn-7f9c6d5b4"), text(4, "0e9c5a0e-3bd1-4f6b-bd2c-0b8e1f2d3c4b"), text(5, "apps/v1"), varint(6, 1), varint(7, 1))),
		text(2, spec))
}

func binding(i int, uid, node string) []byte {
	return whole("v1", "Binding", message(1, text(1, churnName(i)), text(3, podNamespace(i)), text(5, uid)), message(2, text(1, "Node"), text(3, node)))
}

// eventObject is one of the events that a pod's life leaves.
func eventObject(i int, uid, reason, component, node string, now time.Time) []byte {
	at := varint(1, uint64(now.Unix()))
	return whole("v1", "Event", message(1, text(1, fmt.Sprintf("%s.%x", churnName(i), now.UnixNano())), text(3, podNamespace(i))),
		message(2, text(1, "Pod"), text(2, podNamespace(i)), text(3, churnName(i)), text(4, uid), text(5, "v1"), text(7, "spec.containers{web}")),
		text(3, reason), text(4, "Container web: "+reason), message(5, text(1, component), text(2, node)),
		message(6, at), message(7, at), varint(8, 1), text(9, "Normal"))
}

// deleteNow is what a kubelet deletes a pod with when its containers are gone.
func deleteNow(uid string) []byte {
	return whole("v1", "DeleteOptions", varint(1, 0), message(2, text(1, uid)))
}

func serviceName(i int) string { return fmt.Sprintf("web-%02d", i) }

func serviceObject(i int) []byte {
	return encode(object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": serviceName(i)},
		"spec": object{"selector": object{"app": "web"}, "ports": []object{{"name": "http", "port": 80, "targetPort": 8080}}}})
}

func sliceObject(i int) []byte {
	return encode(object{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": object{"name": serviceName(i), "labels": object{"kubernetes.io/service-name": serviceName(i),
			"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
		"endpoints": []object{{"addresses": []string{"10.244.0.1"}}}, "ports": []object{{"name": "http", "protocol": "TCP", "port": 8080}}})
}

// changedSlice is a slice in which another endpoint is not ready.
func changedSlice(i, turn int, metadata []byte) []byte {
	parts := [][]byte{text(1, metadata)}
	for n := range endpointsOfSlice {
		ready := varint(1, 1)
		if n == turn%endpointsOfSlice {
			ready = varint(1, 0)
		}
		target := message(4, text(1, "Pod"), text(2, podNamespace(i)), text(3, podName(n)), text(4, "0e9c5a0e-3bd1-4f6b-bd2c-0b8e1f2d3c4b"))
		parts = append(parts, message(2, text(1, fmt.Sprintf("10.244.%d.%d", i, n+1)), message(2, ready, varint(2, 1), varint(3, 0)), target,
			text(6, clusterNode(n)), text(7, fmt.Sprintf("zone-%d", n%3))))
	}
	parts = append(parts, message(3, text(1, "http"), text(2, "TCP"), varint(3, 8080)), text(4, "IPv4"))
	return whole("discovery.k8s.io/v1", "EndpointSlice", parts...)
}

// widgetDefinition is a custom resource with a structural schema, a status and a column.
func widgetDefinition() []byte {
	text := object{"type": "string"}
	properties := func(of object) object { return object{"type": "object", "properties": of} }
	condition := properties(object{"type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": object{"type": "string", "format": "date-time"}})
	schema := properties(object{
		"spec": properties(object{
			"size": object{"type": "integer", "minimum": 0, "default": 1}, "mode": object{"type": "string", "enum": []string{"fast", "safe"}},
			"parts": object{"type": "array", "items": properties(object{"name": text, "value": text})},
		}),
		"status": properties(object{"phase": text, "observed": object{"type": "integer"}, "conditions": object{"type": "array", "items": condition,
			"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []string{"type"}}}),
	})
	// A key of a list of objects has to be there.
	condition["required"] = []string{"type"}
	return encode(object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": "widgets." + widgetGroup},
		"spec": object{
			"group": widgetGroup, "scope": "Namespaced", "names": object{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []object{{"name": "v1", "served": true, "storage": true, "schema": object{"openAPIV3Schema": schema}, "subresources": object{"status": object{}},
				"additionalPrinterColumns": []object{{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}}}},
		},
	})
}

func widget(name string, i int) []byte {
	parts := []object{}
	for n := range 10 {
		parts = append(parts, object{"name": fmt.Sprintf("part-%d", n), "value": fmt.Sprintf("value %d of widget %d", n, i)})
	}
	return encode(object{"apiVersion": widgetGroup + "/v1", "kind": "Widget",
		"metadata": object{"name": name, "labels": object{"app": "widget", "group": fmt.Sprintf("g%02d", i%groups)}}, "spec": object{"mode": "safe", "parts": parts}})
}

func widgetStatus(turn int) []byte {
	return encode(object{"status": object{"phase": "Ready", "observed": turn,
		"conditions": []object{{"type": "Ready", "status": "True", "reason": "Done", "message": fmt.Sprintf("turn %d", turn), "lastTransitionTime": stamp(turn)}}}})
}
