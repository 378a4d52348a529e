#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The cases that need large packages, through both interfaces.
here=$(dirname "$0")/..
exec /usr/bin/python3 "$here/run-cases" --via both "$here/cases-heavy"
