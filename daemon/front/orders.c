/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/orders.h"

#include "nsbox/util.h"

int order_send(int sock, enum order_kind kind, uint64_t arg, const struct nsbox_error *why,
	       const int *fds, unsigned n)
{
	struct order o = { .magic = WIRE_MAGIC, .kind = kind, .arg = arg };

	if (why)
		o.error = *why;
	return wire_send(sock, &o, sizeof(o), fds, n, NULL);
}

int order_recv(int sock, struct order *ret, int fds[static WIRE_FDS_MAX], unsigned *ret_n,
	       struct nsbox_error *err)
{
	int r = wire_recv(sock, ret, sizeof(*ret), fds, ret_n, err);

	if (r <= 0)
		return r;
	ret->error.msg[NSBOX_ERROR_MSG_MAX - 1] = 0;
	if (ret->kind < ORDER_KINDS && (*ret_n == 0 || ret->kind == ORDER_OPTIONS))
		return 1;
	wire_close_fds(fds, *ret_n);
	return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "an order of unknown kind");
}
