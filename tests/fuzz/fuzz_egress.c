/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as rules of egress, checked as nsbox-egress and the plan's receiver do. What passes can be
 * asked anything, and a loopback address is denied unless the rules open it.
 */
#include <stdlib.h>
#include <string.h>

#include "nsbox/egress_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static bool opens_anything(const struct egress_rules *r)
{
	for (unsigned i = 0; i < r->head->nets; i++)
		if (r->net[i].kind == EGRESS_NET_OPENED)
			return true;
	return false;
}

static void ask(const struct egress_rules *r)
{
	static const uint8_t loopback[16] = { 127, 0, 0, 1 };
	static const uint8_t mapped[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	struct egress_denial d;
	const struct egress_rule *rule = egress_find_name(r, "a.example.com", EGRESS_UDP, 443);

	check(!rule || (rule >= r->rule && rule < r->rule + r->head->rules));
	rule = egress_find_addr(r, 6, mapped, EGRESS_EITHER, 0);
	check(!rule || strlen(r->strings + rule->pointer) < r->head->strings);
	check(egress_denied(r, 4, loopback, &d) ? d.why && d.pointer : opens_anything(r));
	check(egress_denied(r, 6, mapped, &d) || opens_anything(r));
	for (unsigned i = 0; i < r->head->bans; i++)
		check(strlen(r->strings + r->ban[i]) < r->head->strings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nsbox_error err = { 0 };
	struct egress_rules r;
	uint64_t *copy = malloc(size + 8); /* aligned, and no byte more than it has */

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	if (egress_check(copy, size, &r, &err) == 0)
		ask(&r);
	else
		check(err.code == NSBOX_E_PROTOCOL && err.msg[0]);
	free(copy);
	return 0;
}
