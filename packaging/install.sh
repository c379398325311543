#!/bin/sh
# Installs gannet from a folder, or the address of one, that holds the files of
# `cargo xtask package tar`. The archive is installed only if its sum is the one in SHA256SUMS.
set -eu

usage() {
    cat << END
usage: install.sh [--from FOLDER|URL] [--prefix FOLDER] [--target TRIPLE]

  --from    where the archive and SHA256SUMS are [default: the folder of this script]
  --prefix  where bin/ and share/ are [default: ~/.local]
  --target  the archive to take [default: that of this machine]
END
}

fail() {
    echo "error: $*" >&2
    exit 1
}

from= prefix= target=
while [ $# -gt 0 ]; do
    case $1 in
        --from | --prefix | --target)
            [ $# -ge 2 ] || fail "$1: expected a value"
            case $1 in
                --from) from=$2 ;;
                --prefix) prefix=$2 ;;
                --target) target=$2 ;;
            esac
            shift 2
            ;;
        -h | --help) usage && exit ;;
        *) usage >&2 && exit 2 ;;
    esac
done

# The target of this machine.
this_target() {
    case $(uname -m) in
        x86_64 | amd64) cpu=x86_64 ;;
        aarch64 | arm64) cpu=aarch64 ;;
        *) fail "expected an x86-64 or aarch64 CPU, found $(uname -m)" ;;
    esac
    case $(uname -s) in
        Linux) echo "$cpu-unknown-linux-gnu" ;;
        Darwin) echo "$cpu-apple-darwin" ;;
        *) fail "expected Linux or macOS, found $(uname -s)" ;;
    esac
}

# Copies or downloads one of the files.
get() {
    case $from in
        http://* | https://*)
            if command -v curl > /dev/null; then
                curl --fail --silent --show-error --location --output "$2" "$from/$1"
            elif command -v wget > /dev/null; then
                wget --quiet --output-document "$2" "$from/$1"
            else
                fail "expected curl or wget, found neither"
            fi
            ;;
        *) cp "$from/$1" "$2" ;;
    esac || fail "cannot get $1 from $from"
}

sum_of() {
    if command -v sha256sum > /dev/null; then
        sha256sum "$1"
    elif command -v shasum > /dev/null; then
        shasum -a 256 "$1"
    else
        fail "expected sha256sum or shasum, found neither"
    fi | cut -d ' ' -f 1
}

[ -n "$target" ] || target=$(this_target)
[ -n "$from" ] || from=$(dirname "$0")
if [ -z "$prefix" ]; then
    [ -n "${HOME:-}" ] || fail "expected --prefix or HOME, found neither"
    prefix=$HOME/.local
fi
from=${from%/}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

get SHA256SUMS "$work/SHA256SUMS"
names=$(sed -n "s/^[0-9a-f]\{64\}  \(gannet-[0-9][^ /]*-$target\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS")
case $(echo "$names" | grep -c .) in
    1) name=$names ;;
    0) fail "SHA256SUMS: expected an archive for $target, found none" ;;
    *) fail "SHA256SUMS: expected one archive for $target, found" $names ;;
esac
expected=$(sed -n "s/^\([0-9a-f]\{64\}\)  $name\$/\1/p" "$work/SHA256SUMS")
get "$name" "$work/$name"
found=$(sum_of "$work/$name")
[ "$found" = "$expected" ] || fail "$name: expected the sum $expected, found $found"

tar -xzf "$work/$name" -C "$work"
folder=$work/${name%.tar.gz}
mkdir -p "$prefix/bin"
# The program is renamed over an older one, which may be running.
cp "$folder/bin/gannet" "$prefix/bin/.gannet.new"
chmod 755 "$prefix/bin/.gannet.new"
mv -f "$prefix/bin/.gannet.new" "$prefix/bin/gannet"
(cd "$folder" && tar -cf - share) | (cd "$prefix" && tar -xf -)

echo "installed $("$prefix/bin/gannet" --version) into $prefix"
case :${PATH:-}: in
    *":$prefix/bin:"*) ;;
    *) echo "$prefix/bin is not on the PATH" ;;
esac
