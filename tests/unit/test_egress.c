/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of egress as policies compile to them, what they cover and deny; the messages of the name server;
 * the operator's list of bans.
 */
#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "daemon/egress/dns.h"
#include "nsbox/egress_format.h"
#include "nsbox/util.h"
#include "policy/internal.h"

/* ------------------------------------------------------------------ rules */

struct rules {
	struct nsbox_policy policy;
	struct blob_builder *b;
	void *bytes;
	struct egress_rules r;
};

static void make(struct rules *w, uint32_t mode, struct policy_host *allow, size_t n, char **opened,
		 char **banned)
{
	struct nsbox_error err = { 0 };
	static char *denied[] = { (char *)"192.0.2.0/24", NULL };
	struct blob blob;
	size_t len, size;
	const void *data;

	memset(w, 0, sizeof(*w));
	w->policy.network.mode = mode;
	w->policy.network.allow = allow;
	w->policy.network.n_allow = n;
	w->policy.network.deny_cidrs = denied;
	w->policy.network.opened = opened;
	w->policy.network.banned_nets = banned;
	w->policy.network.connections = 10;
	w->b = blob_new(PLAN_MAGIC);
	ck_assert_msg(compile_egress(&w->policy, w->b, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(blob_bytes(w->b, &w->bytes, &len, &err), 0);
	blob = (struct blob){ w->bytes, len };
	data = blob_get(&blob, SEC_EGRESS, 1, &size);
	ck_assert_msg(egress_check(data, size, &w->r, &err) == 0, "%s", err.msg);
}

static void done(struct rules *w)
{
	blob_free(w->b);
	free(w->bytes);
}

static bool denies(const struct rules *w, const char *address)
{
	uint8_t addr[16] = { 0 };
	int family = strchr(address, ':') ? AF_INET6 : AF_INET;

	ck_assert_int_eq(inet_pton(family, address, addr), 1);
	return egress_denied(&w->r, family == AF_INET ? 4 : 6, addr, NULL);
}

static uint32_t web[] = { 80, 443, 0 }, https[] = { 443, 0 };
static struct policy_host hosts[] = {
	{ (char *)"*.wild.example", web, PROTOCOL_TCP, (char *)"/network/allow/1" },
	{ (char *)"198.51.100.0/24", https, PROTOCOL_TCP, (char *)"/network/allow/2" },
	{ (char *)"one.example", https, PROTOCOL_TCP, (char *)"/network/allow/0" },
	{ (char *)"udp.example", https, PROTOCOL_UDP, (char *)"/network/allow/3" },
};

START_TEST(names_and_ports)
{
	static const struct {
		const char *name;
		uint16_t port;
		bool covered;
		unsigned protocol;
	} rows[] = {
		{ "one.example", 443, true },
		{ "one.example", 80, false },
		{ "two.example", 443, false },
		{ "a.wild.example", 80, true },
		{ "a.b.wild.example", 443, true },
		{ "wild.example", 80, false },
		{ "evilwild.example", 80, false },
		{ "a.wild.example.other", 80, false },
		{ "one.example", 0, true },
		{ "udp.example", 443, false, EGRESS_TCP },
		{ "x.one.example", 443, false },
		{ "one.example", 443, false, EGRESS_UDP },
		{ "udp.example", 443, true, EGRESS_UDP },
		{ "udp.example", 80, false, EGRESS_UDP },
		{ "udp.example", 0, true, EGRESS_EITHER },
	};
	struct rules w;

	make(&w, NETWORK_ALLOWLIST, hosts, ARRAY_SIZE(hosts), NULL, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		ck_assert_msg(!!egress_find_name(&w.r, rows[i].name, rows[i].protocol,
						 rows[i].port) == rows[i].covered,
			      "%s:%u", rows[i].name, rows[i].port);
	ck_assert_ptr_nonnull(
		egress_find_addr(&w.r, 4, (const uint8_t[16]){ 198, 51, 100, 7 }, EGRESS_TCP, 443));
	ck_assert_ptr_null(
		egress_find_addr(&w.r, 4, (const uint8_t[16]){ 198, 51, 100, 7 }, EGRESS_TCP, 80));
	ck_assert_ptr_null(
		egress_find_addr(&w.r, 4, (const uint8_t[16]){ 198, 51, 101, 7 }, EGRESS_TCP, 443));
	done(&w);
}
END_TEST

/* What is within what, for sessions that are narrowed. */
START_TEST(narrower_rules)
{
	static uint32_t any[] = { 0 };
	static struct policy_host lists[][2] = {
		{ { (char *)"a.wild.example", https, PROTOCOL_TCP, (char *)"/0" } },
		{ { (char *)"*.b.wild.example", web, PROTOCOL_TCP, (char *)"/0" } },
		{ { (char *)"198.51.100.64/26", https, PROTOCOL_TCP, (char *)"/0" } },
		{ { (char *)"198.51.100.64/26", web, PROTOCOL_TCP, (char *)"/0" } },
		{ { (char *)"198.51.0.0/16", https, PROTOCOL_TCP, (char *)"/0" } },
		{ { (char *)"one.example", web, PROTOCOL_TCP, (char *)"/0" } },
		{ { (char *)"wild.example", https, PROTOCOL_TCP, (char *)"/0" } },
		{ { (char *)"a.wild.example", https, PROTOCOL_TCP, (char *)"/0" },
		  { (char *)"other.example", https, PROTOCOL_TCP, (char *)"/1" } },
		{ { (char *)"a.wild.example", any, PROTOCOL_TCP, (char *)"/0" } },
	};
	static const bool within[] = { true, true, true, false, false, false, false, false, false };
	struct rules wide, open, w;
	const char *pointer;

	make(&wide, NETWORK_ALLOWLIST, hosts, ARRAY_SIZE(hosts), NULL, NULL);
	make(&open, NETWORK_OPEN, NULL, 0, NULL, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		make(&w, NETWORK_ALLOWLIST, lists[i], lists[i][1].host ? 2 : 1, NULL, NULL);
		ck_assert_msg(egress_within(&w.r, &wide.r, &pointer) == within[i], "list %zu", i);
		if (lists[i][1].host)
			ck_assert_str_eq(pointer, "/1");
		ck_assert(egress_within(&w.r, &open.r, &pointer));
		ck_assert(!egress_within(&open.r, &w.r, &pointer));
		done(&w);
	}
	ck_assert(egress_within(&wide.r, &wide.r, &pointer));
	done(&wide);
	done(&open);
}
END_TEST

/* Denied to all; the first row of each pair, and an address beside that network that is not. */
static const struct {
	const char *denied, *beside;
} networks[] = {
	{ "0.0.0.0", "1.0.0.0" },
	{ "10.255.255.255", "11.0.0.0" },
	{ "100.64.0.1", "100.128.0.0" },
	{ "127.0.0.1", "128.0.0.1" },
	{ "169.254.169.254", "169.255.0.0" },
	{ "172.31.255.255", "172.32.0.0" },
	{ "192.168.0.1", "192.169.0.0" },
	{ "198.19.255.255", "198.20.0.0" },
	{ "168.63.129.16", "168.63.129.17" },
	{ "239.0.0.1", "223.255.255.255" },
	{ "255.255.255.255", "8.8.8.8" },
	{ "::", "2606:4700::1" },
	{ "::1", "2a00::1" },
	{ "::ffff:8.8.8.8", "2400::1" },
	{ "::8.8.8.8", "2600::1" },
	{ "64:ff9b::808:808", "65::1" },
	{ "64:ff9b:1::1", "64:ff9c::1" },
	{ "2002:808:808::1", "2003::1" },
	{ "2001::1", "2001:4860::1" },
	{ "2001:db8::1", "2001:db9::1" },
	{ "fd00:ec2::254", "2c00::1" },
	{ "fe80::1", "2800::1" },
	{ "fec0::1", "2602::1" },
	{ "ff02::1", "2604::1" },
};

START_TEST(denied_to_all)
{
	struct rules w;

	make(&w, NETWORK_OPEN, NULL, 0, NULL, NULL);
	ck_assert_int_eq(w.r.head->open, 1);
	ck_assert_msg(denies(&w, networks[_i].denied), "%s", networks[_i].denied);
	ck_assert_msg(!denies(&w, networks[_i].beside), "%s", networks[_i].beside);
	done(&w);
}
END_TEST

START_TEST(what_the_operator_says)
{
	char *opened[] = { (char *)"10.1.0.0/16", (char *)"64:ff9b::/96", NULL };
	char *banned[] = { (char *)"10.1.2.0/24", (char *)"8.8.8.8/32", NULL };
	struct rules w;

	make(&w, NETWORK_OPEN, NULL, 0, opened, banned);
	ck_assert(!denies(&w, "10.1.3.1"));
	ck_assert(denies(&w, "10.2.0.1"));
	ck_assert(denies(&w, "10.1.2.1")); /* a ban stands above what is opened */
	ck_assert(denies(&w, "8.8.8.8"));
	ck_assert(denies(&w, "192.0.2.1"));	    /* denied by the manifest */
	ck_assert(!denies(&w, "64:ff9b::a01:301")); /* 10.1.3.1 in it */
	ck_assert(denies(&w, "64:ff9b::a02:1"));    /* 10.2.0.1 in it */
	done(&w);
}
END_TEST

START_TEST(inner_addresses)
{
	uint8_t addr[16];

	for (int family = 4; family <= 6; family += 2)
		for (uint32_t place = 1; place < EGRESS_PLACES; place += 977) {
			egress_inner((uint8_t)family, place, addr);
			ck_assert_uint_eq(egress_place_of((uint8_t)family, addr), place);
		}
	ck_assert_uint_eq(egress_place_of(4, (const uint8_t[16]){ 198, 20, 0, 1 }), 0);
	ck_assert_uint_eq(egress_place_of(4, (const uint8_t[16]){ 198, 17, 255, 255 }), 0);
	ck_assert_uint_eq(egress_place_of(6, (const uint8_t[16]){ 0xfd, 1 }), 0);
}
END_TEST

START_TEST(malformed_rules)
{
	struct rules w;
	size_t size;
	unsigned char *copy;

	make(&w, NETWORK_ALLOWLIST, hosts, ARRAY_SIZE(hosts), NULL, NULL);
	size = w.r.head->size;
	copy = aligned_alloc(8, (size + 7) / 8 * 8);
	for (size_t i = 0; i < size; i++) {
		struct egress_rules r;

		memcpy(copy, w.r.head, size);
		copy[i] ^= 0xff;
		if (egress_check(copy, size, &r, NULL) == 0) /* then it can be asked */
			(void)egress_find_name(&r, "one.example", EGRESS_TCP, 443);
	}
	memcpy(copy, w.r.head, size);
	ck_assert_int_eq(egress_check(copy, size, NULL, NULL), 0);
	ck_assert_int_lt(egress_check(copy, size - 1, NULL, NULL), 0);
	ck_assert_int_lt(egress_check(copy, sizeof(struct egress_head) - 1, NULL, NULL), 0);
	copy[size - 1] = 'x';
	ck_assert_int_lt(egress_check(copy, size, NULL, NULL), 0);
	free(copy);
	done(&w);
}
END_TEST

/* ------------------------------------------------------------------ bans */

START_TEST(bans_are_read)
{
	struct nsbox_ceiling c = { 0 };
	struct nsbox_error err = { 0 };
	char text[64];

	ck_assert_int_eq(
		nsbox_ceiling_ban(&c, " 10.0.0.0/8 ,,localhost,MyHost,::/0,.*\\.x", "myhost", &err),
		0);
	ck_assert_str_eq(c.banned, "10.0.0.0/8,localhost,::/0,.*\\.x");
	ck_assert(ban_is_network("10.0.0.0/8", text, sizeof(text)));
	ck_assert(ban_is_network("192.0.2.1", text, sizeof(text)));
	ck_assert_str_eq(text, "192.0.2.1/32");
	ck_assert(!ban_is_network("localhost", text, sizeof(text)));
	ck_assert(ban_matches("local.*", "LOCALHOST") && !ban_matches("local", "localhost"));
	ck_assert_int_lt(nsbox_ceiling_ban(&c, "10.0.0.1/8", NULL, &err), 0);
	ck_assert_int_lt(nsbox_ceiling_ban(&c, "a(b", NULL, &err), 0);
	ck_assert_int_eq(nsbox_ceiling_open(&c, "127.0.0.1", &err), 0);
	ck_assert_str_eq(c.opened, "127.0.0.1/32");
	ck_assert_int_lt(nsbox_ceiling_open(&c, "127.1", &err), 0);
	ck_assert_int_lt(nsbox_ceiling_open(&c, "example.com", &err), 0);
}
END_TEST

/* ------------------------------------------------------------------ DNS */

static size_t query(uint8_t *buf, const char *labels, size_t len, uint16_t type)
{
	static const uint8_t head[12] = { 0x12, 0x34, 1, 0, 0, 1 };

	memcpy(buf, head, 12);
	memcpy(buf + 12, labels, len);
	buf[12 + len] = (uint8_t)(type >> 8);
	buf[13 + len] = (uint8_t)type;
	buf[14 + len] = 0;
	buf[15 + len] = 1;
	return 16 + len;
}

START_TEST(questions)
{
	struct dns_question q;
	uint8_t buf[512];
	size_t len = query(buf, "\3WwW\7Example\3com", 17, DNS_A);

	ck_assert_int_eq(dns_read(buf, len, &q), 0);
	ck_assert_str_eq(q.name, "www.example.com");
	ck_assert(q.plain && q.type == DNS_A && q.end == len && !q.edns);
	for (size_t cut = 0; cut < len; cut++) /* no part of it is a question */
		ck_assert_int_ne(dns_read(buf, cut, &q), 0);
	len = query(buf, "\5a.b\0c\3com", 11, DNS_A);
	ck_assert_int_eq(dns_read(buf, len, &q), 0);
	ck_assert(!q.plain && !strstr(q.name, "a.b"));
	len = query(buf, "\300\14", 3, DNS_A); /* compressed: pointing at itself */
	ck_assert_int_eq(dns_read(buf, len, &q), DNS_FORMERR);
	len = query(buf, "", 1, DNS_A);
	ck_assert(dns_read(buf, len, &q) == 0 && !*q.name);
	buf[2] = 0x80; /* an answer deserves none */
	ck_assert_int_eq(dns_read(buf, len, &q), -1);
	buf[2] = 0x28;
	ck_assert_int_eq(dns_read(buf, len, &q), DNS_NOTIMP);
}
END_TEST

START_TEST(answers)
{
	static const uint8_t addr[4] = { 198, 18, 1, 0 };
	const char *const chain[] = { "real.example.net", NULL };
	struct dns_answer a = { .addr = addr, .chain = chain, .ttl = 60 };
	struct dns_question q;
	uint8_t buf[512], out[DNS_ANSWER_MAX];
	size_t n, len = query(buf, "\3www\7example\3com", 17, DNS_A);

	ck_assert_int_eq(dns_read(buf, len, &q), 0);
	n = dns_write(buf, &q, DNS_OK, &a, out);
	ck_assert(out[0] == 0x12 && out[1] == 0x34 && (out[2] & 0x80) && out[7] == 2);
	ck_assert_int_eq(memcmp(out + n - 4, addr, 4), 0);
	a.truncated = true;
	n = dns_write(buf, &q, DNS_OK, &a, out);
	ck_assert(n == len && (out[2] & 2) && out[7] == 0);
	n = dns_write(buf, &q, DNS_NXDOMAIN, NULL, out);
	ck_assert(n == len && (out[3] & 15) == DNS_NXDOMAIN);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("egress");
	TCase *tc = tcase_create("egress");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(tc, names_and_ports);
	tcase_add_test(tc, narrower_rules);
	tcase_add_loop_test(tc, denied_to_all, 0, (int)ARRAY_SIZE(networks));
	tcase_add_test(tc, what_the_operator_says);
	tcase_add_test(tc, inner_addresses);
	tcase_add_test(tc, malformed_rules);
	tcase_add_test(tc, bans_are_read);
	tcase_add_test(tc, questions);
	tcase_add_test(tc, answers);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
