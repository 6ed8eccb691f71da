#!/usr/bin/env bash
# Installs mgw from a release onto the PATH of a job. No file of the release runs before its
# checksum is verified.
set -euo pipefail

fail() {
  echo "::error title=mgw::$1"
  exit 1
}

if [ -n "${MGW_API_KEY:-}" ]; then echo "::add-mask::${MGW_API_KEY//'%'/%25}"; fi

version=${INPUT_VERSION:-$ACTION_REF}
version=${version#v}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] ||
  fail "\"$version\" is not a version. Set the input \"version\" to one such as 0.1.0, or use the action by a tag such as v0.1.0."
release=${INPUT_RELEASE:-$ACTION_REPOSITORY/releases/download/v$version}

case "$RUNNER_OS-$RUNNER_ARCH" in
  Linux-X64) name=mgw-$version-linux-x64 ;;
  Linux-ARM64) name=mgw-$version-linux-arm64 ;;
  Windows-X64) name=mgw-$version-win-x64.zip ;;
  # The npm package, which needs the Node of the runner.
  *) name=mgw-$version.tgz ;;
esac
if [ "$RUNNER_OS" = Linux ] && command -v zstd >/dev/null; then name=$name.zst; fi

# A relative path is resolved against the job's workspace.
if [ -d "$release" ]; then release=$(cd "$release" && pwd); fi
folder=$(mktemp -d "$RUNNER_TEMP/mgw-XXXXXX")
mkdir "$folder/bin"
cd "$folder"

# Plain HTTP is accepted only from this machine.
fetch() {
  case "$release" in
    https://* | file://* | http://127.0.0.1:* | http://localhost:*)
      curl --fail --silent --show-error --location --proto-redir =https --retry 3 --output "$1" "$release/$1"
      ;;
    *://*) fail "The input \"release\" is $release. Allowed are a path, a file:// URL and an https:// URL." ;;
    *) cp "$release/$1" "$1" ;;
  esac || fail "Could not get $1 from $release. Check the inputs \"release\" and \"version\"."
}

sum() {
  if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -c 1-64
}

fetch SHA256SUMS
expected=$(awk -v name="$name" '$2 == name { print $1 }' SHA256SUMS)
[ -n "$expected" ] || fail "SHA256SUMS of $release does not list $name."
fetch "$name"
found=$(sum "$name")
[ "$found" = "$expected" ] ||
  fail "$name is not the file of the release: its SHA-256 is $found, and SHA256SUMS lists $expected. Nothing was installed."

case "$name" in
  *.zst) zstd --decompress --quiet "$name" -o bin/mgw ;;
  *.zip) unzip -q "$name" -d bin ;;
  *.tgz) npm install --global --prefix "$folder" --offline --ignore-scripts --no-audit --no-fund "./$name" >&2 ;;
  *) mv "$name" bin/mgw ;;
esac
if [ "$RUNNER_OS" = Linux ]; then chmod +x bin/mgw; fi

bin=$folder/bin
if [ "$RUNNER_OS" = Windows ]; then bin=$(cygpath -w "$bin"); fi
PATH=$folder/bin:$PATH
installed=$(mgw --version) || fail "mgw $version does not start on this runner."
[ "$installed" = "$version" ] || fail "$name is mgw $installed, not $version."
echo "$bin" >>"$GITHUB_PATH"
echo "version=$version" >>"$GITHUB_OUTPUT"
if [ -n "${INPUT_CACHE_STATE:-}" ]; then
  [ "$INPUT_CACHE_STATE" = restore ] || fail "cache-state is \"$INPUT_CACHE_STATE\". Allowed are restore and save."
  state=$(mgw config get state_dir)
  echo "state=$state" >>"$GITHUB_OUTPUT"
  echo "MGW_CACHED_STATE=$state" >>"$GITHUB_ENV"
  # A cache key must not contain a comma.
  workflow=${GITHUB_WORKFLOW//,/_}
  echo "workflow=$workflow" >>"$GITHUB_OUTPUT"
  echo "MGW_WORKFLOW=$workflow" >>"$GITHUB_ENV"
fi
echo "Installed mgw $version from $release"
