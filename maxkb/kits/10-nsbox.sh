#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# For /opt/maxkb/local/init-shells: MaxKB's start runs it as root, before MaxKB. It never fails the
# start: what is wrong is said on standard error, and MaxKB's calls then say it too.
#
# Where a service is reachable already (kit c), only the .pth file is put into place. Where the bundle
# lies on the volume (kit b), nsboxd is started first. MAXKB_NSBOX_MIN_TIER=process accepts the tier of that
# name, which holds less, where the container allows no other (kit a).

bundle=${NSBOX_BUNDLE:-/opt/maxkb/local/nsbox}
socket=${MAXKB_NSBOX_SOCKET:-/run/nsbox/nsbox.sock}
python=${NSBOX_MAXKB_PYTHON:-/opt/py3/bin/python3}
state=${NSBOX_STATE_DIR:-$bundle/state}

say()
{
	echo "nsbox: $*" >&2
}

# The package: of the bundle, or where kit c shows it.
package()
{
	local dir

	for dir in "$bundle/share/nsbox/maxkb" /opt/nsbox-maxkb; do
		test -d "$dir/nsbox_maxkb" && echo "$dir" && return
	done
	return 1
}

# What tools see of the container besides /usr: MaxKB's Python and the directories of its packages.
show_paths()
{
	local path

	mkdir -p "$state"
	for path in "${python%/bin/*}" ${MAXKB_SANDBOX_PYTHON_PACKAGE_PATHS//,/ } \
		/opt/maxkb/python-packages /opt/maxkb-app/sandbox/python-packages; do
		case $path in
		/opt/*) test -d "$path" && echo "$path" ;;
		esac
	done | sort -u | awk 'NR == 1 || index($0, last "/") != 1 { print; last = $0 }' >"$state/host.paths"
}

# The service's file, where there is none: the network that MaxKB's tools had, without the hosts it bans.
# A service that cannot read it runs without, and then grants no network.
write_config()
{
	test -e "$state/nsboxd.json" || "$python" -I -c 'import json, os
print(json.dumps({"ceiling": {"network": "open",
                              "bannedHosts": os.environ.get("MAXKB_SANDBOX_PYTHON_BANNED_HOSTS", "")}}))' >"$state/nsboxd.json"
	service --check --config "$state/nsboxd.json" >/dev/null 2>&1 || {
		say "$state/nsboxd.json is not for this service: tools will have no network"
		return 1
	}
}

service()
{
	LD_LIBRARY_PATH=$bundle/lib/bundled NSBOX_STATE_DIR=$state "$bundle/sbin/nsboxd" --socket "$socket" \
		--state-dir "$state" --libexec "$bundle/lib/nsbox" ${MAXKB_NSBOX_MIN_TIER:+--min-tier "$MAXKB_NSBOX_MIN_TIER"} "$@"
}

start_service()
{
	getent passwd nsbox >/dev/null || useradd --system --user-group --no-create-home --shell /usr/sbin/nologin nsbox
	mkdir -p "${socket%/*}"
	show_paths
	set --
	write_config && set -- --config "$state/nsboxd.json"
	# A session of its own: a signal to MaxKB's process group is none to the service.
	set -m
	service "$@" >>"$state/nsboxd.log" 2>&1 </dev/null &
	set +m
	for _ in $(seq 100); do
		test -S "$socket" && return
		sleep 0.1
	done
	say "NOT READY: nsboxd did not start; see $state/nsboxd.log"
}

install_pth()
{
	local dir site

	dir=$(package) || { say "NOT READY: the package nsbox_maxkb is neither in $bundle nor in /opt/nsbox-maxkb"; return; }
	site=$("$python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))') || return
	sed "s|@DIR@|$dir|" "$dir/nsbox_maxkb.pth.in" >"$site/nsbox_maxkb.pth" ||
		say "NOT READY: $site/nsbox_maxkb.pth cannot be written"
}

if ! test -S "$socket" && test -x "$bundle/sbin/nsboxd"; then
	start_service
fi
install_pth
