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
# How many seconds a new server may take.
patience=180
for tool in kind docker kubectl; do
  command -v "$tool" >/dev/null || { echo "$tool is not installed" >&2; exit 1; }
done

nodes=$(docker ps --filter "label=io.x-k8s.kind.cluster=$cluster" --filter "label=io.x-k8s.kind.role=control-plane" --format '{{.Names}}')
[ -n "$nodes" ] || { echo "no kind cluster $cluster is running" >&2; exit 1; }
[ "$back" = yes ] || kind load docker-image "$image" --name "$cluster"

# ask NODE PATH: the answer of the server on that node, whatever stands before it.
ask() { docker exec "$1" curl --silent --insecure --max-time 5 "https://127.0.0.1:6443$2" || true; }

# swapped NODE: whether the server that is wanted answers there, and is ready. The one before may answer for some seconds.
swapped() {
  local compiler=rustc
  [ "$back" = yes ] && compiler=gc
  ask "$1" /version | grep -q "\"compiler\": *\"$compiler\"" && [ "$(ask "$1" /readyz)" = ok ]
}

for node in $nodes; do
  if [ "$back" = yes ]; then
    docker exec "$node" cp "$saved" "$manifest"
  else
    # Only the image of kube-apiserver itself: the pod may have other containers. The kubelet takes every file in the folder for a pod, so
    # the new one is written elsewhere.
    docker exec "$node" sh -ec "test -f $saved || cp $manifest $saved
      sed 's#^\( *image:\) .*/kube-apiserver:.*#\1 $image#' $saved >$saved.new
      grep -q ' image: $image\$' $saved.new || { echo 'no image of kube-apiserver in $manifest' >&2; exit 1; }
      mv $saved.new $manifest"
  fi
  echo "swapped the API server of $node; waiting for it"
  end=$((SECONDS + patience))
  until swapped "$node"; do
    if [ $SECONDS -ge $end ]; then
      echo "it does not answer after $patience s; its log:" >&2
      docker exec "$node" sh -c 'crictl logs --tail 30 "$(crictl ps --all --latest --quiet --name kube-apiserver)"' >&2 || true
      exit 1
    fi
    sleep 1
  done
done
kubectl --context "kind-$cluster" version
kubectl --context "kind-$cluster" get nodes
