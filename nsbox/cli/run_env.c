/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of `nsbox run`: --env, then what the manifest's env.pass asks of ours. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/cli/run.h"
#include "nsbox/util.h"

static bool is_set(const char *const *set, const char *name)
{
	size_t n = strlen(name);

	for (; *set; set++)
		if (!strncmp(*set, name, n) && (*set)[n] == '=')
			return true;
	return false;
}

static size_t count(const char *const *list)
{
	size_t n = 0;

	while (list[n])
		n++;
	return n;
}

void run_env_free(char **env)
{
	for (size_t i = 0; env && env[i]; i++)
		free(env[i]);
	free(env);
}

char **run_env(const struct nsbox_policy *policy, const char *const *set)
{
	const char *const *pass = nsbox_policy_env_pass(policy);
	size_t n = 0, fixed = count(set);
	char **env = calloc(fixed + count(pass) + 1, sizeof(*env));

	for (; env && n < fixed; n++) {
		env[n] = strdup(set[n]);
		if (!env[n])
			goto nomem;
	}
	for (; env && *pass; pass++) {
		const char *value = getenv(*pass);

		if (!value || is_set(set, *pass))
			continue;
		if (asprintf(&env[n], "%s=%s", *pass, value) < 0) {
			env[n] = NULL;
			goto nomem;
		}
		n++;
	}
	return env;
nomem:
	run_env_free(env);
	return NULL;
}
