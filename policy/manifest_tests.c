/* SPDX-License-Identifier: Apache-2.0 */
/* `tests` of skill.json: what an entry point has to do, for `nsbox skill test`. */
#include <json-c/json.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/json_strict.h"

#define TESTS_MAX   256
#define PATTERN_MAX 1024
#define INPUT_MAX   65536

#define AT(member) offsetof(struct manifest_test, member)

/* clang-format off */
static const struct json_field expect_fields[] = {
	{ "exit",          json_take_u32,     AT(exit), .max = 255,
	  .help = "exit status, default 0" },
	{ "stdoutMatches", json_take_string,  AT(stdout_matches), .min = 1, .max = PATTERN_MAX,
	  .help = "POSIX extended regular expression" },
	{ "stderrMatches", json_take_string,  AT(stderr_matches), .min = 1, .max = PATTERN_MAX,
	  .help = "POSIX extended regular expression" },
	{ "outputs",       json_take_strings, AT(outputs), .max = 64,
	  .help = "files that have to be among the outputs" },
};

static int take_expect(struct json_reader *r, struct json_object *v, const struct json_field *f,
		       void *dst)
{
	return json_read_object(r, v, expect_fields, ARRAY_SIZE(expect_fields), false, dst);
}

static const struct json_field test_fields[] = {
	{ "name",       json_take_string,  AT(name), .min = 1, .max = 128, .help = "for people" },
	{ "entrypoint", json_take_string,  AT(entrypoint), .min = 1, .max = 64,
	  .help = "which one, default main or the only one" },
	{ "args",       json_take_strings, AT(args), .help = "arguments after the command's own" },
	{ "stdin",      json_take_string,  AT(input), .max = INPUT_MAX, .help = "standard input" },
	{ "expect",     take_expect, .required = true },
};
/* clang-format on */

int manifest_take_tests(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	struct nsbox_manifest *m = dst;
	size_t n;

	if (!json_object_is_type(v, json_type_array))
		return json_fail(r, "expected an array, found %s", json_type_text(v));
	n = json_object_array_length(v);
	if (n > TESTS_MAX)
		return json_fail(r, "has more than %d entries", TESTS_MAX);
	m->tests = calloc(n + 1, sizeof(*m->tests));
	if (!m->tests)
		return json_nomem(r);
	for (size_t i = 0; i < n; i++) {
		size_t mark = json_enter_index(r, i);
		int ret;

		m->n_tests++;
		ret = json_read_object(r, json_object_array_get_idx(v, i), test_fields,
				       ARRAY_SIZE(test_fields), false, &m->tests[i]);
		if (ret < 0)
			return ret;
		json_leave(r, mark);
	}
	return 0;
}

void manifest_free_tests(struct nsbox_manifest *m)
{
	for (size_t i = 0; i < m->n_tests; i++) {
		struct manifest_test *t = &m->tests[i];

		free(t->name);
		free(t->entrypoint);
		free(t->input);
		free(t->stdout_matches);
		free(t->stderr_matches);
		json_strings_free(t->args);
		json_strings_free(t->outputs);
	}
	free(m->tests);
}
