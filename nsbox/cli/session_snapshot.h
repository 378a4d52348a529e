/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of `nsbox session` about states of its files. */
#ifndef NSBOX_CLI_SESSION_SNAPSHOT_H
#define NSBOX_CLI_SESSION_SNAPSHOT_H

#include <stdbool.h>

int session_snapshot(int argc, char **argv);
int session_snapshots(int argc, char **argv);
int session_fork(int argc, char **argv);
int session_restore(int argc, char **argv);
int session_commit(int argc, char **argv);
int session_forget(int argc, char **argv);
int session_changes(int argc, char **argv);

/* session.c */
bool session_name_ok(const char *s);

#endif
