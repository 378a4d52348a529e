/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs of `nsbox session` that are about files. */
#ifndef NSBOX_CLI_SESSION_FILES_H
#define NSBOX_CLI_SESSION_FILES_H

int session_ls(int argc, char **argv);
int session_get(int argc, char **argv);
int session_put(int argc, char **argv);
int session_mkdir(int argc, char **argv);
int session_rm(int argc, char **argv);
int session_mv(int argc, char **argv);
int session_upload(int argc, char **argv);
int session_download(int argc, char **argv);

#endif
