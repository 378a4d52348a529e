#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every case, through the command line tool.
here=$(dirname "$0")
exec /usr/bin/python3 "$here/run-cases" --via cli --skip-open "$here/open-cases.txt" "$here/cases"
