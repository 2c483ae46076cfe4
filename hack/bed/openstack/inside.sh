#!/bin/sh
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# inside.sh FOLDER BED COMMAND...: runs COMMAND with FOLDER as its root, as the same
# process. `bed` starts it in a mount namespace of its own (unshare --mount --propagation
# unchanged), so what is mounted here is gone when COMMAND ends. The bed's folder has the
# same path inside. Of the machine are its processes, devices and /run, whose network
# namespaces the L3 agent makes and the machine must see: these stay shared.
set -e
folder=$1 bed=$2
shift 2
# Else what is mounted below would be there for the whole machine.
mount --make-private "$(findmnt -no TARGET -T "$folder")"
for dir in proc sys dev run; do mount --rbind "/$dir" "$folder/$dir"; done
mkdir -p "$folder$bed"
mount --bind "$bed" "$folder$bed"
exec chroot "$folder" "$@"
