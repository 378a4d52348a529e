/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `nsbox skill` is made of, where no image and no program is needed: front matter, agreement of the
 * two documents, text that is shown, the note about a missing library, the first manifest.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/skill/frontmatter.h"
#include "policy/skill/skill.h"
#include "policy/skill/text.h"

/* ------------------------------------------------------------------ front matter */

static const struct {
	const char *yaml, *name, *description, *license, *sandbox;
} matters[] = {
	{ "---\nname: a\ndescription: b c\n---\nbody: x\n", "a", "b c", NULL, NULL },
	{ "---\r\nname: a\r\ndescription: b c\r\n---\r\n", "a", "b c", NULL, NULL },
	{ "\xef\xbb\xbf---\nname: a\n---\n", "a", NULL, NULL, NULL },
	{ "---\nname: \"a \\\"b\\\" \\u00e9\\n\" # why\n---\n", "a \"b\" \xc3\xa9\n", NULL, NULL,
	  NULL },
	{ "---\nname: 'it''s'\nlicense: \"MIT\"\n---\n", "it's", NULL, "MIT", NULL },
	{ "---\nname: a # comment\n# another\n\nlicense: b#c\n---\n", "a", NULL, "b#c", NULL },
	{ "---\ndescription: |\n  one\n   two\n\n  three\nname: a\n---\n", "a",
	  "one\n two\n\nthree\n", NULL, NULL },
	{ "---\ndescription: >-\n  one\n  two\n\n  three\nname: a\n---\n", "a", "one two\nthree",
	  NULL, NULL },
	{ "---\ndescription: >\n  one\n    kept\n  two\n---\n", NULL, "one\n  kept\ntwo\n", NULL,
	  NULL },
	{ "---\ndescription: |2-\n    two more\n---\n", NULL, "  two more", NULL, NULL },
	{ "---\ndescription: |+\n  one\n\nname: a\n---\n", "a", "one\n\n", NULL, NULL },
	{ "---\ndescription: one\n  two\n  three\nname: a\n---\n", "a", "one two three", NULL,
	  NULL },
	{ "---\ndescription:\n  one two\n---\n", NULL, "one two", NULL, NULL },
	{ "---\nname: a\nmetadata:\n  author: x\n  sandbox: skill.json\n  tags: [a, b]\n---\n", "a",
	  NULL, NULL, "skill.json" },
	{ "---\nname: a\nmetadata:\n  sandbox: \"skill.json\"\n  deep:\n    sandbox: no\n---\n",
	  "a", NULL, NULL, "skill.json" },
	{ "---\nname: a\nallowed-tools:\n- Read\n- Write\nother: {a: [1]}\n---\n", "a", NULL, NULL,
	  NULL },
	{ "---\nname: ~\ndescription: null\nlicense:\n---\n", NULL, NULL, NULL, NULL },
	{ "---\nname: a\nurl: https://example.com/x\n---\n", "a", NULL, NULL, NULL },
	{ "---\ndescription: see https://example.com/x:y\n---\n", NULL,
	  "see https://example.com/x:y", NULL, NULL },
	{ "---\n---\n", NULL, NULL, NULL, NULL },
	{ "---\nname: a\n...\n", "a", NULL, NULL, NULL },
};

static void same(const char *got, const char *want, const char *what)
{
	ck_assert_msg(!got == !want && (!got || !strcmp(got, want)), "%s: got '%s', want '%s'",
		      what, got ? got : "(none)", want ? want : "(none)");
}

START_TEST(front_matter)
{
	struct nsbox_error err = { 0 };
	struct frontmatter f = { 0 };

	ck_assert_msg(frontmatter_read(matters[_i].yaml, strlen(matters[_i].yaml), &f, &err) == 0,
		      "%s: %s", matters[_i].yaml, err.msg);
	same(f.name.text, matters[_i].name, "name");
	same(f.description.text, matters[_i].description, "description");
	same(f.license.text, matters[_i].license, "license");
	same(f.sandbox.text, matters[_i].sandbox, "sandbox");
	frontmatter_done(&f);
	frontmatter_done(&f);
}
END_TEST

static const struct {
	const char *yaml, *says;
} odd[] = {
	{ "---\nname: a\n", "line 1: the front matter has no closing" },
	{ "---\nname a\n---\n", "line 2: is not 'key: value'" },
	{ "---\n name: a\n---\n", "line 2: is not 'key: value'" },
	{ "---\nname: a\nname: b\n---\n", "line 3: the key is there twice" },
	{ "---\ndescription: Use this: now\n---\n", "line 2: the value contains ': '" },
	{ "---\ndescription: one\n  two: three\n---\n", "line 3: the value contains ': '" },
	{ "---\nname: \"a\n---\n", "line 2: the quoted value does not end" },
	{ "---\nname: \"a\" b\n---\n", "line 2: something follows" },
	{ "---\nname: \"\\q\"\n---\n", "line 2: an escape" },
	{ "---\nname: \"\\ud800\"\n---\n", "line 2: an escape" },
	{ "---\nname: \"\\x00\"\n---\n", "line 2: an escape" },
	{ "---\nname: *alias\n---\n", "line 2: the value begins with a sign" },
	{ "---\nname: [a]\n---\n", "line 2: the value begins with a sign" },
	{ "---\nname: - a\n---\n", "line 2: the value begins with a sign" },
	{ "---\ndescription: |x\n  a\n---\n", "line 2: the sign of a block" },
	{ "---\ndescription: |\n   a\n  b\n---\n", "line 4: the lines of a block" },
	{ "---\nmetadata: {sandbox: skill.json}\n---\n", "line 2: metadata is not a nested map" },
	{ "---\nmetadata:\n  - a\n---\n", "line 3: metadata is not a map" },
	{ "---\nmetadata:\n  sandbox: a\n  sandbox: b\n---\n", "line 4: the key is there twice" },
	{ "---\nname: \xff\n---\n", "not UTF-8" },
};

START_TEST(odd_front_matter)
{
	struct nsbox_error err = { 0 };
	struct frontmatter f = { 0 };

	ck_assert_int_eq(frontmatter_read(odd[_i].yaml, strlen(odd[_i].yaml), &f, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, odd[_i].says) != NULL, "%s: '%s'", odd[_i].yaml, err.msg);
	ck_assert_ptr_null(f.name.text);
}
END_TEST

START_TEST(no_front_matter)
{
	static const char *const texts[] = { "", "# Title\n", "--- \nname: a", "----\n---\n",
					     "\n---\n" };
	static const int results[] = { -ENOENT, -ENOENT, -EINVAL, -ENOENT, -ENOENT };
	struct frontmatter f;

	ck_assert_int_eq(frontmatter_read(texts[_i], strlen(texts[_i]), &f, NULL), results[_i]);
}
END_TEST

START_TEST(nul_and_size)
{
	static char big[FRONTMATTER_MAX + 100];
	struct nsbox_error err = { 0 };
	struct frontmatter f;

	ck_assert_int_eq(frontmatter_read("---\nname: a\0b\n---\n", 18, &f, &err), -EINVAL);
	memset(big, 'x', sizeof(big));
	memcpy(big, "---\nk: ", 7);
	for (size_t i = 80; i < sizeof(big); i += 80)
		memcpy(big + i, "\nk: ", 4);
	memcpy(big + sizeof(big) - 6, "\n---\n", 5);
	ck_assert_int_eq(frontmatter_read(big, sizeof(big), &f, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.msg, "64 KiB"));
}
END_TEST

/* ------------------------------------------------------------------ agreement */

static struct skill_report agree(const char *manifest, const char *document)
{
	struct skill_report rep = { 0 };
	struct nsbox_manifest *m = NULL;
	struct nsbox_error err = { 0 };

	if (manifest)
		ck_assert_msg(nsbox_manifest_parse(manifest, strlen(manifest), &m, &err) == 0, "%s",
			      err.msg);
	skill_agree(m, manifest != NULL, document, strlen(document), &rep);
	nsbox_manifest_free(m);
	return rep;
}

#define DOCUMENT "---\nname: a\ndescription: does\n  things\nlicense: MIT\n"

static const struct {
	const char *manifest, *document;
	int id; /* SKILL_F_MAX: none */
	const char *says;
} agreements[] = {
	{ "{\"manifestVersion\":1,\"name\":\"a\",\"description\":\"does "
	  "things\",\"license\":\"MIT\"}",
	  DOCUMENT "metadata:\n  sandbox: skill.json\n---\n", SKILL_F_MAX, NULL },
	{ "{\"manifestVersion\":1}", DOCUMENT "---\n", SKILL_F_MAX, NULL },
	{ NULL, DOCUMENT "---\n", SKILL_F_MAX, NULL },
	{ "{\"manifestVersion\":1,\"name\":\"b\"}", DOCUMENT "---\n", SKILL_F_DISAGREE,
	  "name is \"a\" in SKILL.md (line 2) and \"b\" in skill.json (/name)" },
	{ "{\"manifestVersion\":1,\"description\":\"does thing\"}", DOCUMENT "---\n",
	  SKILL_F_DISAGREE, "line 3" },
	{ "{\"manifestVersion\":1,\"license\":\"Apache-2.0\"}", DOCUMENT "---\n", SKILL_F_DISAGREE,
	  "/license" },
	{ "{\"manifestVersion\":1}", DOCUMENT "metadata:\n  sandbox: other.json\n---\n",
	  SKILL_F_OTHER_NAME, "other.json" },
	{ NULL, DOCUMENT "metadata:\n  sandbox: skill.json\n---\n", SKILL_F_OTHER_NAME,
	  "not there" },
	{ NULL, "---\nname: a\n---\n", SKILL_F_DOCUMENT, "no description" },
	{ NULL, "# no front matter\n", SKILL_F_DOCUMENT, "there is none" },
	{ NULL, "---\nname: [\n---\n", SKILL_F_DOCUMENT, "line 2" },
};

START_TEST(agreement)
{
	struct skill_report rep = agree(agreements[_i].manifest, agreements[_i].document);

	if (agreements[_i].id == SKILL_F_MAX) {
		ck_assert_msg(rep.n == 0, "%s", rep.n ? rep.list[0].message : "");
	} else {
		ck_assert_uint_eq(rep.n, 1);
		ck_assert_str_eq(skill_finding_name(rep.list[0].id),
				 skill_finding_name(agreements[_i].id));
		ck_assert_msg(strstr(rep.list[0].message, agreements[_i].says) != NULL, "%s",
			      rep.list[0].message);
	}
	report_done(&rep);
}
END_TEST

/* ------------------------------------------------------------------ reports */

START_TEST(findings_are_counted)
{
	struct skill_report rep = { 0 };
	struct skill_finding *f;

	f = report_add(&rep, SKILL_F_CRLF, "a", "convert", "x%d", 1);
	ck_assert_ptr_nonnull(f);
	ck_assert_ptr_null(report_add(&rep, SKILL_F_CRLF, "a", "convert", "x1"));
	ck_assert_uint_eq(rep.errors, 1);
	report_lower(&rep, f);
	ck_assert(rep.errors == 0 && rep.warnings == 1);
	report_fixed(&rep, f);
	ck_assert(rep.errors == 0 && rep.warnings == 0 && rep.fixed == 1);
	for (int i = 0; i < SKILL_REPORT_MAX + 5; i++)
		report_add(&rep, SKILL_F_CRLF, "b", NULL, "%d", i);
	ck_assert_uint_eq(rep.left_out, 6);
	ck_assert_uint_eq(rep.errors, SKILL_REPORT_MAX + 5); /* what is not shown counts */
	report_done(&rep);
}
END_TEST

static const struct {
	const char *text, *shown;
} shows[] = {
	{ "plain name.txt", "plain name.txt" },
	{ "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80", "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80" },
	{ "a\x1b[31mb", "a\\x1b[31mb" },
	{ "two\nlines\r", "two\\x0alines\\x0d" },
	{ "\xc2\x9b"
	  "31m",
	  "\\xc2\\x9b31m" },			   /* CSI in one character */
	{ "x\xe2\x80\xaey", "x\\xe2\\x80\\xaey" }, /* right-to-left override */
	{ "\xff\xc0\xaf\xed\xa0\x80", "\\xff\\xc0\\xaf\\xed\\xa0\\x80" },
	{ "\xe4\xb8", "\\xe4\\xb8" }, /* cut off */
	{ "\x7f", "\\x7f" },
};

START_TEST(shown_text)
{
	auto_free char *s = text_shown(shows[_i].text, strlen(shows[_i].text));

	ck_assert_str_eq(s, shows[_i].shown);
	ck_assert(text_is_utf8(s, strlen(s)));
}
END_TEST

/* ------------------------------------------------------------------ after a run */

static const struct {
	const char *tail, *name;
} tails[] = {
	{ "./t: error while loading shared libraries: libx.so.1: cannot open shared object file: "
	  "No "
	  "such file or directory\n",
	  "'libx.so.1'" },
	{ "Error loading shared library libm.so: No such file or directory (needed by ./t)\n",
	  "'libm.so'" },
	{ "t: error while loading shared libraries: li\x1b[1mb.so: cannot open shared object file: "
	  "x",
	  "'li\\x1b[1mb.so'" },
	{ "sh: 1: tool: not found\n", NULL },
	{ "error while loading shared libraries: a\nb: cannot open shared object file", NULL },
	{ "error while loading shared libraries: libx.so.1: invalid ELF header", NULL },
	{ "", NULL },
};

START_TEST(missing_library_note)
{
	char note[512] = "";
	bool said =
		skill_missing_library(tails[_i].tail, strlen(tails[_i].tail), note, sizeof(note));

	ck_assert(said == (tails[_i].name != NULL));
	if (said)
		ck_assert_msg(strstr(note, tails[_i].name) != NULL, "%s", note);
}
END_TEST

/* ------------------------------------------------------------------ a first manifest */

static char place[64];

static void make_place(void)
{
	snprintf(place, sizeof(place), "/tmp/nsbox-skill-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(place));
}

static void remove_place(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", place);
	ck_assert_int_eq(system(command), 0);
}

static void file(const char *path, const char *text, mode_t mode)
{
	char full[256];
	auto_close int fd = -1;

	snprintf(full, sizeof(full), "%s/%s", place, path);
	if (strchr(path, '/')) {
		char *slash = strrchr(full, '/');

		*slash = '\0';
		mkdir(full, 0755);
		*slash = '/';
	}
	fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_eq(write_full(fd, text, strlen(text)), 0);
	ck_assert_int_eq(fchmod(fd, mode), 0);
}

static char *init(void)
{
	auto_close int fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct nsbox_error err = { 0 };
	char *text = NULL;

	ck_assert_msg(skill_init(fd, "Some Place", &text, &err) == 0, "%s", err.msg);
	return text;
}

START_TEST(init_of_nothing)
{
	auto_free char *text = init();

	ck_assert_ptr_nonnull(strstr(text, "\"name\": \"some-place\""));
	ck_assert_ptr_null(strstr(text, "entrypoints"));
	ck_assert_ptr_null(strstr(text, "platforms"));
	ck_assert_ptr_null(strstr(text, "outputs"));
	ck_assert_ptr_nonnull(strstr(text, "\"skill\": \"ro\""));
}
END_TEST

START_TEST(init_of_a_skill)
{
	struct nsbox_manifest *m = NULL;
	struct nsbox_error err = { 0 };
	auto_free char *text = NULL;

	file("SKILL.md",
	     "---\nname: my-skill\ndescription: |\n  does\n  things\nlicense: MIT\n---\n"
	     "Run scripts/second.py; it writes out/x.\n",
	     0644);
	file("scripts/first.sh", "#!/bin/sh\n", 0644);
	file("scripts/second.py", "#!/usr/bin/env python3\n", 0644);
	file("scripts/_helper.py", "", 0644);
	file("scripts/test_it.py", "", 0644);
	file("data/table.csv", "", 0644);
	text = init();
	ck_assert_int_eq(nsbox_manifest_parse(text, strlen(text), &m, &err), 0);
	ck_assert_str_eq(m->name, "my-skill");
	ck_assert_str_eq(m->description, "does things");
	ck_assert_str_eq(m->license, "MIT");
	ck_assert_uint_eq(m->n_entrypoints, 2);
	ck_assert_str_eq(m->entrypoints[0].id, "main"); /* SKILL.md speaks of it */
	ck_assert_str_eq(m->entrypoints[0].command[0], "python3");
	ck_assert_str_eq(m->entrypoints[0].command[1], "scripts/second.py");
	ck_assert_str_eq(m->entrypoints[1].id, "first");
	ck_assert_str_eq(m->executable[0], "scripts/first.sh");
	ck_assert_ptr_null(m->executable[1]);
	ck_assert_str_eq(m->outputs[0].glob, "out/**");
	ck_assert_uint_eq(m->fs.skill, SKILL_OVERLAY);
	nsbox_manifest_free(m);
}
END_TEST

/* A document that cannot be read is no reason to guess. */
START_TEST(init_of_an_odd_document)
{
	auto_close int fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct nsbox_error err = { 0 };
	char *text = NULL;

	file("SKILL.md", "---\nname: [\n---\n", 0644);
	ck_assert_int_lt(skill_init(fd, "x", &text, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "SKILL.md: line 2"));
	ck_assert_ptr_null(text);
}
END_TEST

START_TEST(reading_follows_no_link)
{
	auto_close int fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct nsbox_error err = { 0 };
	auto_free char *text = NULL;
	char full[256];
	size_t len;

	snprintf(full, sizeof(full), "%s/skill.json", place);
	ck_assert_int_eq(skill_read(fd, "skill.json", 100, &text, &len, &err), -ENOENT);
	ck_assert_int_eq(symlink("/etc/passwd", full), 0);
	ck_assert_int_lt(skill_read(fd, "skill.json", 100, &text, &len, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "symbolic link"));
	unlink(full);
	ck_assert_int_eq(mkfifo(full, 0600), 0);
	ck_assert_int_lt(skill_read(fd, "skill.json", 100, &text, &len, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "not a regular file"));
	unlink(full);
	file("skill.json", "0123456789", 0644);
	ck_assert_int_lt(skill_read(fd, "skill.json", 9, &text, &len, &err), 0);
	ck_assert_int_eq(skill_read(fd, "skill.json", 10, &text, &len, &err), 0);
	ck_assert_str_eq(text, "0123456789");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("skill");
	TCase *tc = tcase_create("skill"), *dir = tcase_create("directory");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(tc, front_matter, 0, (int)ARRAY_SIZE(matters));
	tcase_add_loop_test(tc, odd_front_matter, 0, (int)ARRAY_SIZE(odd));
	tcase_add_loop_test(tc, no_front_matter, 0, 5);
	tcase_add_test(tc, nul_and_size);
	tcase_add_loop_test(tc, agreement, 0, (int)ARRAY_SIZE(agreements));
	tcase_add_test(tc, findings_are_counted);
	tcase_add_loop_test(tc, shown_text, 0, (int)ARRAY_SIZE(shows));
	tcase_add_loop_test(tc, missing_library_note, 0, (int)ARRAY_SIZE(tails));
	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(dir, make_place, remove_place);
	tcase_add_test(dir, init_of_nothing);
	tcase_add_test(dir, init_of_a_skill);
	tcase_add_test(dir, init_of_an_odd_document);
	tcase_add_test(dir, reading_follows_no_link);
	suite_add_tcase(s, dir);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
