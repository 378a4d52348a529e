/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Explanations against goldens: tests/unit/explain/NAME.json gives NAME.golden, on a host that is
 * made up. After a change that is meant, NSBOX_UPDATE_GOLDENS=1 writes them anew, to be reviewed.
 * Then questions and answers, each with the change that is proposed.
 */
#include <check.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/explain.h"
#include "policy/report.h"
#include "tests/support/plan_kit.h"

#define DIR "tests/unit/explain/"

static char *read_text(const char *path, bool must)
{
	char *buf = calloc(1, 65536);
	FILE *f = fopen(path, "r");

	ck_assert_msg(f || !must, "cannot open %s", path);
	if (f) {
		size_t n = fread(buf, 1, 65535, f);

		buf[n] = '\0';
		fclose(f);
	}
	return buf;
}

static struct nsbox_host made_up(int abi)
{
	struct nsbox_host h = kit_full_host();

	strcpy(h.kernel, "6.1.0");
	strcpy(h.machine, "x86_64");
	h.landlock_abi = abi;
	h.ids_kind = NSBOX_IDS_PRIVILEGED;
	return h;
}

static struct nsbox_policy *resolve(const char *json, const struct nsbox_host *h, const char *skill)
{
	const struct nsbox_resolve_options opt = { .host = h,
						   .skill_dir = skill,
						   .as_operator = true };
	struct nsbox_manifest *m = NULL;
	struct nsbox_policy *p = NULL;
	struct nsbox_error err = { 0 };

	ck_assert_msg(nsbox_manifest_parse(json, strlen(json), &m, &err) == 0, "%s", err.msg);
	ck_assert_msg(nsbox_policy_resolve(m, &opt, &p, &err) == 0, "%s", err.msg);
	nsbox_manifest_free(m);
	return p;
}

/* The digest of a policy changes with every member of the canonical form: not a golden's matter. */
static void hide_digest(char *text)
{
	char *digest = strstr(text, "policy ");

	ck_assert_ptr_nonnull(digest);
	ck_assert_uint_eq(strspn(digest + 7, "0123456789abcdef"), 16);
	memset(digest + 7, 'x', 16);
}

/* ------------------------------------------------------------------ goldens */

static const struct golden {
	const char *manifest, *name, *skill;
	int abi;
	bool bare; /* a host that has no cgroups and no procfs to mount */
} goldens[] = {
	{ "standard", "standard", NULL, 7, false },
	{ "strict", "strict", NULL, 7, false },
	{ "build", "build", NULL, 7, false },
	{ "egress", "egress", NULL, 7, false },
	{ "skill", "skill", "/skills/pdf-report", 7, false },
	{ "standard", "standard-abi2-bare", NULL, 2, true },
};

START_TEST(golden)
{
	const struct golden *g = &goldens[_i];
	struct nsbox_host h = made_up(g->abi);
	struct nsbox_error err = { 0 };
	auto_free char *json = NULL, *expected = NULL, *text = NULL;
	struct nsbox_policy *p;
	char path[200];

	if (g->bare) {
		h.proc_mountable = false;
		h.proc_errno = 1;
		h.cgroup_memory = h.cgroup_pids = h.cgroup_cpu = false;
		h.cgroup_kind = NSBOX_CGROUP_NONE;
		strcpy(h.cgroup_note, "made up to have none");
	}
	snprintf(path, sizeof(path), DIR "%s.json", g->manifest);
	json = read_text(path, true);
	p = resolve(json, &h, g->skill);
	ck_assert_msg(nsbox_policy_explain(p, &h, NSBOX_REPORT_TEXT, &text, &err) == 0, "%s",
		      err.msg);
	hide_digest(text);
	nsbox_policy_free(p);
	snprintf(path, sizeof(path), DIR "%s.golden", g->name);
	if (getenv("NSBOX_UPDATE_GOLDENS")) {
		FILE *f = fopen(path, "w");

		fputs(text, f);
		fclose(f);
	}
	expected = read_text(path, true);
	ck_assert_msg(!strcmp(text, expected), "%s differs; now:\n%s", path, text);
}
END_TEST

/* The JSON form has the same facts, and is JSON. */
START_TEST(as_json)
{
	struct nsbox_host h = made_up(7);
	struct nsbox_policy *p = resolve("{\"manifestVersion\":1}", &h, NULL);
	struct nsbox_error err = { 0 };
	auto_free char *text = NULL;
	struct json_object *o;

	ck_assert_int_eq(nsbox_policy_explain(p, &h, NSBOX_REPORT_JSON, &text, &err), 0);
	o = json_tokener_parse(text);
	ck_assert_ptr_nonnull(o);
	ck_assert_str_eq(report_get(o, "profile"), "standard");
	ck_assert_uint_gt(json_object_get_uint64(report_at(report_at(o, "calls"), "allowed")), 200);
	ck_assert_ptr_nonnull(strstr(report_get(report_at(o, "files"), "write"), "/tmp"));
	json_object_put(o);
	nsbox_policy_free(p);
}
END_TEST

/* ------------------------------------------------------------------ why */

#define STANDARD "{\"manifestVersion\":1}"
#define STRICT	 "{\"manifestVersion\":1,\"profile\":\"strict\"}"
#define WITH(x)	 "{\"manifestVersion\":1," x "}"

static const struct question {
	const char *manifest, *question, *verdict, *layer, *errnum, *pointer, *value, *by;
} questions[] = {
	/* clang-format off */
	{ STANDARD, "open /usr/lib/x", "allowed" },
	{ STANDARD, "open /tmp/x", "allowed" },
	{ STANDARD, "open notes.txt", "allowed" },
	{ STANDARD, "write /tmp/x", "allowed" },
	{ STANDARD, "write /workspace/a/b", "allowed" },
	{ STANDARD, "write /home/sandbox/x", "allowed" },
	{ STANDARD, "write /dev/null", "allowed" },
	{ STANDARD, "write /dev/sda", "refused", "permissions", "EACCES" },
	{ STANDARD, "write /proc/sys/kernel/x", "refused", "mount", "EROFS" },
	{ STANDARD, "open /proc/kcore", "hidden" },
	{ STANDARD, "write /data/x", "refused", "permissions", "EACCES", "/filesystem/write/-", "/data", "author" },
	{ STANDARD, "open /data/x", "refused", "landlock", "EACCES", "/filesystem/read/-", "/data/x", "author" },
	{ STANDARD, "exec /tmp/x", "allowed" },
	{ STRICT, "exec /tmp/x", "refused", "mount", "EACCES", "/filesystem/exec/-", "/tmp/x", "author" },
	{ STRICT, "write /tmp/x", "allowed" },
	{ STRICT, "write /var/lib/x", "refused", "mount", "EROFS", NULL },
	{ WITH("\"process\":{\"subprocess\":\"skill\"}"), "exec /tmp/x", "refused", "mount", "EACCES",
	  "/filesystem/exec/-", "/tmp/x", "author" },
	{ WITH("\"filesystem\":{\"mask\":[\"/opt/a\",\"/opt/b\"]}"), "open /opt/b/c", "refused", "mask", "ENOENT",
	  "/filesystem/mask/1", NULL, "author" },
	{ WITH("\"filesystem\":{\"readOnly\":[\"/workspace/in\"]}"), "write /workspace/in/x", "refused", "mount",
	  "EROFS", "/filesystem/readOnly/0", NULL, "author" },
	{ WITH("\"filesystem\":{\"write\":[\"/data\"]}"), "write /data/x", "allowed" },

	{ STANDARD, "connect 127.0.0.1:5432", "allowed" },
	{ STANDARD, "connect [::1]:80", "allowed" },
	{ STANDARD, "connect 8.8.8.8:80", "refused", "network", "ENETUNREACH", "/network", NULL, "author" },
	{ STANDARD, "connect 192.0.2.1:80", "refused", "network", "ENETUNREACH" },
	{ STANDARD, "connect db.example.com:5432", "refused", "network", "", "/network", NULL, "author" },

	{ STANDARD, "syscall read", "allowed" },
	{ STANDARD, "syscall ptrace", "allowed" },
	{ STRICT, "syscall ptrace", "refused", "seccomp", "EPERM", "/process/ptrace", "true", "author" },
	{ STRICT, "syscall mprotect 0 4096 PROT_EXEC", "refused", "seccomp", "EPERM", "/process/jit", "true", "author" },
	{ STRICT, "syscall mprotect 0 4096 PROT_READ", "allowed" },
	{ STANDARD, "syscall socket", "depends" },
	{ STANDARD, "syscall socket AF_INET SOCK_STREAM|SOCK_CLOEXEC 0", "allowed" },
	{ STANDARD, "syscall socket AF_PACKET", "refused", "seccomp", "EAFNOSUPPORT", "/syscalls/allow/-", "socket", "operator" },
	{ STANDARD, "syscall socket AF_NETLINK SOCK_RAW NETLINK_SOCK_DIAG", "refused", "seccomp",
	  "EAFNOSUPPORT", "/process/netlink", "true", "author" },
	{ STANDARD, "syscall mount", "refused", "seccomp", "EPERM", "/syscalls/allow/-", "mount", "operator" },
	{ STANDARD, "syscall clone3", "refused", "seccomp", "ENOSYS", "/syscalls/allow/-", "clone3", "operator" },
	{ STANDARD, "syscall sync", "hidden" },
	{ WITH("\"process\":{\"threads\":false}"), "syscall clone CLONE_VM|CLONE_THREAD", "refused", "seccomp",
	  "EPERM", "/process/threads", "true", "author" },
	/* clang-format on */
};

static struct json_object *ask(const char *manifest, const char *question, bool *allowed)
{
	const struct nsbox_host h = made_up(7);
	const struct nsbox_resolve_options opt = { .host = &h };
	struct nsbox_error err = { 0 };
	auto_free char *text = NULL;
	int r = nsbox_manifest_why(manifest, strlen(manifest), &opt, NULL, question,
				   NSBOX_REPORT_JSON, &text, allowed, &err);

	ck_assert_msg(r == 0, "%s: %s", question, err.msg);
	return json_tokener_parse(text);
}

START_TEST(why)
{
	const struct question *q = &questions[_i];
	bool allowed = false;
	struct json_object *o = ask(q->manifest, q->question, &allowed);
	struct json_object *change = report_at(o, "change");
	const char *all = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY);

	ck_assert_msg(!strcmp(report_get(o, "verdict"), q->verdict), "%s", all);
	ck_assert_int_eq(allowed, !strcmp(q->verdict, "allowed"));
	if (q->layer)
		ck_assert_msg(!strcmp(report_get(o, "layer"), q->layer), "%s", all);
	if (q->errnum)
		ck_assert_msg(!strcmp(report_get(o, "errno"), q->errnum), "%s", all);
	if (q->pointer) {
		ck_assert_msg(change && !strcmp(report_get(change, "pointer"), q->pointer), "%s",
			      all);
		ck_assert_str_eq(report_get(change, "by"), q->by);
	} else if (q->layer && !strcmp(q->layer, "mount")) {
		ck_assert_msg(!change, "%s", all);
	}
	if (q->value)
		ck_assert_msg(!strcmp(report_get(change, "value"), q->value), "%s", all);
	json_object_put(o);
}
END_TEST

START_TEST(bad_questions)
{
	static const char *const bad[] = { "",
					   "open",
					   "look /etc/shadow",
					   "open /a/../b",
					   "connect db",
					   "connect db:0",
					   "connect db:99999",
					   "syscall",
					   "syscall no_such_call",
					   "syscall socket AF_NOPE",
					   "syscall read 1 2 3 4 5 6 7" };
	const struct nsbox_host h = made_up(7);
	const struct nsbox_resolve_options opt = { .host = &h };
	struct nsbox_error err = { 0 };
	char *text;
	bool allowed;

	ck_assert_int_lt(nsbox_manifest_why(NULL, 0, &opt, NULL, bad[_i], NSBOX_REPORT_TEXT, &text,
					    &allowed, &err),
			 0);
	ck_assert_int_eq(err.code, NSBOX_E_INVALID);
	ck_assert_str_ne(err.msg, "");
}
END_TEST

/* An operator's ceiling stands in the way of a change: it is theirs. */
START_TEST(above_the_ceiling)
{
	const struct nsbox_host h = made_up(7);
	const struct nsbox_ceiling c = { .jit = NSBOX_ALLOWANCE_NO };
	const struct nsbox_resolve_options opt = { .host = &h, .ceiling = &c };
	struct nsbox_error err = { 0 };
	auto_free char *text = NULL;
	struct json_object *o;
	bool allowed;

	ck_assert_int_eq(nsbox_manifest_why(STRICT, strlen(STRICT), &opt, NULL,
					    "syscall mprotect 0 4096 PROT_EXEC", NSBOX_REPORT_JSON,
					    &text, &allowed, &err),
			 0);
	o = json_tokener_parse(text);
	ck_assert_str_eq(report_get(report_at(o, "change"), "pointer"), "/process/jit");
	ck_assert_str_eq(report_get(report_at(o, "change"), "by"), "operator");
	json_object_put(o);
}
END_TEST

/* ------------------------------------------------------------------ plans */

START_TEST(show_plan)
{
	const struct nsbox_host h = made_up(7);
	auto_close int fd = kit_compile(&h, STRICT);
	struct nsbox_plan *plan = NULL;
	struct nsbox_error err = { 0 };
	auto_free char *text = NULL, *json = NULL;
	struct json_object *o;

	ck_assert_int_eq(nsbox_plan_open(fd, &plan, &err), 0);
	ck_assert_int_eq(nsbox_plan_show(plan, NSBOX_REPORT_TEXT, &text, &err), 0);
	ck_assert_ptr_nonnull(strstr(text, "rootReadOnly  true"));
	ck_assert_ptr_nonnull(strstr(text, "if == clone goto"));
	ck_assert_ptr_nonnull(strstr(text, "execute readFile readDir"));
	ck_assert_int_eq(nsbox_plan_show(plan, NSBOX_REPORT_JSON, &json, &err), 0);
	o = json_tokener_parse(json);
	ck_assert_uint_gt(json_object_array_length(report_at(o, "filter")), 200);
	ck_assert_uint_gt(json_object_array_length(report_at(report_at(o, "landlock"), "rules")),
			  10);
	json_object_put(o);
	nsbox_plan_close(plan);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("explain");
	TCase *tc = tcase_create("explain");
	SRunner *sr = srunner_create(s);
	int failed;

#ifndef __x86_64__
	printf("1..0 # SKIP counts of calls are those of x86_64\n");
	return 0;
#endif
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, golden, 0, (int)ARRAY_SIZE(goldens));
	tcase_add_test(tc, as_json);
	tcase_add_loop_test(tc, why, 0, (int)ARRAY_SIZE(questions));
	tcase_add_loop_test(tc, bad_questions, 0, 11);
	tcase_add_test(tc, above_the_ceiling);
	tcase_add_test(tc, show_plan);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
