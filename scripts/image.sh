#!/usr/bin/env bash
# Makes a container image of target/dist/keelson (scripts/dist.sh) and what it needs. Nothing is pulled and nothing is compiled in it.
#
#   scripts/image.sh [IMAGE]     with docker, podman or buildah, whichever works (or $IMAGE_TOOL); keelson:dev by default
set -euo pipefail
cd "$(dirname "$0")/.."
image=${1:-keelson:dev}
# The user that a pod of the chart runs as; root can write to the data of others anyway.
user=65532
target=$(${CARGO:-cargo} metadata --format-version 1 --no-deps | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
context=$target/image root=$target/image/root
[ -x "$target/dist/keelson" ] || { echo "$target/dist/keelson is missing: make dist" >&2; exit 1; }

for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem ''; do
  [ -e "$bundle" ] && break
done
[ -n "$bundle" ] || { echo "no CA certificates found: install ca-certificates" >&2; exit 1; }

rm -rf "$context"
mkdir -p "$root/usr/local/bin" "$root/etc/ssl/certs" "$root/data" "$root/tmp"
cp "$target/dist/keelson" "$root/usr/local/bin/keelson"
# The same binary, so that a static pod whose image is swapped starts it with its own command line.
ln -s keelson "$root/usr/local/bin/kube-apiserver"
cp -L "$bundle" "$root/etc/ssl/certs/ca-certificates.crt"
echo "hosts: files dns" >"$root/etc/nsswitch.conf"
printf 'root:x:0:0::/:/\nkeelson:x:%s:%s::/data:/\n' $user $user >"$root/etc/passwd"
printf 'root:x:0:\nkeelson:x:%s:\n' $user >"$root/etc/group"
chmod -R u=rwX,go=rX "$root"
chmod 1777 "$root/tmp"
# As a tar archive, owners and modes come out the same whoever makes it.
pack() { tar -C "$root" --sort=name --mtime=@0 --numeric-owner "$@"; }
pack --owner=0 --group=0 -cf "$context/rootfs.tar" --exclude=./data .
pack --owner=$user --group=$user -rf "$context/rootfs.tar" ./data

tool=${IMAGE_TOOL:-}
for candidate in docker podman buildah; do
  [ -z "$tool" ] && command -v $candidate >/dev/null && $candidate info >/dev/null 2>&1 && tool=$candidate
done
[ -n "$tool" ] || { echo "$context/rootfs.tar is made; an image of it needs docker, podman or buildah, and none works here" >&2; exit 1; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
$tool build --file Dockerfile --tag "$image" --build-arg "VERSION=$version" \
  --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || true)" \
  --build-arg "CREATED=$(TZ=UTC git show -s --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd HEAD 2>/dev/null || true)" "$context"
echo "built $image with $tool"
