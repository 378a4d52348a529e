/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON for manifests and requests: strict text, then typed fields.
 *
 * json_strict_parse() accepts RFC 8259 text and nothing else, and refuses what the RFC leaves open
 * and parsers disagree on: duplicate keys, NUL (also as \u0000), lone surrogates, invalid UTF-8, a
 * byte order mark, numbers that no 64-bit integer or finite double holds.
 *
 * A table of struct json_field then drives the reading of an object, so that a key that is not in
 * the table is an error, and the place of every error is known as a JSON pointer.
 */
#ifndef POLICY_JSON_STRICT_H
#define POLICY_JSON_STRICT_H

#include <nsbox/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;

struct json_limits {
	size_t max_size;  /* bytes of text */
	int max_depth;	  /* containers within each other, at most JSON_DEPTH_MAX */
	size_t max_nodes; /* values and keys together, 0: no limit but the size */
	int code;	  /* enum nsbox_error_code of errors: NSBOX_E_MANIFEST or NSBOX_E_INVALID */
};
#define JSON_DEPTH_MAX 64
#define JSON_LIMITS_MANIFEST                                                                       \
	((struct json_limits){ .max_size = 256u << 10, .max_depth = 16, .code = NSBOX_E_MANIFEST })

/* s need not be NUL-terminated. *ret is the caller's (json_object_put), NULL for the text `null`. */
int json_strict_parse(const char *s, size_t len, const struct json_limits *lim,
		      struct json_object **ret, struct nsbox_error *err);

/* ------------------------------------------------------------------ typed reading */

/* Where a reader is, for messages: grows by json_enter(), shrinks by json_leave(). */
struct json_reader {
	int code; /* of errors, as in json_limits */
	struct nsbox_error *err;
	size_t len;
	char pointer[256]; /* cut where longer: messages only */
};

void json_reader_init(struct json_reader *r, int code, struct nsbox_error *err);
size_t json_enter(struct json_reader *r, const char *key); /* returns what json_leave() takes */
size_t json_enter_index(struct json_reader *r, size_t index);
void json_leave(struct json_reader *r, size_t mark);
/* "<pointer>: text"; returns -EINVAL. */
int json_fail(struct json_reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int json_nomem(struct json_reader *r);
/* "a string", "an object", ...; for messages */
const char *json_type_text(struct json_object *v);

struct json_field;
/* Reads v, which is at r's pointer, into *(dst + f->offset). */
typedef int json_take_fn(struct json_reader *r, struct json_object *v, const struct json_field *f,
			 void *dst);

/* Judges a string that was read; 0 or json_fail(). */
typedef int json_check_fn(struct json_reader *r, const char *text);

/* What the reference says of a field besides its type; the reader does not look at them. */
enum json_mark {
	JSON_OPERATOR = 1 << 0,	   /* for operators: an author who asks is refused */
	JSON_DECLARATIVE = 1 << 1, /* for people and other programs: a run does not depend on it */
	JSON_LATER = 1 << 2,	   /* what needs it cannot be run by this version */
	JSON_LIVE = 1 << 3,	   /* may be lowered in a session that is running */
};

struct json_table;
struct json_field {
	const char *name;
	json_take_fn *take; /* NULL: known, but `absent` says why it cannot be had */
	size_t offset;
	uint64_t min,
		max; /* value of numbers, bytes of strings, entries of lists; max 0: default */
	bool required;
	bool nullable;			/* null is as good as absent */
	const char *absent;		/* "is not supported by this version" */
	const char *const *choices;	/* NULL-terminated: json_take_choice() stores the index */
	const char *help;		/* one line for the reference */
	const struct json_table *table; /* of json_take_members(), _list() and _map() */
	json_check_fn *check;		/* of a string, or of each string of a list */
	const char *preset;		/* the default, as the reference prints it; NULL: none */
	const char *since;		/* NULL: the first version */
	unsigned marks;			/* enum json_mark */
};

/* The members of an object, or of each entry of a list or map. */
enum json_form {
	JSON_FORM_OBJECT, /* an entry is an object */
	JSON_FORM_EITHER, /* or a plain value, which stands for the first field */
	JSON_FORM_VALUE,  /* always a plain value: the first field */
};
struct json_table {
	const struct json_field *fields;
	size_t n;
	enum json_form form;
	/* lists and maps alone: */
	size_t size;  /* bytes of an entry */
	size_t count; /* offset of the size_t that counts them, beside the field's own offset */
	size_t key;   /* map: offset of the char * in an entry that gets the key */
	const char *key_name;	   /* map: what a key is, for the reference */
	json_check_fn *check_key;  /* map */
	void (*init)(void *entry); /* may be NULL: all zero */
	int (*finish)(struct json_reader *r, void *entry); /* judges a whole entry; may be NULL */
};

/*
 * Read object v by its table. Keys that begin with "x-", and "_meta", are skipped where
 * `extensions` is true. Unknown keys are errors with a "did you mean".
 */
int json_read_object(struct json_reader *r, struct json_object *v, const struct json_field *fields,
		     size_t n, bool extensions, void *dst);

/* Readers for tables. Strings are malloc'd; lists are NULL-terminated arrays of malloc'd strings. */
int json_take_string(struct json_reader *, struct json_object *, const struct json_field *, void *);
int json_take_strings(struct json_reader *, struct json_object *, const struct json_field *,
		      void *);
int json_take_bool(struct json_reader *, struct json_object *, const struct json_field *, void *);
int json_take_u64(struct json_reader *, struct json_object *, const struct json_field *, void *);
int json_take_u32(struct json_reader *, struct json_object *, const struct json_field *, void *);
int json_take_choice(struct json_reader *, struct json_object *, const struct json_field *, void *);
/* Any object / any value, null too unless min is set: stores a counted reference (struct
 * json_object *). */
int json_take_object(struct json_reader *, struct json_object *, const struct json_field *, void *);
int json_take_any(struct json_reader *, struct json_object *, const struct json_field *, void *);

/* A boolean that may be absent: 0 or 1 into a uint32_t, which is left alone otherwise. */
int json_take_flag(struct json_reader *, struct json_object *, const struct json_field *, void *);
/* Numbers within min and max (not 0), as a malloc'd uint32_t list that ends with 0. */
int json_take_u32s(struct json_reader *, struct json_object *, const struct json_field *, void *);
/* An object whose members lie in dst itself; a list and a map of entries of their own (calloc'd). */
int json_take_members(struct json_reader *, struct json_object *, const struct json_field *,
		      void *);
int json_take_list(struct json_reader *, struct json_object *, const struct json_field *, void *);
int json_take_map(struct json_reader *, struct json_object *, const struct json_field *, void *);
/* Free what the fields of a table have put into dst; dst itself is the caller's. */
void json_free_fields(const struct json_field *fields, size_t n, void *dst);

/* Quantities ("512Mi", "1.5", "30s"), see quantity.h: bytes, thousandths of a CPU, milliseconds. */
int json_take_bytes(struct json_reader *, struct json_object *, const struct json_field *, void *);
int json_take_cpu(struct json_reader *, struct json_object *, const struct json_field *, void *);
int json_take_ms(struct json_reader *, struct json_object *, const struct json_field *, void *);

/* The text of a JSON string; NULL and an error where v is something else. */
const char *json_string(struct json_reader *r, struct json_object *v);

/*
 * The candidate closest to `word` (edit distance, case ignored), or NULL where none is close
 * enough to be meant. `next` returns candidates until NULL.
 */
const char *json_did_you_mean(const char *word, const char *(*next)(void *ctx, size_t i),
			      void *ctx);

void json_strings_free(char **list);

#endif
