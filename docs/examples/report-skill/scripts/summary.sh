#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# summary.sh FILE: lines, words and characters of a text, one per line.
set -eu
printf 'lines      %d\n' "$(wc -l <"$1")"
printf 'words      %d\n' "$(wc -w <"$1")"
printf 'characters %d\n' "$(wc -m <"$1")"
