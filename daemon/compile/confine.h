/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAEMON_COMPILE_CONFINE_H
#define DAEMON_COMPILE_CONFINE_H

#include <nsbox/error.h>

/* Give up everything but computing, memory, and the socket `sock`. */
int confine(int sock, struct nsbox_error *err);

#endif
