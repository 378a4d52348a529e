/* SPDX-License-Identifier: Apache-2.0 */
/* The front's queue: order within a workspace, turns between them, bounds. */
#include <check.h>

#include "daemon/front/queue.c" /* NOLINT(bugprone-suspicious-include): not in a library */

static struct queue *q;
static struct queue_entry entry[64];

static size_t most_waiting, most_running; /* of one workspace */

static void test_limits(void *ctx, const char *workspace, size_t *waiting, size_t *running)
{
	*waiting = most_waiting;
	*running = most_running;
}

static void make(size_t waiting, size_t workspace_waiting, size_t workspace_running)
{
	const struct queue_limits limits = { waiting, test_limits, NULL };

	most_waiting = workspace_waiting;
	most_running = workspace_running;
	ck_assert_int_eq(queue_new(&limits, &q, NULL), 0);
}

static void setup(void)
{
	memset(entry, 0, sizeof(entry));
	make(32, 0, 0);
}

static void limit(size_t workspace_waiting, size_t workspace_running)
{
	queue_free(q);
	make(32, workspace_waiting, workspace_running);
}

static void teardown(void)
{
	queue_free(q);
}

static void push(const char *workspace, int n)
{
	ck_assert_int_eq(queue_push(q, workspace, QUEUE_NORMAL, &entry[n], &entry[n]), 0);
}

static void push_at(const char *workspace, uint32_t priority, int n)
{
	ck_assert_int_eq(queue_push(q, workspace, priority, &entry[n], &entry[n]), 0);
}

/* Popped, and it runs. */
static int start(void)
{
	struct queue_entry *e = queue_pop(q);

	return e ? (int)(e - entry) : -1;
}

static int pop(void)
{
	struct queue_entry *e = queue_pop(q);

	if (e)
		queue_done(q, e); /* it ran in no time */
	return e ? (int)(e - entry) : -1;
}

START_TEST(test_one_workspace)
{
	for (int i = 0; i < 5; i++)
		push("", i);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(pop(), i);
	ck_assert_int_eq(pop(), -1);
	push("", 7);
	ck_assert_int_eq(pop(), 7);
}
END_TEST

START_TEST(test_turns)
{
	/* a sends five, then b one and c two: nobody waits for all of a. */
	static const int want[] = { 0, 5, 6, 1, 7, 2, 3, 4 };

	for (int i = 0; i < 5; i++)
		push("a", i);
	push("b", 5);
	push("c", 6);
	push("c", 7);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++)
		ck_assert_int_eq(pop(), want[i]);
	ck_assert_int_eq(pop(), -1);
	ck_assert_uint_eq(queue_length(q), 0);
}
END_TEST

START_TEST(test_late_comer_waits_one_turn)
{
	for (int i = 0; i < 4; i++)
		push("a", i);
	ck_assert_int_eq(pop(), 0);
	push("b", 10);
	push("b", 11);
	ck_assert_int_eq(pop(), 1);
	ck_assert_int_eq(pop(), 10);
	ck_assert_int_eq(pop(), 2);
	ck_assert_int_eq(pop(), 11);
	ck_assert_int_eq(pop(), 3);
}
END_TEST

START_TEST(test_remove)
{
	push("a", 0);
	push("a", 1);
	push("a", 2);
	push("b", 3);
	queue_done(q, &entry[2]);
	push("a", 4);
	queue_done(q, &entry[3]);
	queue_done(q, &entry[3]); /* waits nowhere: nothing happens */
	queue_done(q, &entry[0]);
	ck_assert_int_eq(pop(), 1);
	ck_assert_int_eq(pop(), 4);
	ck_assert_int_eq(pop(), -1);
}
END_TEST

START_TEST(test_bound)
{
	for (int i = 0; i < 32; i++)
		push(i % 2 ? "a" : "b", i);
	ck_assert_int_eq(queue_push(q, "c", QUEUE_NORMAL, &entry[40], &entry[40]), -EAGAIN);
	ck_assert_ptr_null(entry[40].lane);
	pop();
	push("c", 40);
	ck_assert_uint_eq(queue_length(q), 32);
}
END_TEST

START_TEST(test_priorities)
{
	static const int want[] = { 4, 5, 1, 3, 0, 2 };

	push_at("a", QUEUE_LOW, 0);
	push_at("a", QUEUE_NORMAL, 1);
	push_at("a", QUEUE_LOW, 2);
	push_at("a", QUEUE_NORMAL, 3);
	push_at("a", QUEUE_HIGH, 4);
	push_at("a", QUEUE_HIGH, 5);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++)
		ck_assert_int_eq(pop(), want[i]);
}
END_TEST

START_TEST(test_priority_stays_within_its_workspace)
{
	push_at("a", QUEUE_HIGH, 0);
	push_at("a", QUEUE_HIGH, 1);
	push_at("b", QUEUE_LOW, 2);
	ck_assert_int_eq(pop(), 0);
	ck_assert_int_eq(pop(), 2);
	ck_assert_int_eq(pop(), 1);
}
END_TEST

START_TEST(test_workspace_waiting)
{
	limit(2, 0);
	push("a", 0);
	push("a", 1);
	ck_assert_int_eq(queue_push(q, "a", QUEUE_HIGH, &entry[2], &entry[2]), -EDQUOT);
	push("b", 3); /* another one has its own place */
	ck_assert_int_eq(queue_restore(q, "a", QUEUE_NORMAL, &entry[4], &entry[4]), 0);
	ck_assert_int_eq(start(), 0);
	ck_assert_int_eq(queue_push(q, "a", QUEUE_NORMAL, &entry[2], &entry[2]), -EDQUOT);
	ck_assert_int_eq(start(), 3);
	ck_assert_int_eq(start(), 1);
	push("a", 2); /* what runs does not wait */
}
END_TEST

START_TEST(test_workspace_running)
{
	limit(0, 2);
	for (int i = 0; i < 4; i++)
		push("a", i);
	push("b", 10);
	ck_assert_int_eq(start(), 0);
	ck_assert_int_eq(start(), 10);
	ck_assert_int_eq(start(), 1);
	ck_assert_int_eq(start(), -1);
	ck_assert_uint_eq(queue_length(q), 2);
	queue_done(q, &entry[0]);
	ck_assert_int_eq(start(), 2);
	ck_assert_int_eq(start(), -1);
	queue_done(q, &entry[3]); /* cancelled while it waits */
	queue_done(q, &entry[2]);
	queue_done(q, &entry[1]);
	ck_assert_int_eq(start(), -1);
	push("a", 20);
	ck_assert_int_eq(start(), 20);
}
END_TEST

START_TEST(test_unpop)
{
	limit(0, 1);
	push("a", 0);
	push("a", 1);
	ck_assert_int_eq(start(), 0);
	queue_unpop(q, &entry[0]);
	ck_assert_uint_eq(queue_length(q), 2);
	push_at("a", QUEUE_HIGH, 2);
	ck_assert_int_eq(pop(), 2);
	ck_assert_int_eq(pop(), 0);
	ck_assert_int_eq(start(), 1);
	queue_unpop(q, &entry[1]); /* alone: the end of the list is right again */
	push("a", 3);
	ck_assert_int_eq(pop(), 1);
	ck_assert_int_eq(pop(), 3);
	ck_assert_int_eq(pop(), -1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("queue");
	TCase *tc = tcase_create("queue");
	SRunner *sr = srunner_create(s);
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_one_workspace);
	tcase_add_test(tc, test_turns);
	tcase_add_test(tc, test_late_comer_waits_one_turn);
	tcase_add_test(tc, test_remove);
	tcase_add_test(tc, test_bound);
	tcase_add_test(tc, test_priorities);
	tcase_add_test(tc, test_priority_stays_within_its_workspace);
	tcase_add_test(tc, test_workspace_waiting);
	tcase_add_test(tc, test_workspace_running);
	tcase_add_test(tc, test_unpop);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
