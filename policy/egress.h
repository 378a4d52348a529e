/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of egress (nsbox/egress_format.h) for what runs already. */
#ifndef POLICY_EGRESS_H
#define POLICY_EGRESS_H

#include <nsbox/policy.h>

/* What a ceiling lets anything reach, as rules that others have to agree with; malloc'd. */
int ceiling_egress(const struct nsbox_ceiling *c, void **ret, size_t *ret_len,
		   struct nsbox_error *err);

#endif
