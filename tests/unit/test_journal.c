/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal: the same tests for its two kinds, and for the file what only a file can do: be
 * opened again, be of an older or newer version, be full, be held by one service alone.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* NOLINTBEGIN(bugprone-suspicious-include): not in a library */
#include "daemon/front/journal.c"
#include "daemon/front/journal_ask.c"
#include "daemon/front/journal_tools.c"
/* NOLINTEND(bugprone-suspicious-include) */
#include "tests/support/journal_ram.h"

static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
static struct journal *j;
static int kind, dir = -1;
static char place[] = "/tmp/nsbox-journal-XXXXXX", path[sizeof(place)];

/* ------------------------------------------------------------------ set-up */

static void open_file(unsigned max_pages)
{
	struct nsbox_error err = { 0 };

	ck_assert_msg(journal_open(dir, max_pages, &j, &err) == 0, "%s", err.msg);
}

static void make_dir(void)
{
	strcpy(path, place);
	ck_assert_ptr_nonnull(mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dir, 0);
}

static void remove_dir(void)
{
	static const char *const names[] = { "journal.db", "journal.db-wal", "journal.db-shm" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unlinkat(dir, names[i], 0);
	close_fd(&dir);
	rmdir(path);
}

static void setup_ram(void)
{
	kind = 0;
	ck_assert_int_eq(journal_ram_open(0, &j, NULL), 0);
}

static void setup_file(void)
{
	kind = 1;
	make_dir();
	open_file(0);
}

static void teardown(void)
{
	journal_free(j);
	j = NULL;
	if (kind == 1)
		remove_dir();
}

/* ------------------------------------------------------------------ short forms */

static void begin(void)
{
	ck_assert_int_eq(j->ops->begin(j, NULL), 0);
}

static void commit(void)
{
	struct nsbox_error err = { 0 };

	ck_assert_msg(j->ops->commit(j, &err) == 0, "%s", err.msg);
}

static int add(const char *id, const char *workspace, const char *key, const char *body)
{
	const struct journal_row row = { .id = id,
					 .workspace = workspace,
					 .trace_id = "t",
					 .traceparent = "",
					 .key = key,
					 .body_sha256 = zeros,
					 .kind = 1,
					 .priority = 2,
					 .sync = body == NULL,
					 .uid = 4294967294u,
					 .size = body ? strlen(body) : 9,
					 .created_ms = 1700000000123 };

	return j->ops->add(j, &row, body, body ? strlen(body) : 0, NULL);
}

static int done(const char *id, uint64_t when, const char *reply, const char *receipt)
{
	const struct journal_end end = { when,
					 200,
					 "exit",
					 reply,
					 reply ? strlen(reply) : 0,
					 receipt,
					 receipt ? strlen(receipt) : 0 };

	return j->ops->done(j, id, &end, NULL);
}

static char seen[2000];

static void note(void *ctx, const struct journal_row *row)
{
	size_t n = strlen(seen);

	snprintf(seen + n, sizeof(seen) - n, "%s%s:%u", n ? " " : "", row->id, row->state);
}

static const char *open_jobs(void)
{
	*seen = 0;
	ck_assert_int_eq(j->ops->open_jobs(j, note, NULL, NULL), 0);
	return seen;
}

static const char *ended_jobs(unsigned max)
{
	*seen = 0;
	ck_assert_int_eq(j->ops->ended_jobs(j, max, note, NULL, NULL), 0);
	return seen;
}

/* The content, or "-"; valid until the next call. */
static const char *part(const char *id, enum journal_part which)
{
	static char buf[100];
	auto_free char *text = NULL;
	size_t len = 0;
	int r = j->ops->read(j, id, which, &text, &len, NULL);

	ck_assert_int_ge(r, 0);
	ck_assert(r == 0 || strlen(text) == len);
	snprintf(buf, sizeof(buf), "%s", r ? text : "-");
	return buf;
}

/* ------------------------------------------------------------------ both kinds */

static void check_row(void *ctx, const struct journal_row *row)
{
	ck_assert_str_eq(row->workspace, "w");
	ck_assert_str_eq(row->trace_id, "t");
	ck_assert_str_eq(row->key, "k");
	ck_assert_str_eq(row->body_sha256, zeros);
	ck_assert_uint_eq(row->kind, 1);
	ck_assert_uint_eq(row->priority, 2);
	ck_assert_uint_eq(row->uid, 4294967294u);
	ck_assert_uint_eq(row->size, 4);
	ck_assert_uint_eq(row->created_ms, 1700000000123);
	ck_assert(!row->sync);
	*(bool *)ctx = true;
}

START_TEST(test_row)
{
	bool found = false;

	begin();
	ck_assert_int_eq(add("a", "w", "k", "body"), 0);
	commit();
	ck_assert_int_eq(j->ops->find(j, "a", check_row, &found, NULL), 1);
	ck_assert(found);
	ck_assert_int_eq(j->ops->find(j, "b", note, NULL, NULL), 0);
	ck_assert_str_eq(part("a", JOURNAL_REQUEST), "body");
	ck_assert_str_eq(part("a", JOURNAL_REPLY), "-");
}
END_TEST

START_TEST(test_life)
{
	begin();
	ck_assert_int_eq(add("a", "w", "", "A"), 0);
	ck_assert_int_eq(add("b", "w", "", "B"), 0);
	ck_assert_int_eq(add("c", "w", "", NULL), 0);
	commit();
	ck_assert_str_eq(open_jobs(), "a:0 b:0 c:0");
	begin();
	ck_assert_int_eq(j->ops->take(j, "b", 5, NULL), 0);
	ck_assert_int_eq(j->ops->take(j, "a", 5, NULL), 0);
	commit();
	ck_assert_str_eq(open_jobs(), "a:1 b:1 c:0");
	begin();
	ck_assert_int_eq(j->ops->give_back(j, "b", NULL), 0);
	ck_assert_int_eq(done("a", 7, "reply", "receipt"), 0);
	ck_assert_int_eq(done("c", 8, NULL, "r2"), 0); /* cancelled while it waited */
	commit();
	ck_assert_str_eq(open_jobs(), "b:0");
	ck_assert_str_eq(ended_jobs(9), "c:2 a:2");
	ck_assert_str_eq(ended_jobs(1), "c:2");
	ck_assert_str_eq(part("a", JOURNAL_REPLY), "reply");
	ck_assert_str_eq(part("a", JOURNAL_RECEIPT), "receipt");
	ck_assert_str_eq(part("c", JOURNAL_REPLY), "-");
	ck_assert_str_eq(part("c", JOURNAL_RECEIPT), "r2");
	ck_assert_str_eq(part("a", JOURNAL_REQUEST), "-"); /* may hold secrets: gone */
	ck_assert_str_eq(part("b", JOURNAL_REQUEST), "B");
}
END_TEST

START_TEST(test_wrong_order)
{
	begin();
	ck_assert_int_eq(add("a", "w", "", "A"), 0);
	ck_assert_int_eq(add("a", "w", "", "A"), -EEXIST);
	ck_assert_int_eq(j->ops->give_back(j, "a", NULL), -ENOENT);
	ck_assert_int_eq(j->ops->take(j, "a", 1, NULL), 0);
	ck_assert_int_eq(j->ops->take(j, "a", 1, NULL), -ENOENT); /* never twice */
	ck_assert_int_eq(j->ops->take(j, "x", 1, NULL), -ENOENT);
	ck_assert_int_eq(done("a", 1, "", ""), 0);
	ck_assert_int_eq(done("a", 1, "", ""), -ENOENT);
	ck_assert_int_eq(j->ops->give_back(j, "a", NULL), -ENOENT);
	commit();
	ck_assert_str_eq(ended_jobs(9), "a:2");
}
END_TEST

START_TEST(test_rollback)
{
	begin();
	ck_assert_int_eq(add("a", "w", "", "A"), 0);
	commit();
	begin();
	ck_assert_int_eq(j->ops->take(j, "a", 1, NULL), 0);
	ck_assert_int_eq(add("b", "w", "", "B"), 0);
	j->ops->rollback(j);
	ck_assert_str_eq(open_jobs(), "a:0");
	ck_assert_str_eq(part("b", JOURNAL_REQUEST), "-");
	j->ops->rollback(j); /* nothing is open: nothing happens */
	ck_assert_int_lt(j->ops->commit(j, NULL), 0);
}
END_TEST

START_TEST(test_keys)
{
	begin();
	ck_assert_int_eq(add("a", "w", "k", "A"), 0);
	ck_assert_int_eq(add("b", "v", "k", "A"), 0); /* another workspace's */
	ck_assert_int_eq(add("c", "w", "", "A"), 0);  /* no key is no key */
	ck_assert_int_eq(add("d", "w", "", "A"), 0);
	commit();
	begin();
	ck_assert_int_eq(add("e", "w", "k", "A"), -EEXIST);
	j->ops->rollback(j);
	*seen = 0;
	ck_assert_int_eq(j->ops->find_key(j, "v", "k", note, NULL, NULL), 1);
	ck_assert_str_eq(seen, "b:0");
	ck_assert_int_eq(j->ops->find_key(j, "v", "l", note, NULL, NULL), 0);
}
END_TEST

START_TEST(test_sweep)
{
	static const char *const ids[] = { "a", "b", "c", "d" };
	char big[1001] = { 0 };

	memset(big, 'x', 1000);
	begin();
	for (size_t i = 0; i < 4; i++) {
		ck_assert_int_eq(add(ids[i], "w", i == 0 ? "k" : "", "B"), 0);
		if (i != 1)
			ck_assert_int_eq(done(ids[i], 100 + i, big, ""), 0);
	}
	commit();
	begin();
	ck_assert_int_eq(j->ops->sweep(j, 100, 1 << 20, NULL), 0);
	commit();
	ck_assert_str_eq(ended_jobs(9), "d:2 c:2 a:2");
	begin();
	ck_assert_int_eq(j->ops->sweep(j, 101, 1 << 20, NULL), 0);
	commit();
	ck_assert_str_eq(ended_jobs(9), "d:2 c:2");
	begin();
	ck_assert_int_eq(j->ops->sweep(j, 0, 2000, NULL), 0); /* one fits, two do not */
	commit();
	ck_assert_str_eq(ended_jobs(9), "d:2");
	ck_assert_str_eq(open_jobs(), "b:0"); /* what waits is never swept */
	ck_assert_str_eq(part("d", JOURNAL_REPLY)[0] == 'x' ? "x" : "", "x");
	ck_assert_str_eq(part("c", JOURNAL_REPLY), "-");
	begin();
	ck_assert_int_eq(add("e", "w", "k", "B"), 0); /* its key is free again */
	commit();
}
END_TEST

static void note_line(void *ctx, uint64_t seq, const char *line, size_t len)
{
	size_t n = strlen(seen);

	snprintf(seen + n, sizeof(seen) - n, "%llu=%.*s;", (unsigned long long)seq, (int)len, line);
}

START_TEST(test_audit)
{
	struct journal_chain c;

	*seen = 0;
	ck_assert_int_eq(j->ops->audit_state(j, &c, note_line, NULL, NULL), 0);
	ck_assert_uint_eq(c.seq, 0);
	ck_assert_str_eq(c.hash, zeros);
	begin();
	for (c.seq = 1; c.seq <= 3; c.seq++) {
		memset(c.hash, '0' + (int)c.seq, 64);
		ck_assert_int_eq(j->ops->audit(j, &c, "line", 4, NULL), 0);
	}
	commit();
	begin();
	ck_assert_int_eq(j->ops->audit_drop(j, 1, NULL), 0);
	commit();
	ck_assert_int_eq(j->ops->audit_state(j, &c, note_line, NULL, NULL), 0);
	ck_assert_str_eq(seen, "2=line;3=line;");
	ck_assert_uint_eq(c.seq, 3);
	ck_assert_int_eq(c.hash[63], '3');
}
END_TEST

/* ------------------------------------------------------------------ the file alone */

static void again(void)
{
	journal_free(j);
	j = NULL;
	open_file(0);
}

START_TEST(test_reopen)
{
	begin();
	ck_assert_int_eq(add("a", "w", "k", "A"), 0);
	ck_assert_int_eq(j->ops->take(j, "a", 1, NULL), 0);
	ck_assert_int_eq(add("b", "w", "", "B"), 0);
	commit();
	begin();
	ck_assert_int_eq(add("c", "w", "", "C"), 0);
	again(); /* without a commit */
	ck_assert_str_eq(open_jobs(), "a:1 b:0");
	ck_assert_str_eq(part("b", JOURNAL_REQUEST), "B");
}
END_TEST

/* A process that dies between two system calls, whatever it was doing. */
START_TEST(test_killed)
{
	int status;
	pid_t pid;

	journal_free(j);
	j = NULL;
	pid = fork();
	if (pid == 0) {
		open_file(0);
		j->ops->begin(j, NULL);
		add("a", "w", "", "A");
		j->ops->commit(j, NULL);
		j->ops->begin(j, NULL);
		add("b", "w", "", "B");
		raise(SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
	open_file(0);
	ck_assert_str_eq(open_jobs(), "a:0");
}
END_TEST

START_TEST(test_full)
{
	char big[4000] = { 0 };
	char id[16];
	int r = 0, n = 0;

	journal_free(j);
	j = NULL;
	open_file(60);
	memset(big, 'x', sizeof(big) - 1);
	for (; r == 0 && n < 1000; n++) {
		begin();
		snprintf(id, sizeof(id), "j%d", n);
		r = add(id, "w", "", big);
		if (r == 0)
			commit();
	}
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_int_gt(n, 5);
	j->ops->rollback(j);
	begin();
	ck_assert_int_eq(done("j0", 1, "small", ""), 0); /* its request makes room */
	commit();
	begin();
	ck_assert_int_eq(add("later", "w", "", "A"), 0);
	commit();
	ck_assert_str_eq(part("j1", JOURNAL_REQUEST)[0] == 'x' ? "x" : "", "x");
}
END_TEST

START_TEST(test_one_holder)
{
	struct journal *other = NULL;
	struct nsbox_error err = { 0 };
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(journal_open(dir, 0, &other, &err) < 0 && strstr(err.msg, "in use") ? 7 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(status), 7);
	journal_free(j);
	j = NULL;
	pid = fork();
	if (pid == 0)
		_exit(journal_open(dir, 0, &other, &err) == 0 ? 7 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(status), 7);
	open_file(0);
}
END_TEST

static void sql(const char *text)
{
	char name[sizeof(path) + 16];
	sqlite3 *db = NULL;
	char *why = NULL;

	snprintf(name, sizeof(name), "%s/journal.db", path);
	ck_assert_int_eq(sqlite3_open(name, &db), SQLITE_OK);
	ck_assert_msg(sqlite3_exec(db, text, NULL, NULL, &why) == SQLITE_OK, "%s", why);
	sqlite3_close(db);
}

static void note_tool(void *ctx, const struct journal_tool *row)
{
	size_t n = strlen(seen);

	snprintf(seen + n, sizeof(seen) - n, "%s%s/%s/%u=%s", n ? " " : "", row->workspace, row->id,
		 (unsigned)row->uid, row->record);
}

static const char *tools(void)
{
	*seen = 0;
	ck_assert_int_eq(j->ops->tools(j, note_tool, NULL, NULL), 0);
	return seen;
}

START_TEST(test_tools)
{
	const struct journal_tool a = { "a", "w", "{}", 4294967294u }, b = { "b", "", "1", 7 };
	const struct journal_tool other = { "a", "v", "{\"x\":1}", 8 };

	begin();
	ck_assert_int_eq(j->ops->tool_put(j, &b, NULL), 0);
	ck_assert_int_eq(j->ops->tool_put(j, &a, NULL), 0);
	commit();
	ck_assert_str_eq(tools(), "w/a/4294967294={} /b/7=1");
	begin();
	ck_assert_int_eq(j->ops->tool_put(j, &other, NULL), 0);
	ck_assert_int_eq(j->ops->tool_drop(j, "b", NULL), 0);
	j->ops->rollback(j);
	ck_assert_str_eq(tools(), "w/a/4294967294={} /b/7=1");
	begin();
	ck_assert_int_eq(j->ops->tool_put(j, &other, NULL), 0);
	ck_assert_int_eq(j->ops->tool_drop(j, "b", NULL), 0);
	ck_assert_int_eq(j->ops->tool_drop(j, "none", NULL), 0);
	commit();
	if (kind == 1)
		again();
	ck_assert_str_eq(tools(), "v/a/8={\"x\":1}");
}
END_TEST

START_TEST(test_older_file)
{
	struct journal_chain c;

	journal_free(j);
	j = NULL;
	unlinkat(dir, "journal.db", 0);
	sql(steps[0]);
	sql("PRAGMA user_version=1;"
	    "INSERT INTO job(id, workspace, trace_id, body_sha256, kind, priority, state, sync, "
	    "uid,"
	    " size, created_ms) VALUES('old', 'w', 't', '', 0, 1, 0, 0, 7, 3, 12);"
	    "INSERT INTO request VALUES(1, CAST('old' AS BLOB));"
	    "INSERT INTO job(id, workspace, trace_id, body_sha256, kind, priority, state, sync, "
	    "uid,"
	    " size, created_ms) VALUES('end', 'w', 't', '', 0, 1, 2, 0, 7, 3, 12);"
	    "INSERT INTO result VALUES(2, CAST('reply' AS BLOB));");
	open_file(0);
	ck_assert_str_eq(open_jobs(), "old:0");
	ck_assert_str_eq(part("old", JOURNAL_REQUEST), "old");
	ck_assert_str_eq(part("end", JOURNAL_REPLY), "reply");
	ck_assert_str_eq(part("end", JOURNAL_RECEIPT), "-");
	ck_assert_int_eq(j->ops->audit_state(j, &c, note_line, NULL, NULL), 0);
	begin();
	ck_assert_int_eq(done("old", 1, "r", "receipt"), 0);
	commit();
	again(); /* and it stays migrated */
	ck_assert_str_eq(part("old", JOURNAL_RECEIPT), "receipt");
}
END_TEST

START_TEST(test_newer_file)
{
	struct nsbox_error err = { 0 };

	journal_free(j);
	j = NULL;
	sql("PRAGMA user_version=1000");
	ck_assert_int_lt(journal_open(dir, 0, &j, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "newer"));
	j = NULL;
}
END_TEST

START_TEST(test_no_journal)
{
	struct nsbox_error err = { 0 };
	int fd;

	journal_free(j);
	j = NULL;
	fd = openat(dir, "journal.db", O_WRONLY | O_TRUNC | O_CLOEXEC);
	ck_assert_int_eq(write_full(fd, "this is no database at all, I am afraid", 39), 0);
	close_fd(&fd);
	ck_assert_int_lt(journal_open(dir, 0, &j, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "not a database"));
	j = NULL;
}
END_TEST

/* ------------------------------------------------------------------ suite */

static void add_common(TCase *tc)
{
	tcase_add_test(tc, test_row);
	tcase_add_test(tc, test_life);
	tcase_add_test(tc, test_wrong_order);
	tcase_add_test(tc, test_rollback);
	tcase_add_test(tc, test_keys);
	tcase_add_test(tc, test_sweep);
	tcase_add_test(tc, test_audit);
	tcase_add_test(tc, test_tools);
}

int main(void)
{
	Suite *s = suite_create("journal");
	TCase *ram = tcase_create("ram"), *file = tcase_create("file");
	SRunner *sr = srunner_create(s);
	int failed;

	suite_add_tcase(s, ram);
	suite_add_tcase(s, file);
	tcase_add_checked_fixture(ram, setup_ram, teardown);
	tcase_add_checked_fixture(file, setup_file, teardown);
	add_common(ram);
	add_common(file);
	tcase_add_test(file, test_reopen);
	tcase_add_test(file, test_killed);
	tcase_add_test(file, test_full);
	tcase_add_test(file, test_one_holder);
	tcase_add_test(file, test_older_file);
	tcase_add_test(file, test_newer_file);
	tcase_add_test(file, test_no_journal);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
