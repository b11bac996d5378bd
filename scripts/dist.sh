#!/usr/bin/env bash
# Builds keelson as it is shipped: target/dist/keelson, and its symbols in target/dist/keelson.debug, where debuggers look for them. On
# Linux it is static, so that it runs in an image with nothing else in it.
#
#   PROFILE=dev scripts/dist.sh     the same of another cargo profile: built sooner
#   CARGO='cargo --locked'          the cargo to build with
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo} profile=${PROFILE:-dist}

# What /version tells of the build. The date is the commit's, so that the same sources give the same bytes.
if commit=$(git rev-parse HEAD 2>/dev/null); then
  export KEELSON_GIT_COMMIT=$commit KEELSON_GIT_TREE_STATE=clean KEELSON_BUILD_DATE
  KEELSON_BUILD_DATE=$(TZ=UTC git show -s --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd HEAD)
  [ -z "$(git status --porcelain --untracked-files=no)" ] || KEELSON_GIT_TREE_STATE=dirty
fi

host=$(rustc -vV | sed -n 's/^host: //p')
case $host in
  *-linux-*)
    # The linker warns of getaddrinfo: in a static program it knows files and DNS by itself since glibc 2.34. Other sources that a host's
    # nsswitch.conf names need the glibc of the machine that this is built on; the image has a nsswitch.conf of its own.
    [ -e "$(cc -print-file-name=libc.a)" ] || { echo "libc.a is missing: install libc6-dev (Fedora: glibc-static)" >&2; exit 1; }
    # Random numbers come by the system call, which a static program otherwise does not look for.
    export RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\"" ;;
esac
# Named, the target is told from the host: build scripts and macros are not static.
$cargo build --profile "$profile" --target "$host"

target=$($cargo metadata --format-version 1 --no-deps | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
[ "$profile" = dev ] && profile=debug
built=$target/$host/$profile/keelson out=$target/dist/keelson
mkdir -p "$target/dist"
if command -v objcopy >/dev/null; then
  objcopy --only-keep-debug "$built" "$out.debug"
  objcopy --strip-all --add-gnu-debuglink="$out.debug" "$built" "$out.new"
else
  cp "$built" "$out.new"
fi
mv "$out.new" "$out"
echo "built $out ($(wc -c <"$out") bytes)"
