/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts and networks of an allowlist: each refusal beside the spelling that is right. */
#include <check.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/names.h"

#define L63 "a23456789012345678901234567890123456789012345678901234567890123"

static const struct {
	const char *text;
	const char *normal; /* NULL: refused */
	const char *why;
} hosts[] = {
	{ "api.example.com", "api.example.com", NULL },
	{ "API.Example.COM.", "api.example.com", NULL },
	{ "db", "db", NULL },
	{ "my_db", "my_db", NULL },
	{ "xn--bcher-kva.example", "xn--bcher-kva.example", NULL },
	{ "b\xc3\xbc"
	  "cher.example",
	  NULL, "is not ASCII: write the name in its xn-- form" },
	{ "*.example.com", "*.example.com", NULL },
	{ "*.Example.com.", "*.example.com", NULL },
	{ "*.com", NULL, "covers a whole top level: name at least two labels" },
	{ "*", NULL, "is every host: that is network.mode \"open\"" },
	{ "*example.com", NULL, "has a '*' that is not the whole first label" },
	{ "a.*.example.com", NULL, "has a '*' that is not the whole first label" },
	{ "*.*.example.com", NULL, "has a '*' that is not the whole first label" },
	{ "", NULL, "is empty" },
	{ ".", NULL, "is empty" },
	{ "a..b", NULL, "has an empty label" },
	{ ".a.b", NULL, "has an empty label" },
	{ "a.b..", NULL, "has an empty label" },
	{ "-a.b", NULL, "has a label that begins or ends with '-'" },
	{ "a-.b", NULL, "has a label that begins or ends with '-'" },
	{ L63 ".x", L63 ".x", NULL },
	{ L63 "4.x", NULL, "has a label of more than 63 characters" },
	{ L63 "." L63 "." L63 "." L63, NULL, "is longer than 253 characters" },
	{ "a b", NULL, "has a character that no host name has" },
	{ "a%2eb", NULL, "has a character that no host name has" },
	{ "https://a.example", NULL, "is not a host alone: no scheme, user, port or path" },
	{ "a.example:443", NULL, "is not a host alone: no scheme, user, port or path" },
	{ "a.example/x", NULL, "is not a host alone: no scheme, user, port or path" },
	{ "u@a.example", NULL, "is not a host alone: no scheme, user, port or path" },
	{ "192.0.2.1", "192.0.2.1", NULL },
	{ "192.0.2.1.", NULL, "is neither a name nor an address like 192.0.2.1" },
	{ "192.0.2", NULL, "is neither a name nor an address like 192.0.2.1" },
	{ "192.0.2.256", NULL, "is neither a name nor an address like 192.0.2.1" },
	{ "0300.0.2.1", NULL, "is neither a name nor an address like 192.0.2.1" },
	{ "0xc0.0.2.0x1", NULL, "is neither a name nor an address like 192.0.2.1" },
	{ "0x7f000001", NULL, "is neither a name nor an address like 192.0.2.1" },
	{ "2130706433", NULL, "is neither a name nor an address like 192.0.2.1" },
	{ "a.0x", NULL, "is neither a name nor an address like 192.0.2.1" },
	{ "1.example", "1.example", NULL },
	{ "2001:DB8:0::1", "2001:db8::1", NULL },
	{ "::ffff:192.0.2.1", NULL, "is an IPv4 address in IPv6 form: write it as IPv4" },
	{ "fe80::1%eth0", NULL, "is not a host alone: no scheme, user, port or path" },
	{ "[2001:db8::1]", NULL, "is not a host alone: no scheme, user, port or path" },
};

START_TEST(host_names)
{
	char buf[HOST_MAX + 1];
	const char *why = NULL;
	bool ok = host_check(hosts[_i].text, &why);

	ck_assert_msg(ok == (hosts[_i].normal != NULL), "%s: %s", hosts[_i].text,
		      why ? why : "taken");
	if (!ok) {
		ck_assert_str_eq(why, hosts[_i].why);
		return;
	}
	host_normalise(hosts[_i].text, buf, sizeof(buf));
	ck_assert_str_eq(buf, hosts[_i].normal);
}
END_TEST

static const struct {
	const char *pattern, *host;
	bool covers;
} pairs[] = {
	{ "good.com", "good.com", true },
	{ "good.com", "evilgood.com", false },
	{ "good.com", "a.good.com", false },
	{ "*.good.com", "a.good.com", true },
	{ "*.good.com", "a.b.good.com", true },
	{ "*.good.com", "good.com", false },
	{ "*.good.com", "evilgood.com", false },
	{ "*.good.com", ".good.com", false },
	{ "*.good.com", "good.com.evil.com", false },
	{ "*.good.com", "*.good.com", true },
	{ "*.good.com", "*.a.good.com", true },
	{ "*.a.good.com", "*.good.com", false },
	{ "192.0.2.1", "192.0.2.1", true },
	{ "192.0.2.1", "192.0.2.10", false },
};

START_TEST(patterns)
{
	ck_assert_msg(host_covers(pairs[_i].pattern, pairs[_i].host) == pairs[_i].covers, "%s %s",
		      pairs[_i].pattern, pairs[_i].host);
}
END_TEST

static const struct {
	const char *text, *normal, *why;
} cidrs[] = {
	{ "10.0.0.0/8", "10.0.0.0/8", NULL },
	{ "0.0.0.0/0", "0.0.0.0/0", NULL },
	{ "192.0.2.1/32", "192.0.2.1/32", NULL },
	{ "FD00::/8", "fd00::/8", NULL },
	{ "2001:db8:0:0::/32", "2001:db8::/32", NULL },
	{ "::/0", "::/0", NULL },
	{ "10.0.0.0", NULL, "has no prefix length, like 192.0.2.0/24" },
	{ "10/8", NULL, "is not an address in full form, like 192.0.2.0/24" },
	{ "10.1/16", NULL, "is not an address in full form, like 192.0.2.0/24" },
	{ "012.0.0.0/8", NULL, "is not an address in full form, like 192.0.2.0/24" },
	{ "0xa.0.0.0/8", NULL, "is not an address in full form, like 192.0.2.0/24" },
	{ " 10.0.0.0/8", NULL, "is not an address in full form, like 192.0.2.0/24" },
	{ "10.0.0.0/8 ", NULL, "has a prefix length that is not 0 to 32" },
	{ "10.0.0.0/33", NULL, "has a prefix length that is not 0 to 32" },
	{ "10.0.0.0/08", NULL, "has no plain prefix length" },
	{ "10.0.0.0/+8", NULL, "has no plain prefix length" },
	{ "10.0.0.0/-1", NULL, "has no plain prefix length" },
	{ "10.0.0.0/", NULL, "has no plain prefix length" },
	{ "10.0.0.0/255.0.0.0", NULL, "has a prefix length that is not 0 to 32" },
	{ "10.0.0.1/8", NULL, "has bits beyond its prefix length" },
	{ "fd00::1/64", NULL, "has bits beyond its prefix length" },
	{ "fd00::/129", NULL, "has a prefix length that is not 0 to 128" },
	{ "fd00::/18446744073709551620", NULL, "has a prefix length that is not 0 to 128" },
	{ "::ffff:10.0.0.0/104", NULL, "is an IPv4 network in IPv6 form: write it as IPv4" },
	{ "example.com/8", NULL, "is not an address in full form, like 192.0.2.0/24" },
	{ "", NULL, "has no prefix length, like 192.0.2.0/24" },
};

START_TEST(networks)
{
	char buf[64];
	const char *why = NULL;
	bool ok = cidr_check(cidrs[_i].text, &why);

	ck_assert_msg(ok == (cidrs[_i].normal != NULL), "%s: %s", cidrs[_i].text,
		      why ? why : "taken");
	if (!ok) {
		ck_assert_str_eq(why, cidrs[_i].why);
		return;
	}
	cidr_normalise(cidrs[_i].text, buf, sizeof(buf));
	ck_assert_str_eq(buf, cidrs[_i].normal);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("names");
	TCase *tc = tcase_create("names");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(tc, host_names, 0, (int)ARRAY_SIZE(hosts));
	tcase_add_loop_test(tc, patterns, 0, (int)ARRAY_SIZE(pairs));
	tcase_add_loop_test(tc, networks, 0, (int)ARRAY_SIZE(cidrs));
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
