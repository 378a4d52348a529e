/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/env_names.h"

#include <stddef.h>
#include <string.h>

#include "nsbox/util.h"

bool env_name_valid(const char *name)
{
	static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
	static const char rest[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
	size_t len = strlen(name);

	return len > 0 && len <= ENV_NAME_MAX && strchr(first, name[0]) &&
	       strspn(name, rest) == len;
}

/* A trailing '*' matches any rest. */
static const char *const loader_variables[] = {
	"LD_*",	       "GCONV_PATH",   "GLIBC_TUNABLES", "LOCPATH",
	"NLSPATH",     "MALLOC_*",     "HOSTALIASES",	 "LOCALDOMAIN",
	"RES_OPTIONS", "RESOLV_*",     "BASH_ENV",	 "BASH_FUNC_*",
	"ENV",	       "IFS",	       "PYTHONSTARTUP",	 "PYTHONHOME",
	"PERL5OPT",    "NODE_OPTIONS", "RUBYOPT",	 "JAVA_TOOL_OPTIONS",
};

bool env_name_is_loader(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(loader_variables); i++) {
		const char *pattern = loader_variables[i];
		size_t n = strcspn(pattern, "*");

		if (!strncmp(name, pattern, n) && (pattern[n] == '*' || !name[n]))
			return true;
	}
	return false;
}
