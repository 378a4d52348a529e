#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make install` gives a library that a program outside this tree can be built with and uses, and
# `make uninstall` leaves nothing of it.

set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
count=0
failed=0

ok()
{
	status=$? # of the command before
	count=$((count + 1))
	if test $status = 0; then
		echo "ok $count - $1"
	else
		echo "not ok $count - $1"
		sed 's/^/# /' "$dir/log"
		failed=1
	fi
}

# -o all: what is built is installed, nothing is built again (an ordinary user's copy has no objects).
make_in()
{
	make -s -C "$root" -o all -o "build/$VARIANT/libnsbox.so.0" PREFIX="$dir/usr" "$@" >"$dir/log" 2>&1
}

: "${VARIANT:=release}"
export PKG_CONFIG_PATH="$dir/usr/lib/pkgconfig" LD_LIBRARY_PATH="$dir/usr/lib"

make_in install
ok "make install"
# shellcheck disable=SC2046 # flags are words
cc -Wall -Werror -o "$dir/run" "$root/docs/examples/run.c" $(pkg-config --cflags --libs libnsbox) >"$dir/log" 2>&1
ok "the example builds with pkg-config against the installed library"
# shellcheck disable=SC2016 # the shell inside is to expand it
"$dir/run" sh -c 'test $(id -u) != 0 && exit 7' >"$dir/log" 2>&1
test $? = 7
ok "it runs a command in a sandbox"
grep -q 'cause exit, status 7' "$dir/log"
ok "and gets a result"
"$dir/usr/bin/nsbox" run -- true >"$dir/log" 2>&1
ok "the installed tool works"
make_in uninstall
ok "make uninstall"
test -z "$(find "$dir/usr" ! -type d | tee "$dir/log")"
ok "leaves no file"
echo "1..$count"
exit $failed
