#!/usr/bin/env bash
# Installs what building and testing Keelson needs on a Debian machine that has Rust and Go.
#
#   scripts/install-tools.sh build     what compiling needs: a C compiler
#   scripts/install-tools.sh test      and what the tests need: openssl, curl, a real etcd 3.6 in .tools/bin
#   scripts/install-tools.sh e2e       and a real kubectl, kube-controller-manager, kube-scheduler, sample-apiserver, prometheus and
#                                      promtool in .tools/bin
#   scripts/install-tools.sh envtest   what `build` installs, and a real kubectl in .tools/bin
#   scripts/install-tools.sh bench     what `test` installs, and nginx to compare with
#   scripts/install-tools.sh image     what `build` installs, and buildah to make the image with and look into it
#
# Running it again costs nothing. The Go tools are built from their modules at the versions that e2e/go.mod
# pins, with Go's own caches, and built again only when a pin changes.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.tools
mkdir -p "$tools/bin"

say() { echo "== $*"; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
    echo "need root (or sudo) to run: $*" >&2
    exit 1
  fi
}

# apt_for COMMAND HINT: makes the lists of packages current, once; fails with the hint where this is no Debian.
apt_for() {
  command -v apt-get >/dev/null || { echo "$1 is missing and this is no Debian: $2" >&2; exit 1; }
  export DEBIAN_FRONTEND=noninteractive
  if [ ! -e "$tools/.apt-updated" ]; then
    as_root apt-get update -qq
    touch "$tools/.apt-updated"
  fi
}

# need COMMAND PACKAGE...: installs the packages unless the command is there.
need() {
  local command=$1
  shift
  command -v "$command" >/dev/null && return
  apt_for "$command" "install it (Debian calls it $*)"
  say "installing $*"
  as_root apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# present COMMAND HINT: fails with the hint unless the command is there.
present() {
  command -v "$1" >/dev/null || { echo "$1 is missing: $2" >&2; exit 1; }
}

# go_build NAME MODULE_DIR PACKAGE STAMP LDFLAGS: builds .tools/bin/NAME unless it was built with the same stamp.
go_build() {
  local name=$1 dir=$2 package=$3 stamp=$4 ldflags=$5
  if [ -x "$tools/bin/$name" ] && [ "$(cat "$tools/bin/$name.stamp" 2>/dev/null)" = "$stamp" ]; then
    return
  fi
  present go "install Go 1.26 or later"
  say "building $name (${stamp%% *}); a few minutes the first time"
  local start=$SECONDS
  (while sleep 20; do echo "   ... $name: $((SECONDS - start)) s"; done) &
  local ticker=$!
  local status=0
  (cd "$dir" && go build -buildvcs=false -trimpath -ldflags "-s -w $ldflags" -o "$tools/bin/$name.new" "$package") || status=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  [ "$status" = 0 ] || { echo "building $name failed" >&2; exit "$status"; }
  mv "$tools/bin/$name.new" "$tools/bin/$name"
  echo "$stamp" >"$tools/bin/$name.stamp"
  say "built $name in $((SECONDS - start)) s"
}

# pinned MODULE: its version in e2e/go.mod.
pinned() { awk -v module="$1" '$1 == module { print $2; exit }' e2e/go.mod; }

build() {
  present cargo "install Rust 1.95 or later (rustup)"
  need cc gcc libc6-dev
}

test_tools() {
  build
  need openssl openssl
  need curl curl ca-certificates
  local etcd
  etcd=$(pinned go.etcd.io/etcd/server/v3)
  go_build etcd e2e ./cmd/etcd "$etcd" ""
}

# kubernetes_tools NAME...: commands of Kubernetes, at the version of their modules.
kubernetes_tools() {
  local version at=k8s.io/component-base/version
  version=$(pinned k8s.io/kubernetes)
  for tool in "$@"; do
    go_build "$tool" e2e "./cmd/$tool" "$version" \
      "-X $at.gitVersion=$version -X $at.gitMajor=1 -X $at.gitMinor=$(echo "$version" | cut -d. -f2)"
  done
}

e2e_tools() {
  test_tools
  kubernetes_tools kubectl kube-scheduler kube-controller-manager
  local sample
  sample=$(pinned k8s.io/sample-apiserver)
  go_build sample-apiserver e2e ./cmd/sample-apiserver "$sample" ""
  prometheus_tools
}

# Debian's Prometheus, unpacked and not installed: the package would start it as a service.
prometheus_tools() {
  if [ -x "$tools/bin/prometheus" ] && [ -x "$tools/bin/promtool" ]; then return; fi
  apt_for prometheus "put prometheus and promtool into .tools/bin"
  say "unpacking prometheus"
  local folder
  folder=$(mktemp -d)
  (cd "$folder" && apt-get download -qq prometheus && dpkg -x prometheus_*.deb .)
  cp "$folder/usr/bin/prometheus" "$folder/usr/bin/promtool" "$tools/bin/"
  rm -r "$folder"
}

bench_tools() {
  test_tools
  [ -x /usr/sbin/nginx ] || need nginx nginx-light
}

image_tools() {
  build
  [ -e /etc/ssl/certs/ca-certificates.crt ] || need update-ca-certificates ca-certificates
  need buildah buildah
}

case ${1:-e2e} in
  build) build ;;
  test) test_tools ;;
  e2e) e2e_tools ;;
  envtest) build && kubernetes_tools kubectl ;;
  bench) bench_tools ;;
  image) image_tools ;;
  *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
