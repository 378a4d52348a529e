/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a DNS query from a sandbox. Whatever is read, the answer is a message that fits, says
 * what it was asked and, where it has an address, has that at its end.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/egress/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void answer(const uint8_t *data, const struct dns_question *q, int rcode)
{
	static const uint8_t addr[16] = {
		198, 18, 1, 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
	};
	const char *const chain[] = { "a.example", q->name, "b.example", NULL };
	struct dns_answer a = { .chain = chain, .ttl = 60 };
	uint8_t buf[DNS_ANSWER_MAX];
	size_t len;

	if (rcode == 0 && (q->type == DNS_A || q->type == DNS_AAAA))
		a.addr = addr;
	len = dns_write(data, q, rcode, rcode ? NULL : &a, buf);
	check(len >= 12 && len <= sizeof(buf));
	check((buf[3] & 15) == rcode && (buf[2] & 0x80));
	check(memcmp(buf + 12, data + 12, q->end - 12u) == 0);
	if (a.addr && !q->edns && !(buf[2] & 2))
		check(memcmp(buf + len - (q->type == DNS_A ? 4 : 16), addr,
			     q->type == DNS_A ? 4 : 16) == 0);
	a.truncated = true;
	check(dns_write(data, q, rcode, &a, buf) <= DNS_UDP_PLAIN);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dns_question q;
	int rcode = dns_read(data, size, &q);

	if (rcode < 0)
		return 0;
	check(q.end >= 12 && q.end <= size && strlen(q.name) < DNS_NAME_MAX);
	check(q.udp_max >= DNS_UDP_PLAIN);
	answer(data, &q, rcode);
	return 0;
}
