/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's part of egress in a ceiling: networks opened, and a list of bans in the syntax of
 * MaxKB's SANDBOX_PYTHON_BANNED_HOSTS: tokens with commas between them. A token that reads as an
 * address or a network bans that; any other is an extended regular expression on the whole name, in
 * any case. One that is the host's own name is left out: a name that every program may look up of
 * itself is not banned by accident.
 */
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "nsbox/egress_format.h"
#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/names.h"

bool ban_is_network(const char *token, char *buf, size_t size)
{
	struct egress_net net;
	const char *why;

	if (!host_net(token, &net))
		return false;
	if (strchr(token, '/'))
		return cidr_check(token, &why) && (cidr_normalise(token, buf, size), true);
	snprintf(buf, size, "%s/%d", token, net.family == 4 ? 32 : 128);
	cidr_normalise(strdupa(buf), buf, size);
	return true;
}

bool ban_matches(const char *pattern, const char *name)
{
	auto_free char *whole = NULL;
	regex_t re;
	bool hit;

	if (asprintf(&whole, "^(%s)$", pattern) < 0) {
		whole = NULL;
		return true;
	}
	if (regcomp(&re, whole, REG_EXTENDED | REG_ICASE | REG_NOSUB) != 0)
		return true;
	hit = regexec(&re, name, 0, NULL, 0) == 0;
	regfree(&re);
	return hit;
}

static int check_pattern(const char *token, struct nsbox_error *err)
{
	char why[128];
	regex_t re;
	int r = regcomp(&re, token, REG_EXTENDED | REG_ICASE | REG_NOSUB);

	if (r == 0) {
		regfree(&re);
		return 0;
	}
	regerror(r, &re, why, sizeof(why));
	return nsbox_fail(err, NSBOX_E_INVALID, 0,
			  "the ban '%.100s' is neither a network nor a regular expression: %s",
			  token, why);
}

/* A network that has bits beyond its prefix looks like one and would ban nothing as a pattern. */
static int check_token(const char *token, struct nsbox_error *err)
{
	struct egress_net net;
	const char *why;

	if (strchr(token, '/') && host_net(token, &net) && !cidr_check(token, &why))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "the ban '%.100s' %s", token, why);
	return host_net(token, &net) ? 0 : check_pattern(token, err);
}

int nsbox_ceiling_ban(struct nsbox_ceiling *c, const char *list, const char *own_name,
		      struct nsbox_error *err)
{
	auto_free char *copy = strdup(list);
	char *save = NULL, out[sizeof(c->banned)] = "";
	size_t len = 0;

	if (!copy)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read a list of bans");
	for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
		t += strspn(t, " \t\n");
		t[strcspn(t, " \t\n")] = '\0';
		if (!*t || (own_name && *own_name && !strcasecmp(t, own_name)))
			continue;
		if (check_token(t, err) < 0)
			return -EINVAL;
		if (len + strlen(t) + 2 > sizeof(out))
			return nsbox_fail(err, NSBOX_E_INVALID, 0,
					  "a list of bans is longer than %zu bytes", sizeof(out));
		len += (size_t)snprintf(out + len, sizeof(out) - len, "%s%s", len ? "," : "", t);
	}
	memset(c->banned, 0, sizeof(c->banned)); /* ceilings are compared byte by byte */
	memcpy(c->banned, out, len);
	return 0;
}

int nsbox_ceiling_open(struct nsbox_ceiling *c, const char *network, struct nsbox_error *err)
{
	char text[64];
	const char *at = c->opened;
	size_t used;

	if (!ban_is_network(network, text, sizeof(text)))
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "'%.80s' is neither an address nor a network like 10.0.0.0/8",
				  network);
	for (uint32_t i = 0; i < c->n_opened; i++)
		at += strlen(at) + 1;
	used = (size_t)(at - c->opened);
	if (used + strlen(text) + 1 > sizeof(c->opened))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "too many networks are opened");
	memcpy(c->opened + used, text, strlen(text) + 1);
	c->n_opened++;
	return 0;
}
