#!/usr/bin/env bash
# Makes the image with buildah, unpacks it, and starts the server from the image's own root, first as the user of the data folder, then as
# root: it must become ready, know time zones and resolve names. Needs root or unprivileged user namespaces; `make image-test` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
image=keelson:test
export PATH=$PATH:/usr/sbin:/sbin
if [ "$(id -u)" != 0 ]; then exec buildah unshare "$0"; fi

work=$(mktemp -d)
server='' helper=''
# Keeps the exit status: how what is killed here ends (etcd: 143) is no result of the test.
finish() {
  local status=$? process
  for process in $helper $server; do
    kill "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  [ -z "${container:-}" ] || buildah rm "$container" >/dev/null 2>&1 || true
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT
fail() {
  echo "$1" >&2
  [ -e "$work/log" ] && tail -n 20 "$work/log" >&2
  exit 1
}

# A store of its own, which needs no overlay file system.
printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/graph"\nrunroot = "%s/run"\n' "$work" "$work" >"$work/storage.conf"
export CONTAINERS_STORAGE_CONF=$work/storage.conf BUILDAH_ISOLATION=chroot
IMAGE_TOOL=buildah scripts/image.sh "$image"
container=$(buildah from --pull-never "$image")
root=$(buildah mount "$container")

settings=$(buildah inspect --type image "$image")
for want in '"keelson"' '--data-dir=/data' 'PATH=/usr/local/bin' 'org.opencontainers.image.revision'; do
  grep -q -e "$want" <<<"$settings" || fail "the image's settings lack $want"
done
[ "$(chroot "$root" /usr/local/bin/kube-apiserver --version | cut -d ' ' -f 1)" = Kubernetes ] || fail "kube-apiserver --version"

kubectl=$PWD/.tools/bin/kubectl
[ -x "$kubectl" ] || kubectl=kubectl
etcd=${KEELSON_ETCD:-$PWD/.tools/bin/etcd}
port=$((20000 + $$ % 10000))
# Container runtimes write these two files.
printf '127.0.0.1 localhost\n127.0.0.1 elsewhere.test\n' >"$root/etc/hosts"
: >"$root/etc/resolv.conf"

# serve USER FLAG...: starts the server as that user and waits until it is ready.
serve() {
  local user=$1 status
  shift
  env -i "$(command -v chroot)" --userspec="$user" "$root" /usr/local/bin/kube-apiserver \
    --data-dir=/data --bind-address=127.0.0.1 --secure-port=$port "$@" >"$work/log" 2>&1 &
  server=$!
  export KUBECONFIG=$root/data/admin.kubeconfig
  for _ in $(seq 120); do
    kill -0 "$server" 2>/dev/null || fail "the server ended"
    status=$("$kubectl" get --raw /readyz 2>/dev/null || true)
    [ "$status" = ok ] && return
    sleep 0.5
  done
  fail "the server is not ready"
}

# leave: ends the server, which must end well.
leave() {
  kill "$server"
  wait "$server" || fail "the server ended badly"
  server=''
}

serve 65532:65532
"$kubectl" create -o name -f - <<'OBJECT' || fail "a CronJob with a time zone is refused"
{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "early", "namespace": "default"},
 "spec": {"schedule": "0 6 * * *", "timeZone": "Europe/Berlin", "jobTemplate": {"spec": {"template": {"spec": {
  "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}
OBJECT
"$kubectl" get --raw /version | grep -q "\"gitCommit\": *\"$(git rev-parse HEAD)\"" || fail "/version does not tell the commit"
leave
serve 0:0
"$kubectl" get cronjob early -o name || fail "root does not find the data"
leave

# Names are resolved without anything of the host's.
"$etcd" --data-dir="$work/etcd" --listen-client-urls=http://127.0.0.1:$((port + 1)) --advertise-client-urls=http://127.0.0.1:$((port + 1)) \
  --listen-peer-urls=http://127.0.0.1:$((port + 2)) >"$work/etcd.log" 2>&1 &
helper=$!
serve 0:0 --etcd-servers="http://elsewhere.test:$((port + 1))"
leave
echo "the image works: $(du -h "$root/usr/local/bin/keelson" | cut -f 1) of binary"
