#!/usr/bin/env bash
# Packs the binaries that envtest wants (KUBEBUILDER_ASSETS): kube-apiserver and etcd, which are both Keelson, and kubectl.
#
#   scripts/envtest.sh KEELSON KUBECTL OUT     makes OUT/envtest-VERSION-OS-ARCH.tar.gz, and the folder OUT/controller-tools/envtest
set -euo pipefail
keelson=$1 kubectl=$2 out=$3

version=$("$keelson" --version | awk '{ print $2 }')
os=$(uname -s | tr '[:upper:]' '[:lower:]')
case $(uname -m) in
  x86_64) arch=amd64 ;;
  aarch64 | arm64) arch=arm64 ;;
  *) arch=$(uname -m) ;;
esac
assets=$out/controller-tools/envtest
rm -rf "$assets"
mkdir -p "$assets"
cp "$keelson" "$assets/kube-apiserver"
# The name says what it is to do.
ln -s kube-apiserver "$assets/etcd"
cp "$kubectl" "$assets/kubectl"
archive=$out/envtest-$version-$os-$arch.tar.gz
tar -C "$out" -czf "$archive" controller-tools
echo "packed $archive"
echo "export KUBEBUILDER_ASSETS=$assets"
