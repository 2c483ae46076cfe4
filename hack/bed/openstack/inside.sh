#!/bin/sh
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# inside.sh FOLDER BED COMMAND...: runs COMMAND with FOLDER as its root, as the same
# process. `bed` starts it in a mount namespace of its own (unshare --mount --propagation
# unchanged), so what is mounted here is gone when COMMAND ends. The bed's folder has the
# same path inside. Of the machine are its processes, devices and /run, whose network
# namespaces the L3 agent makes and the machine must see: these stay shared. And its
# /etc/hosts: RabbitMQ looks its machine's name up for each connection, and asked DNS, which
# the bed has not, for 6 s each time.
set -e
folder=$1 bed=$2
shift 2
# Else what is mounted below would be there for the whole machine.
mount --make-private "$(findmnt -no TARGET -T "$folder")"
mount --bind "$folder" "$folder" # `ip netns exec` wants a root that is a mount
for dir in proc sys dev run; do mount --rbind "/$dir" "$folder/$dir"; done
mount --bind /etc/hosts "$folder/etc/hosts"
mkdir -p "$folder$bed"
mount --bind "$bed" "$folder$bed"
exec chroot "$folder" "$@"
