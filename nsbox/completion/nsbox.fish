# SPDX-License-Identifier: Apache-2.0
#
# Completion of nsbox for fish. What there is comes from --help, which is printed from the tables
# that parse the options: nothing is listed here, and nothing can be out of date.

function __nsbox_verbs
    $argv --help 2>/dev/null | sed -nE '/^(Commands|Verbs):/,/^$/s/^  ([a-z][a-z-]*) +(.*)/\1\t\2/p'
end

function __nsbox_options
    $argv --help 2>/dev/null | sed -nE 's/^ +(-., )? *(--[a-z][a-z-]*)( [A-Z][^ ]*)? +(.*)/\2\t\4/p'
end

# The command so far: nsbox, and the names of commands and verbs that follow it.
function __nsbox_at
    set -l words (commandline -opc)
    set -l at $words[1]
    for word in $words[2..-1]
        contains -- $word (__nsbox_verbs $at | string split -f1 \t); or break
        set -a at $word
    end
    printf '%s\n' $at
end

# Where a command or a verb is to come, no file is.
function __nsbox_wants_name
    set -l at (__nsbox_at)
    test (count (commandline -opc)) -eq (count $at); and test -n "$(__nsbox_verbs $at)"
end

function __nsbox_complete
    set -l words (commandline -opc)
    # The program's own arguments are the program's.
    contains -- -- $words; and return
    set -l at (__nsbox_at)
    if string match -q -- '-*' (commandline -ct)
        __nsbox_options $at
    else if test (count $words) -eq (count $at)
        __nsbox_verbs $at
    end
end

complete -c nsbox -n __nsbox_wants_name -f
complete -c nsbox -a '(__nsbox_complete)'
