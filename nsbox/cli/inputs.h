/* SPDX-License-Identifier: Apache-2.0 */
/* --secret and --config of the commands that run something. */
#ifndef NSBOX_CLI_INPUTS_H
#define NSBOX_CLI_INPUTS_H

#include "nsbox/cli/cli.h"
#include "policy/inputs.h"

struct cli_inputs {
	struct input secrets[INPUTS_GIVEN_MAX];
	size_t n_secrets;
	struct json_object *config; /* text by ID; NULL: none */
};

/* "NAME" of our environment, or "NAME=@FILE"; "ID=VALUE". 0, or an exit status after a message. */
int cli_secret(struct cli_inputs *in, const char *text);
int cli_config(struct cli_inputs *in, const char *text);
void cli_inputs_done(struct cli_inputs *in);

#define SECRET_ROW(set)                                                                            \
	{                                                                                          \
		"secret", 0, "NAME[=@FILE]", "a secret of the manifest, from $NAME or a file", set \
	}
#define CONFIG_ROW(set)                                                                            \
	{                                                                                          \
		"config", 0, "ID=VALUE", "a parameter (userConfig) of the manifest", set           \
	}

#endif
