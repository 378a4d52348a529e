# SPDX-License-Identifier: Apache-2.0
#
# Completion of nsbox for bash. What there is comes from --help, which is printed from the tables
# that parse the options: nothing is listed here, and nothing can be out of date.

_nsbox_help()
{
	"$1" "${@:2}" --help 2>/dev/null
}

# Commands, or verbs of a command: two spaces, a name, two columns.
_nsbox_verbs()
{
	_nsbox_help "$@" | sed -nE '/^(Commands|Verbs):/,/^$/s/^  ([a-z][a-z-]*) .*/\1/p'
}

_nsbox_options()
{
	_nsbox_help "$@" | sed -nE 's/^ +(-., )? *(--[a-z][a-z-]*).*/\2/p'
}

# Whether option $1 of the command takes a value.
_nsbox_takes()
{
	local option=$1
	_nsbox_help "${@:2}" | grep -qE -- "^ +(-., )? *$option [A-Z]|^ +$option, +--[a-z-]+ [A-Z]"
}

_nsbox()
{
	local nsbox=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	local -a path=()
	local verbs word i

	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		[[ $word == -- ]] && {
			# The program's own arguments are the program's.
			compopt -o default 2>/dev/null
			return
		}
		verbs=$(_nsbox_verbs "$nsbox" "${path[@]}")
		grep -qxF -- "$word" <<<"$verbs" || break
		path+=("$word")
	done
	verbs=$(_nsbox_verbs "$nsbox" "${path[@]}")
	if [[ $current == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_nsbox_options "$nsbox" "${path[@]}")" -- "$current")
	elif [[ $previous == -* ]] && _nsbox_takes "$previous" "$nsbox" "${path[@]}"; then
		compopt -o default 2>/dev/null
	elif [[ -n $verbs && ${#path[@]} -eq $((COMP_CWORD - 1)) ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$current")
	else
		compopt -o default 2>/dev/null
	fi
}
complete -F _nsbox nsbox
