/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network of sandboxes whose plan grants one: their listeners and rules go to nsbox-egress, under
 * the numbers that the front gave them; what it decides it tells the front. Nothing here waits for
 * it: where it does not take what it is given, the sandbox fails.
 */
#include <string.h>

#include "daemon/common/egress_wire.h"
#include "daemon/spawn/spawn.h"
#include "nsbox/util.h"

int spawn_give_listeners(struct spawn *s, struct box *b, struct nsbox_error *err)
{
	int fds[NSBOX_LISTENERS_MAX], r;
	unsigned set = nsbox_sandbox_listeners(b->sb, fds);
	size_t len;
	const void *rules = nsbox_plan_egress(b->plan, &len);

	r = egress_send(s->egress, EGRESS_ADD, b->id, rules, len, set, fds, err);
	if (r == -EAGAIN)
		nsbox_fail_at(err, NSBOX_STAGE_EGRESS, NSBOX_E_LIMIT, EAGAIN,
			      "nsbox-egress takes no more sandboxes now");
	for (int i = 0; i < NSBOX_LISTENERS_MAX; i++)
		close_fd(&fds[i]);
	return r;
}

void spawn_end_network(struct spawn *s, const struct box *b)
{
	size_t len;

	if (s->egress >= 0 && b->plan && nsbox_plan_egress(b->plan, &len))
		(void)egress_send(s->egress, EGRESS_REMOVE, b->id, NULL, 0, 0, NULL, NULL);
}
