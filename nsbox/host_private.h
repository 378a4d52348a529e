/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NSBOX_HOST_PRIVATE_H
#define NSBOX_HOST_PRIVATE_H

#include <nsbox/host.h>

/* May this process write id maps with a range? (CAP_SETUID and CAP_SETGID in effect.) */
int host_ids_kind(void);
/* CLONE_NEW* of the namespaces among these layers. */
uint64_t host_namespace_flags(uint32_t layers);

#endif
