/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit: its chain, the file that is brought up to the journal after any end of the front, and
 * what is refused as not ours. And what goes into lines of the log.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "daemon/front/audit.c" /* NOLINT(bugprone-suspicious-include): not in a library */
#include "daemon/front/log.c"	/* NOLINT(bugprone-suspicious-include) */
#include "tests/support/journal_ram.h"

static char path[] = "/tmp/nsbox-audit-XXXXXX", place[sizeof(path)];
static int dir = -1;
static struct journal *j;
static struct audit a;

static void setup(void)
{
	strcpy(place, path);
	ck_assert_ptr_nonnull(mkdtemp(place));
	dir = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(journal_ram_open(0, &j, NULL), 0);
	ck_assert_int_eq(audit_open(&a, dir, j, NULL), 0);
}

static void teardown(void)
{
	audit_close(&a);
	journal_free(j);
	unlinkat(dir, NAME, 0);
	unlinkat(dir, "old", 0);
	close_fd(&dir);
	rmdir(place);
}

static void add(const char *kind)
{
	ck_assert_int_eq(audit_add(&a, audit_event(&a, kind), NULL), 0);
}

/* One transaction with one line; without `file` as if killed between commit and file. */
static void line(const char *kind, bool file)
{
	ck_assert_int_eq(j->ops->begin(j, NULL), 0);
	add(kind);
	ck_assert_int_eq(j->ops->commit(j, NULL), 0);
	if (file)
		ck_assert_int_eq(audit_commit(&a, NULL), 0);
}

static int reopen(struct nsbox_error *err)
{
	audit_close(&a);
	return audit_open(&a, dir, j, err);
}

static char *read_file(const char *name, size_t *ret_len)
{
	static char buf[20000];
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, buf, sizeof(buf) - 1);

	ck_assert_int_ge(n, 0);
	buf[n] = 0;
	*ret_len = (size_t)n;
	close_fd(&fd);
	return buf;
}

/* The lines of a file, checked; `c` goes on from what it was. */
static int verify(const char *name, struct audit_chain *c, bool first)
{
	size_t len;
	char *at = read_file(name, &len), *end;
	int n = 0;

	for (; (end = strchr(at, '\n')) != NULL; at = end + 1, n++, first = false)
		if (audit_chain_check(c, first, at, (size_t)(end - at), NULL) < 0)
			return -1;
	return *at ? -1 : n;
}

static int verify_all(void)
{
	struct audit_chain c;

	audit_chain_init(&c);
	return verify(NAME, &c, true);
}

static void rewrite(const char *text, size_t len)
{
	int fd = openat(dir, NAME, O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_eq(write_full(fd, text, len), 0);
	close_fd(&fd);
}

START_TEST(test_chain)
{
	line("one", true);
	j->ops->begin(j, NULL);
	add("two");
	add("three");
	j->ops->commit(j, NULL);
	ck_assert_int_eq(audit_commit(&a, NULL), 0);
	ck_assert_int_eq(verify_all(), 3);
	ck_assert_uint_eq(a.chain.seq, 3);
}
END_TEST

START_TEST(test_rolled_back)
{
	line("one", true);
	j->ops->begin(j, NULL);
	add("never");
	j->ops->rollback(j);
	audit_rollback(&a);
	line("two", true);
	ck_assert_int_eq(verify_all(), 2);
}
END_TEST

START_TEST(test_changes_are_seen)
{
	struct audit_chain c;
	char copy[4000];
	size_t len;

	for (int i = 0; i < 4; i++)
		line("event", true);
	strcpy(copy, read_file(NAME, &len));
	for (size_t i = 0; i < len; i++) {
		char was = copy[i];

		copy[i] = was == 'x' ? 'y' : 'x';
		rewrite(copy, len);
		/* A change of the last line alone is seen by its hash only. */
		audit_chain_init(&c);
		ck_assert(verify(NAME, &c, true) != 4 || strcmp(c.hash, a.chain.hash) != 0);
		copy[i] = was;
	}
	rewrite(copy, len);
	ck_assert_int_eq(verify_all(), 4);
	rewrite(strchr(copy, '\n') + 1, strlen(strchr(copy, '\n') + 1));
	audit_chain_init(&c);
	ck_assert_int_eq(verify(NAME, &c, false), -1); /* the first line is gone */
	audit_chain_init(&c);
	ck_assert_int_eq(verify(NAME, &c, true), 3); /* which a later file may lack */
}
END_TEST

START_TEST(test_killed_before_the_file)
{
	line("one", true);
	line("two", false);
	a.chain = a.next;
	line("three", false);
	ck_assert_int_eq(verify_all(), 1);
	ck_assert_int_eq(reopen(NULL), 0);
	ck_assert_int_eq(verify_all(), 3);
	line("four", true);
	ck_assert_int_eq(verify_all(), 4);
	ck_assert_int_eq(reopen(NULL), 0);
	ck_assert_int_eq(verify_all(), 4);
}
END_TEST

START_TEST(test_killed_within_a_line)
{
	size_t len;
	char *text;

	line("one", true);
	line("two", true);
	text = read_file(NAME, &len);
	rewrite(text, len - 20); /* as far as it came */
	ck_assert_int_eq(reopen(NULL), 0);
	ck_assert_int_eq(verify_all(), 2);
}
END_TEST

START_TEST(test_synced_lines_are_forgotten)
{
	struct nsbox_error err = { 0 };

	line("one", true);
	line("two", true);
	j->ops->begin(j, NULL);
	ck_assert_int_eq(audit_sync(&a, NULL), 0);
	j->ops->commit(j, NULL);
	ck_assert_int_eq(reopen(NULL), 0);
	ck_assert_int_eq(verify_all(), 2);
	line("three", true);
	rewrite("",
		0); /* lines 1 and 2 cannot come back; 3 can: it goes on as a moved file would */
	ck_assert_int_eq(reopen(&err), 0);
	ck_assert_int_eq(verify_all(), 1);
}
END_TEST

START_TEST(test_moved_away)
{
	struct audit_chain c;

	line("one", true);
	line("two", true);
	ck_assert_int_eq(renameat(dir, NAME, dir, "old"), 0);
	line("three", true);
	line("four", true);
	audit_chain_init(&c);
	ck_assert_int_eq(verify("old", &c, true), 2);
	ck_assert_int_eq(verify(NAME, &c, false), 2); /* the chain goes on */
	ck_assert_str_eq(c.hash, a.chain.hash);
}
END_TEST

START_TEST(test_changed_behind_our_back)
{
	struct nsbox_error err = { 0 };
	char copy[4000];
	size_t len;

	line("one", true);
	line("two", true);
	strcpy(copy, read_file(NAME, &len));
	memcpy(strstr(copy, "two"), "TWO", 3);
	rewrite(copy, len);
	ck_assert_int_lt(reopen(&err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "move it away"));
	rewrite("no audit\n", 9);
	ck_assert_int_lt(reopen(&err), 0);
	memcpy(strstr(copy, "TWO"), "two", 3);
	rewrite(copy, len);
	ck_assert_int_eq(reopen(&err), 0); /* as it was it is fine */
}
END_TEST

/* A device without room in the file's place. */
START_TEST(test_no_room)
{
	struct nsbox_error err = { 0 };
	char full[64];
	int spare;

	line("one", true);
	snprintf(full, sizeof(full), "%s/%s", place, NAME);
	spare = a.fd;
	a.fd = open(full, O_RDONLY | O_CLOEXEC); /* the same file, which takes nothing now */
	j->ops->begin(j, NULL);
	add("two");
	j->ops->commit(j, NULL);
	ck_assert_int_lt(audit_commit(&a, &err), 0);
	close_fd(&a.fd);
	a.fd = spare;
	ck_assert_int_eq(verify_all(), 1);
	ck_assert_int_eq(audit_flush(&a, NULL), 0);
	ck_assert_int_eq(verify_all(), 2);
}
END_TEST

START_TEST(test_log_quote)
{
	static const char *const rows[][2] = {
		{ "plain-1.2/x:y", "plain-1.2/x:y" },
		{ "", "\"\"" },
		{ "a b", "\"a b\"" },
		{ "a=b", "\"a=b\"" },
		{ "a\"b\\", "\"a\\\"b\\\\\"" },
		{ "x\n<3>forged", "\"x\\x0a<3>forged\"" },
		{ "\033[2J\x9b", "\"\\x1b[2J\\x9b\"" },
	};
	char buf[64], small[8];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		log_quote(rows[i][0], buf, sizeof(buf));
		ck_assert_str_eq(buf, rows[i][1]);
	}
	log_quote("a b c d e f", small, sizeof(small));
	ck_assert_str_eq(small, "\"a b c\"");
	log_quote("\n\n\n\n", small, sizeof(small));
	ck_assert_str_eq(small, "\"\\x0a\"");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("audit");
	TCase *tc = tcase_create("audit");
	SRunner *sr = srunner_create(s);
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_chain);
	tcase_add_test(tc, test_rolled_back);
	tcase_add_test(tc, test_changes_are_seen);
	tcase_add_test(tc, test_killed_before_the_file);
	tcase_add_test(tc, test_killed_within_a_line);
	tcase_add_test(tc, test_synced_lines_are_forgotten);
	tcase_add_test(tc, test_moved_away);
	tcase_add_test(tc, test_changed_behind_our_back);
	tcase_add_test(tc, test_no_room);
	tcase_add_test(tc, test_log_quote);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
