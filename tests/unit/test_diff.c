/* SPDX-License-Identifier: Apache-2.0 */
/* Which way a difference goes, one member at a time and both ways round; places in a text (lint). */
#include <check.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/explain.h"
#include "policy/lint.h"
#include "policy/report.h"
#include "tests/support/plan_kit.h"

static struct nsbox_policy *resolve(const char *members)
{
	const struct nsbox_host h = kit_full_host();
	const struct nsbox_resolve_options opt = { .host = &h, .as_operator = true };
	struct nsbox_manifest *m = NULL;
	struct nsbox_policy *p = NULL;
	struct nsbox_error err = { 0 };
	char json[1024];

	snprintf(json, sizeof(json), "{\"manifestVersion\":1%s%s}", *members ? "," : "", members);
	ck_assert_msg(nsbox_manifest_parse(json, strlen(json), &m, &err) == 0, "%s", err.msg);
	ck_assert_msg(nsbox_policy_resolve(m, &opt, &p, &err) == 0, "%s", err.msg);
	nsbox_manifest_free(m);
	return p;
}

static struct json_object *diff(const char *a, const char *b, unsigned *widened)
{
	struct nsbox_policy *x = resolve(a), *y = resolve(b);
	struct nsbox_error err = { 0 };
	auto_free char *text = NULL;
	struct json_object *o;

	ck_assert_int_eq(nsbox_policy_diff(x, y, NSBOX_REPORT_JSON, &text, widened, &err), 0);
	nsbox_policy_free(x);
	nsbox_policy_free(y);
	o = json_tokener_parse(text);
	ck_assert_ptr_nonnull(o);
	return o;
}

static bool has(struct json_object *o, const char *way, const char *pointer)
{
	struct json_object *list = report_at(o, way);

	for (size_t i = 0; i < json_object_array_length(list); i++)
		if (!strcmp(report_get(json_object_array_get_idx(list, i), "pointer"), pointer))
			return true;
	return false;
}

/* The second is wider than the first in this member, and the first narrower than the second. */
static const struct {
	const char *narrow, *wide, *pointer;
} pairs[] = {
	/* clang-format off */
	{ "", "\"filesystem\":{\"read\":[\"/data\"]}", "/filesystem/read" },
	{ "\"filesystem\":{\"write\":[\"/data/a\"]}", "\"filesystem\":{\"write\":[\"/data\"]}", "/filesystem/write" },
	{ "", "\"filesystem\":{\"exec\":[\"/opt/x\"]}", "/filesystem/exec" },
	{ "\"filesystem\":{\"mask\":[\"/opt/x\"]}", "", "/filesystem/mask" },
	{ "\"filesystem\":{\"readOnly\":[\"/workspace/x\"]}", "", "/filesystem/readOnly" },
	{ "\"filesystem\":{\"tmp\":{\"exec\":false}}", "", "/filesystem/tmpfs/~1tmp" },
	{ "\"filesystem\":{\"tmp\":\"1Mi\"}", "", "/filesystem/tmpfs/~1tmp" },
	{ "\"filesystem\":{\"workspace\":\"none\"}", "", "/filesystem/workspace" },
	{ "\"profile\":\"strict\"", "", "/filesystem/rootReadOnly" },
	{ "\"process\":{\"subprocess\":\"skill\"}", "", "/process/subprocess" },
	{ "\"process\":{\"jit\":false}", "", "/process/jit" },
	{ "\"process\":{\"threads\":false}", "", "/process/threads" },
	{ "\"process\":{\"ptrace\":false}", "", "/process/ptrace" },
	{ "\"process\":{\"listen\":false}", "", "/process/listen" },
	{ "", "\"process\":{\"netlink\":true}", "/process/netlink" },
	{ "", "\"process\":{\"user\":\"root\"}", "/process/uid" },
	{ "", "\"syscalls\":{\"allow\":[\"keyctl\"]}", "/syscalls/allow" },
	{ "", "\"env\":{\"pass\":[\"TERM\"]}", "/env/pass" },
	{ "\"resources\":{\"memory\":\"256Mi\",\"disk\":\"64Mi\"}", "\"resources\":{\"disk\":\"64Mi\"}", "/limits/memory" },
	{ "\"resources\":{\"pids\":8}", "", "/limits/pids" },
	{ "\"timeouts\":{\"cpu\":\"10s\"}", "", "/limits/cpuMs" },
	{ "\"timeouts\":{\"cpu\":\"10s\"}", "\"timeouts\":{\"cpu\":\"20s\"}", "/limits/cpuMs" },
	{ "\"require\":{\"proc\":\"require\"}", "", "/layers/proc" },
	{ "\"minTier\":\"cgroup\"", "", "/minTier" },
	{ "\"profile\":\"network\"", "\"profile\":\"network\",\"network\":{\"mode\":\"open\"}", "/network/mode" },
	{ "\"profile\":\"network\"", "\"profile\":\"network\",\"network\":{\"allow\":[{\"host\":\"a.example\",\"ports\":[80],"
	  "\"description\":\"x\"}]}", "/network/allow" },
	{ "\"profile\":\"network\",\"network\":{\"allow\":[{\"host\":\"a.b.example\",\"ports\":[80],\"description\":\"x\"}]}",
	  "\"profile\":\"network\",\"network\":{\"allow\":[{\"host\":\"*.b.example\",\"ports\":[80],\"description\":\"x\"}]}",
	  "/network/allow" },
	{ "\"profile\":\"network\",\"network\":{\"denyCidrs\":[\"192.0.2.0/24\"]}", "\"profile\":\"network\"", "/network/denyCidrs" },
	/* clang-format on */
};

START_TEST(both_ways)
{
	unsigned widened = 0;
	struct json_object *o = diff(pairs[_i].narrow, pairs[_i].wide, &widened);

	ck_assert_msg(has(o, "widened", pairs[_i].pointer), "%s",
		      json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY));
	ck_assert_uint_gt(widened, 0);
	json_object_put(o);
	o = diff(pairs[_i].wide, pairs[_i].narrow, &widened);
	ck_assert_msg(has(o, "narrowed", pairs[_i].pointer), "%s",
		      json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY));
	ck_assert_msg(!has(o, "widened", pairs[_i].pointer), "%s",
		      json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY));
	json_object_put(o);
}
END_TEST

/* What is below a granted path, or covered by a wildcard, is nothing new. */
START_TEST(covered)
{
	static const char *const same[][2] = {
		{ "\"filesystem\":{\"read\":[\"/data\"]}",
		  "\"filesystem\":{\"read\":[\"/data\",\"/data/x\"]}" },
		{ "\"profile\":\"network\",\"network\":{\"allow\":[{\"host\":\"*.b.example\","
		  "\"ports\":[80],\"description\":\"x\"}]}",
		  "\"profile\":\"network\",\"network\":{\"allow\":[{\"host\":\"*.b.example\","
		  "\"ports\":[80],\"description\":\"x\"},{\"host\":\"a.b.example\",\"ports\":[80],"
		  "\"description\":\"x\"}]}" },
		{ "\"name\":\"a\"", "\"name\":\"b\"" },
	};
	unsigned widened = 0;
	struct json_object *o = diff(same[_i][0], same[_i][1], &widened);

	ck_assert_uint_eq(widened, 0);
	json_object_put(o);
}
END_TEST

/* ------------------------------------------------------------------ of a live sandbox */

static int narrower(const char *now, const char *then, struct nsbox_error *err)
{
	struct nsbox_policy *x = resolve(now), *y = resolve(then);
	int r = nsbox_policy_narrower(x, y, err);

	nsbox_policy_free(x);
	nsbox_policy_free(y);
	return r;
}

static bool begins(const struct nsbox_error *err, const char *pointer)
{
	size_t n = strlen(pointer);

	return !strncmp(err->msg, pointer, n) && err->msg[n] == ':';
}

/* No pair can be widened but by who has the network's rules; the way back holds or is refused. */
START_TEST(never_wider)
{
	bool network = !strncmp(pairs[_i].pointer, "/network/", 9);
	struct nsbox_error err = { 0 };
	int r = narrower(pairs[_i].narrow, pairs[_i].wide, &err);

	ck_assert_int_eq(narrower(pairs[_i].wide, pairs[_i].wide, NULL), 0);
	ck_assert_int_eq(narrower(pairs[_i].narrow, pairs[_i].narrow, NULL), 0);
	if (!network || !strcmp(pairs[_i].pointer, "/network/denyCidrs"))
		ck_assert_msg(r == -EEXIST && err.code == NSBOX_E_MANIFEST, "%s: %s",
			      pairs[_i].pointer, err.msg);
	r = narrower(pairs[_i].wide, pairs[_i].narrow, &err);
	ck_assert_msg(r == 0 || (r == -EEXIST && err.code == NSBOX_E_UNSUPPORTED), "%s: %s",
		      pairs[_i].pointer, err.msg);
}
END_TEST

static const struct {
	const char *now, *then, *refused; /* NULL: one program can have it */
} programs[] = {
	/* clang-format off */
	{ "", "\"process\":{\"jit\":false}", NULL },
	{ "", "\"process\":{\"threads\":false,\"ptrace\":false,\"listen\":false}", NULL },
	{ "", "\"timeouts\":{\"cpu\":\"10s\",\"wall\":\"10s\"}", NULL },
	{ "", "\"resources\":{\"openFiles\":64,\"fileSize\":\"1Mi\",\"stdout\":\"1Ki\"}", NULL },
	{ "", "\"env\":{\"set\":{\"A\":\"b\"}},\"outputs\":[{\"glob\":\"*\"}],\"name\":\"x\"", NULL },
	{ "\"filesystem\":{\"write\":[\"/srv/a\",\"/mnt/b\"]}", "\"filesystem\":{\"write\":[\"/mnt/b\"]}", NULL },
	{ "\"filesystem\":{\"write\":[\"/srv/a\"]}", "\"filesystem\":{\"read\":[\"/srv/a\"]}", NULL },
	{ "\"filesystem\":{\"write\":[\"/srv/a\"]}", "\"filesystem\":{\"write\":[\"/srv/a/b\"]}", NULL },
	{ "\"filesystem\":{\"read\":[\"/srv/a\"]}", "", NULL },
	/* Around these every run has what they lose. */
	{ "\"filesystem\":{\"exec\":[\"/opt/x\"]}", "", "/filesystem/exec" },
	{ "\"filesystem\":{\"read\":[\"/opt/x\"]}", "", "/filesystem/read" },
	/* These are the sandbox's. */
	{ "", "\"resources\":{\"memory\":\"64Mi\"}", "/resources/memory" },
	{ "", "\"resources\":{\"pids\":8}", "/resources/pids" },
	{ "", "\"resources\":{\"cpu\":0.5}", "/resources/cpu" },
	{ "", "\"resources\":{\"disk\":\"1Mi\"}", "/resources/disk" },
	{ "", "\"timeouts\":{\"grace\":\"10ms\"}", "/timeouts/grace" },
	{ "", "\"filesystem\":{\"mask\":[\"/etc/x\"]}", "/filesystem/mask" },
	{ "", "\"filesystem\":{\"readOnly\":[\"/workspace/x\"]}", "/filesystem/readOnly" },
	{ "", "\"filesystem\":{\"tmp\":{\"exec\":false}}", "/filesystem/tmp" },
	{ "", "\"filesystem\":{\"workspace\":\"none\"}", "/filesystem/workspace" },
	{ "", "\"process\":{\"subprocess\":\"skill\"}", "/process/subprocess" },
	{ "", "\"require\":{\"proc\":\"require\"}", "/require/proc" },
	{ "", "\"minTier\":\"cgroup\"", "/minTier" },
	{ "", "\"determinism\":{\"hostname\":\"x\"}", "/determinism/hostname" },
	{ "\"profile\":\"network\"", "\"profile\":\"network\",\"network\":{\"denyCidrs\":[\"192.0.2.0/24\"]}", "/network/denyCidrs" },
	/* clang-format on */
};

START_TEST(of_one_program)
{
	struct nsbox_error err = { 0 };
	int r = narrower(programs[_i].now, programs[_i].then, &err);

	if (!programs[_i].refused)
		ck_assert_msg(r == 0, "%s: %s", programs[_i].then, err.msg);
	else
		ck_assert_msg(r == -EEXIST && begins(&err, programs[_i].refused), "%s: %s",
			      programs[_i].then, err.msg);
}
END_TEST

static void expect_known(const char *pointer, struct json_object *o)
{
	if (diff_knows(pointer))
		return;
	ck_assert_msg(json_object_is_type(o, json_type_object), "diff.c has no row for %s",
		      pointer);
	json_object_object_foreach (o, key, value) {
		char sub[200];

		snprintf(sub, sizeof(sub), "%s/%s", pointer, key);
		expect_known(sub, value);
	}
}

/* Whoever adds a member to the canonical form has to say which way is wider. */
START_TEST(every_member_is_known)
{
	struct nsbox_policy *p = resolve("\"profile\":\"network\"");
	struct nsbox_error err = { 0 };
	auto_free char *text = NULL;
	struct json_object *o;

	ck_assert_int_eq(nsbox_policy_json(p, &text, &err), 0);
	o = json_tokener_parse(text);
	expect_known("", o);
	json_object_put(o);
	nsbox_policy_free(p);
}
END_TEST

/* ------------------------------------------------------------------ places in a text */

START_TEST(locate)
{
	static const char text[] = "{\n  \"a\": [1, {\"b/c\": \"x,]}\\\"\"},\n    true],\n"
				   "  \"d\" : {\"e\":\n {}}\n}\n";
	static const struct {
		const char *pointer;
		unsigned line, column; /* 0: nowhere */
	} places[] = {
		{ "", 1, 1 },		{ "/a", 2, 3 },	  { "/a/0", 2, 9 }, { "/a/1", 2, 12 },
		{ "/a/1/b~1c", 2, 13 }, { "/a/2", 3, 5 }, { "/d", 4, 3 },   { "/d/e", 4, 10 },
		{ "/f", 0, 0 },		{ "/a/3", 0, 0 }, { "/a/x", 0, 0 }, { "/d/e/g", 0, 0 },
		{ "/a/0/x", 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		unsigned line = 0, column = 0;
		bool found = lint_locate(text, strlen(text), places[i].pointer, &line, &column);

		ck_assert_msg(found == (places[i].line != 0), "%s", places[i].pointer);
		if (found)
			ck_assert_msg(line == places[i].line && column == places[i].column,
				      "%s: %u:%u", places[i].pointer, line, column);
	}
	/* A text that ends anywhere is read no further than its end. */
	for (size_t len = 0; len < strlen(text); len++) {
		auto_free char *part = malloc(len ? len : 1);
		unsigned line, column;

		memcpy(part, text, len);
		lint_locate(part, len, "/d/e", &line, &column);
		lint_locate(part, len, "/a/1/b~1c", &line, &column);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("diff");
	TCase *tc = tcase_create("diff");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(tc, both_ways, 0, (int)ARRAY_SIZE(pairs));
	tcase_add_loop_test(tc, covered, 0, 3);
	tcase_add_loop_test(tc, never_wider, 0, (int)ARRAY_SIZE(pairs));
	tcase_add_loop_test(tc, of_one_program, 0, (int)ARRAY_SIZE(programs));
	tcase_add_test(tc, every_member_is_known);
	tcase_add_test(tc, locate);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
