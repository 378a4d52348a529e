/* SPDX-License-Identifier: Apache-2.0 */
/* Names of variables: which are names at all, and which only an operator may give a value. */
#ifndef POLICY_ENV_NAMES_H
#define POLICY_ENV_NAMES_H

#include <stdbool.h>

#define ENV_NAME_MAX 64

/* [A-Za-z_][A-Za-z0-9_]*, at most ENV_NAME_MAX bytes. */
bool env_name_valid(const char *name);
/* Does it make the loader, the C library, a shell or an interpreter run or read something first? */
bool env_name_is_loader(const char *name);

#endif
