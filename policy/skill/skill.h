/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at a skill's directory before it is run: what `nsbox skill check` finds and `nsbox skill
 * init` writes. Unlike the rest of policy/ this reads files; what it reads is hostile. Each file is
 * opened below the directory without following a link and without waiting, sizes, depths and counts
 * are limited, nothing of the skill is run, and all text that comes out is fit to be shown.
 *
 *   report.c       findings: one table says which there are
 *   tree.c         what files there are, and what kind each is
 *   document.c     SKILL.md, and whether it agrees with skill.json
 *   check.c        the order of the checks
 *   check_*.c      the checks
 *   init.c         a first manifest
 */
#ifndef POLICY_SKILL_SKILL_H
#define POLICY_SKILL_SKILL_H

#include <nsbox/error.h>
#include <nsbox/policy.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct blob;

/* ------------------------------------------------------------------ findings */

enum skill_severity { SKILL_ERROR, SKILL_WARNING };

/* A run would fail or do something else: error. It may be meant so: warning. */
/* clang-format off */
#define SKILL_FINDINGS(X)                                                                          \
	X(MANIFEST,      "manifest",           ERROR,   "skill.json is refused")                       \
	X(NO_DOCUMENT,   "noSkillMd",          WARNING, "there is no SKILL.md")                        \
	X(DOCUMENT,      "skillMd",            WARNING, "the front matter of SKILL.md cannot be read, or lacks name or description") \
	X(DISAGREE,      "disagreement",       ERROR,   "SKILL.md and skill.json say different things") \
	X(OTHER_NAME,    "manifestName",       ERROR,   "SKILL.md names a manifest that is not read or not there") \
	X(PLATFORM,      "platform",           ERROR,   "the skill is made for other machines than this one") \
	X(PLATFORM_NAME, "platformName",       WARNING, "an entry of platforms that nsbox does not know") \
	X(ENTRY_MISSING, "entryMissing",       ERROR,   "what an entry point starts is not there")     \
	X(ENTRY_OUTSIDE, "entryOutside",       ERROR,   "an entry point leads out of the skill")       \
	X(ENTRY_MODE,    "entryNotExecutable", ERROR,   "an entry point starts a file that is not executable") \
	X(EXECUTABLE,    "executableMissing",  ERROR,   "files.executable names a file that is not there") \
	X(DIGEST,        "digest",             ERROR,   "a file is not the one that files.digests describes") \
	X(TEST,          "testEntry",          ERROR,   "a test names an entry point that is not there") \
	X(LINK,          "linkOutside",        ERROR,   "a symbolic link leads out of the skill")      \
	X(SPECIAL,       "specialFile",        ERROR,   "a socket, device or pipe")                    \
	X(NAME,          "name",               WARNING, "a name with control characters, or not UTF-8") \
	X(NAME_LONG,     "nameTooLong",        ERROR,   "a path that is longer than a sandbox takes")  \
	X(SIZE,          "tooLarge",           ERROR,   "more bytes, files or levels than a run takes") \
	X(UNREADABLE,    "unreadable",         ERROR,   "a file or directory cannot be read")          \
	X(ELF,           "elf",                WARNING, "an ELF file is damaged")                      \
	X(MACHINE,       "wrongArchitecture",  ERROR,   "a program or library for another machine")    \
	X(LOADER,        "missingLoader",      ERROR,   "the loader of a program is not in the image") \
	X(LIBRARY,       "missingLibrary",     ERROR,   "a shared library is nowhere to be found")     \
	X(LIBRARY_PLACE, "libraryPlace",       WARNING, "a shared library is in the skill, but not where the loader looks") \
	X(LIBRARY_OLD,   "libraryVersion",     ERROR,   "a shared library is older than the program needs") \
	X(EXEC_BIT,      "lostExecBit",        WARNING, "a program or script without the execute bit") \
	X(CRLF,          "crlf",               ERROR,   "the first line of a script ends in a carriage return") \
	X(INTERPRETER,   "missingInterpreter", ERROR,   "the interpreter of a script is not in the image")
/* clang-format on */

enum skill_finding_id {
#define X(sym, id, severity, text) SKILL_F_##sym,
	SKILL_FINDINGS(X)
#undef X
		SKILL_F_MAX
};
const char *skill_finding_name(int id); /* "wrongArchitecture" */
const char *skill_finding_text(int id); /* what it means in general */
int skill_finding_severity(int id);	/* where nothing else is said */
const char *skill_severity_name(int severity);

struct skill_finding {
	int id, severity;
	bool fixed; /* mended by this check: no longer a fault */
	char *path; /* relative to the skill; "" where it is about the whole */
	char *message, *remedy;
};

#define SKILL_REPORT_MAX 1000

struct skill_report {
	struct skill_finding *list;
	size_t n, left_out; /* left_out: over the limit, or without memory */
	size_t errors, warnings, fixed;
};

/* Texts are copied in a form that may be shown. remedy may be NULL. Returns the finding, or NULL. */
struct skill_finding *report_add(struct skill_report *rep, int id, const char *path,
				 const char *remedy, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
void report_lower(struct skill_report *rep, struct skill_finding *f); /* to a warning */
void report_fixed(struct skill_report *rep, struct skill_finding *f);
void report_done(struct skill_report *rep);

/* ------------------------------------------------------------------ SKILL.md */

/*
 * Does SKILL.md agree with the manifest (NULL: it cannot be read, or there is none)? name, description and license have to
 * be the same where both have them; spaces and line breaks do not count. This is also what a lint
 * of a manifest beside a SKILL.md asks.
 */
void skill_agree(const struct nsbox_manifest *m, bool has_manifest, const char *document,
		 size_t len, struct skill_report *rep);

/* ------------------------------------------------------------------ check */

struct skill_check_options {
	int dir_fd;			       /* of the skill */
	const char *inside;		       /* "/skills/NAME" */
	const struct nsbox_manifest *manifest; /* NULL: it cannot be read */
	const struct nsbox_policy *policy;     /* of the manifest, NULL: refused */
	bool has_manifest;		       /* there is a skill.json */
	const struct blob *root;	       /* of the image */
	bool fix;
};

/* 0 where it could be looked at, whatever was found. */
int skill_check(const struct skill_check_options *opt, struct skill_report *rep,
		struct nsbox_error *err);

/* A regular file of the skill, NUL-terminated (malloc'd). -ENOENT, or an error. */
int skill_read(int dir_fd, const char *path, size_t max, char **ret, size_t *ret_len,
	       struct nsbox_error *err);

/* ------------------------------------------------------------------ init */

/*
 * The text of a first skill.json for the directory (malloc'd), one that the reader accepts. dir_name
 * names it where SKILL.md does not. What is wrong with the files is not its business.
 */
int skill_init(int dir_fd, const char *dir_name, char **ret, struct nsbox_error *err);

/* ------------------------------------------------------------------ after a run */

/*
 * Does what a program wrote to standard error at last say that its loader missed a library? Then a
 * sentence about it into ret, and true.
 */
bool skill_missing_library(const char *err_tail, size_t len, char *ret, size_t size);

#endif
