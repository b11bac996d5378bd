#!/usr/bin/env bash
# Swaps the API server of a running kind cluster for Keelson, on the cluster's own etcd, or back.
#
#   make image && deploy/kind/swap.sh [CLUSTER]      (the cluster's name; `kind` by default)
#   deploy/kind/swap.sh --back [CLUSTER]
set -euo pipefail

back=no
[ "${1:-}" = --back ] && { back=yes; shift; }
cluster=${1:-kind}
image=${IMAGE:-keelson:dev}
manifest=/etc/kubernetes/manifests/kube-apiserver.yaml
saved=/etc/kubernetes/kube-apiserver.before-keelson.yaml
for tool in kind docker kubectl; do
  command -v "$tool" >/dev/null || { echo "$tool is not installed" >&2; exit 1; }
done

nodes=$(docker ps --filter "label=io.x-k8s.kind.cluster=$cluster" --filter "label=io.x-k8s.kind.role=control-plane" --format '{{.Names}}')
[ -n "$nodes" ] || { echo "no kind cluster $cluster is running" >&2; exit 1; }
[ "$back" = yes ] || kind load docker-image "$image" --name "$cluster"

for node in $nodes; do
  if [ "$back" = yes ]; then
    docker exec "$node" sh -c "test -f $saved && cp $saved $manifest"
  else
    docker exec "$node" sh -c "test -f $saved || cp $manifest $saved"
    docker exec "$node" sed -i "s#^\( *image:\) .*#\1 $image#" "$manifest"
  fi
  echo "swapped the API server of $node; waiting for it"
  for _ in $(seq 60); do
    sleep 1
    kubectl --context "kind-$cluster" get --raw /readyz >/dev/null 2>&1 && break
  done
done
kubectl --context "kind-$cluster" version
kubectl --context "kind-$cluster" get nodes
