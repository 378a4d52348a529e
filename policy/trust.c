/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificate authorities that the operator adds for runs with a network: taken as they are, and
 * named by the variables of those programs that do not look where the image keeps its own. What a
 * manifest sets itself wins.
 */
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/resolve.h"

static const char *const variables[] = {
	"AWS_CA_BUNDLE",       /* boto */
	"CURL_CA_BUNDLE",      /* curl, whatever it is linked with */
	"GIT_SSL_CAINFO",      /* git */
	"NODE_EXTRA_CA_CERTS", /* node, which has a list of its own */
	"PIP_CERT",	       /* pip, which brings one */
	"REQUESTS_CA_BUNDLE",  /* requests, whose certifi does */
	"SSL_CERT_FILE",       /* OpenSSL, and so Python's ssl; Go */
};

static bool is_set(char *const *env, const char *name)
{
	size_t len = strlen(name);

	for (; *env; env++)
		if (!strncmp(*env, name, len) && (*env)[len] == '=')
			return true;
	return false;
}

/* Is it PEM, of certificates alone? What is in them is for those who use them. */
static bool is_certificates(const char *pem)
{
	static const char begin[] = "-----BEGIN ", end[] = "-----END CERTIFICATE-----";
	static const char what[] = "CERTIFICATE-----";
	unsigned n = 0;

	for (const char *at = pem; (at = strstr(at, begin)); n++) {
		at += sizeof(begin) - 1;
		if (strncmp(at, what, sizeof(what) - 1) != 0)
			return false;
		at = strstr(at, end);
		if (!at)
			return false;
	}
	return n > 0;
}

int nsbox_ceiling_trust(struct nsbox_ceiling *c, const char *pem, struct nsbox_error *err)
{
	size_t len = strlen(pem);

	if (len >= sizeof(c->certificates))
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "certificates of authorities are longer than %zu bytes",
				  sizeof(c->certificates) - 1);
	if (!is_certificates(pem))
		return nsbox_fail(
			err, NSBOX_E_INVALID, 0,
			"no certificates in PEM (-----BEGIN CERTIFICATE-----), or something "
			"else among them");
	memset(c->certificates, 0, sizeof(c->certificates)); /* compared byte by byte */
	memcpy(c->certificates, pem, len);
	return 0;
}

int resolve_trust(struct resolve *rs)
{
	struct nsbox_policy *p = rs->p;

	if (!*rs->ceiling->certificates || !policy_has_egress(p))
		return 0;
	p->network.certificates = strdup(rs->ceiling->certificates);
	if (!p->network.certificates)
		return json_nomem(&rs->r);
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
		char *text = NULL;

		if (is_set(p->env, variables[i]))
			continue;
		if (asprintf(&text, "%s=" POLICY_TRUST "/" TRUST_FILE, variables[i]) < 0)
			text = NULL;
		if (strings_add_take(&p->env, text) < 0)
			return json_nomem(&rs->r);
	}
	strings_sort_unique(p->env);
	return 0;
}
