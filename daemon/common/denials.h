/* SPDX-License-Identifier: Apache-2.0 */
/* `denials` of a result or receipt: what a run was refused, by which layer, and what would allow it. */
#ifndef DAEMON_DENIALS_H
#define DAEMON_DENIALS_H

#include <nsbox/sandbox.h>

#include "daemon/common/egress_log.h"
#include "daemon/common/trace_file.h"

/* Connections and names, then system calls, then files, then limits. Never NULL but for want of memory. */
struct json_object *denials_json(const struct egress_log *network, const struct nsbox_result *r,
				 const struct trace_file *trace);

/* Where they lack system calls, because nobody counted those: a sentence, else NULL. */
const char *denials_lack(const struct nsbox_result *r);

#endif
