/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of secrets come from a file or from our environment, never from an argument: those can be
 * read by everybody who can list processes, and stay in a shell's history.
 */
#include "nsbox/cli/inputs.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "nsbox/util.h"

static int add_secret(struct cli_inputs *in, const char *name, const char *value, size_t len)
{
	if (in->n_secrets == INPUTS_GIVEN_MAX)
		return cli_usage("--secret may be given %d times at most", INPUTS_GIVEN_MAX);
	if (input_set(&in->secrets[in->n_secrets], name, value, len) < 0)
		return cli_usage("out of memory");
	in->n_secrets++;
	return 0;
}

static int from_file(struct cli_inputs *in, const char *name, const char *path)
{
	struct nsbox_error err = { 0 };
	char *text = NULL;
	size_t len = 0;
	int r;

	if (cli_read_file(path, INPUT_VALUE_MAX, &text, &len, &err) < 0)
		return cli_error(&err);
	r = add_secret(in, name, text, len);
	explicit_bzero(text, len);
	free(text);
	return r;
}

int cli_secret(struct cli_inputs *in, const char *text)
{
	size_t n = strcspn(text, "=");
	auto_free char *name = strndup(text, n);
	const char *value;

	if (!name)
		return cli_usage("out of memory");
	if (!text[n]) {
		value = getenv(name);
		if (!value)
			return cli_usage("--secret %s: there is no variable of this name", name);
		return add_secret(in, name, value, strlen(value));
	}
	if (text[n + 1] != '@' || !n)
		return cli_usage(
			"--secret takes NAME (a variable of ours) or NAME=@FILE: a value in "
			"an argument could be read by others");
	return from_file(in, name, text + n + 2);
}

int cli_config(struct cli_inputs *in, const char *text)
{
	const char *equals = strchr(text, '=');
	auto_free char *id = equals ? strndup(text, (size_t)(equals - text)) : NULL;

	if (!id || !*id)
		return cli_usage("--config takes ID=VALUE, not '%s'", text);
	if (!in->config)
		in->config = json_object_new_object();
	json_object_object_add(in->config, id, json_object_new_string(equals + 1));
	return 0;
}

void cli_inputs_done(struct cli_inputs *in)
{
	for (size_t i = 0; i < in->n_secrets; i++)
		input_done(&in->secrets[i]);
	json_object_put(in->config);
	in->n_secrets = 0;
	in->config = NULL;
}
