/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host names, addresses and networks as manifests and ceilings write them. What a client may reach
 * is decided by these texts, so each has one meaning: no short, octal or hexadecimal addresses, no
 * names that some resolver would take for an address, wildcards for whole labels on the left alone.
 */
#ifndef POLICY_NAMES_H
#define POLICY_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#define HOST_MAX 253

/* Is this a host of an allowlist: a name, "*.name", an address or a network? False: *why says what is wrong,
 * in words that follow the quoted text. */
bool host_check(const char *text, const char **why);
/* Lower case, no trailing dot, addresses in their shortest form; `size` > HOST_MAX. The text has to
 * be one that host_check() takes. */
void host_normalise(const char *text, char *buf, size_t size);
/*
 * Does a pattern (normalised) cover a host or another pattern? "*.example.com" covers
 * "a.example.com", "a.b.example.com" and "*.b.example.com", and not "example.com".
 */
bool host_covers(const char *pattern, const char *host);

/* The network that a host of an allowlist is, where it is an address or a network. */
struct egress_net;
bool host_net(const char *host, struct egress_net *ret);

/* "10.0.0.0/8", "fd00::/8": no bits beyond the prefix. */
bool cidr_check(const char *text, const char **why);
void cidr_normalise(const char *text, char *buf, size_t size);

#endif
