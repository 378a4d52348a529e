/* SPDX-License-Identifier: Apache-2.0 */
/* Which tools are registered: a list in memory, and the journal's copy that outlives the front. */
#include "daemon/front/tools.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/front/journal.h"
#include "nsbox/util.h"

struct tools {
	struct journal *journal;
	struct tool *first;
	unsigned n;
	uint64_t bytes;
};

static void tool_free(struct tool *t)
{
	if (t)
		json_object_put(t->record);
	free(t);
}

static struct tool *unlink_tool(struct tools *t, const char *id)
{
	for (struct tool **p = &t->first; *p; p = &(*p)->next) {
		struct tool *found = *p;

		if (strcmp(found->id, id) != 0)
			continue;
		*p = found->next;
		t->n--;
		t->bytes -= found->bytes;
		return found;
	}
	return NULL;
}

/* In the order of their names: lists are the same each time. Takes the record. */
static struct tool *insert(struct tools *t, const char *id, const char *workspace, uid_t uid,
			   struct json_object *record, size_t bytes)
{
	struct tool *made = calloc(1, sizeof(*made)), **p = &t->first;

	if (!made) {
		json_object_put(record);
		return NULL;
	}
	snprintf(made->id, sizeof(made->id), "%s", id);
	snprintf(made->workspace, sizeof(made->workspace), "%s", workspace);
	made->uid = uid;
	made->bytes = bytes;
	made->record = record;
	while (*p && strcmp((*p)->id, id) < 0)
		p = &(*p)->next;
	made->next = *p;
	*p = made;
	t->n++;
	t->bytes += bytes;
	return made;
}

static void on_row(void *ctx, const struct journal_tool *row)
{
	struct tools *t = ctx;
	struct json_object *record = json_tokener_parse(row->record);

	if (record)
		insert(t, row->id, row->workspace, row->uid, record, strlen(row->record));
}

int tools_open(struct journal *j, struct tools **ret, struct nsbox_error *err)
{
	struct tools *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "registered tools");
	t->journal = j;
	r = j->ops->tools(j, on_row, t, err);
	if (r < 0) {
		tools_free(t);
		return r;
	}
	*ret = t;
	return 0;
}

void tools_free(struct tools *t)
{
	for (struct tool *x = t ? t->first : NULL, *next; x; x = next) {
		next = x->next;
		tool_free(x);
	}
	free(t);
}

const struct tool *tools_first(const struct tools *t)
{
	return t->first;
}

const struct tool *tools_find(const struct tools *t, const char *id)
{
	for (const struct tool *x = t->first; x; x = x->next)
		if (strcmp(x->id, id) == 0)
			return x;
	return NULL;
}

/* One change, on disk when it returns: it is a rare one, and the loop can wait for it. */
static int change(struct journal *j, const struct journal_tool *row, const char *drop,
		  struct nsbox_error *err)
{
	int r = j->ops->begin(j, err);

	if (r < 0)
		return r;
	r = row ? j->ops->tool_put(j, row, err) : j->ops->tool_drop(j, drop, err);
	if (r == 0)
		r = j->ops->commit(j, err);
	else
		j->ops->rollback(j);
	return r == 0 ? j->ops->sync(j, err) : r;
}

int tools_put(struct tools *t, const char *id, const char *workspace, uid_t uid,
	      struct json_object *record, struct nsbox_error *err)
{
	const char *text = json_object_to_json_string_ext(
		record, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	const struct journal_tool row = {
		.id = id, .workspace = workspace, .uid = uid, .record = text
	};
	const struct tool *old = tools_find(t, id);
	size_t bytes = text ? strlen(text) : 0;
	int r;

	if (!text)
		r = nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep a tool");
	else if ((!old && t->n >= TOOLS_MAX) ||
		 t->bytes - (old ? old->bytes : 0) + bytes > TOOLS_BYTES_MAX)
		r = (nsbox_fail(err, NSBOX_E_LIMIT, 0,
				"%u tools are registered, of %llu MB: remove one (at most %d, of "
				"%llu MB)",
				t->n, (unsigned long long)(t->bytes >> 20), TOOLS_MAX,
				(unsigned long long)(TOOLS_BYTES_MAX >> 20)),
		     -EDQUOT);
	else
		r = change(t->journal, &row, NULL, err);
	if (r < 0) {
		json_object_put(record);
		return r;
	}
	tool_free(unlink_tool(t, id));
	return insert(t, id, workspace, uid, record, bytes)
		       ? 0
		       : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep a tool");
}

int tools_drop(struct tools *t, const char *id, struct nsbox_error *err)
{
	int r = change(t->journal, NULL, id, err);

	if (r == 0)
		tool_free(unlink_tool(t, id));
	return r;
}
