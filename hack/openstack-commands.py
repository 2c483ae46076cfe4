#!/usr/bin/python3
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
"""Tells which openstack commands the installed client does not take.

    echo 'openstack loadbalancer list --vip-address 10.96.0.1' | /usr/bin/python3 hack/openstack-commands.py

Reads one command a line, and prints a line for each that the client's own parser
refuses: its number, a tab and why. No cloud is asked. A line that begins with "?" is
from the middle of a sentence: it may leave out what comes last, as
`? openstack network set --enable` does, but has no option that the client does not know.
Needs Debian's packages python3-openstackclient and python3-octaviaclient.
"""

import argparse
import re
import shlex
import sys
from unittest import mock

from cliff import commandmanager
from openstackclient import shell

# The groups of entry points that the client loads for these versions of the APIs.
GROUPS = [
    "openstack.cli",
    "openstack.common",
    "openstack.identity.v3",
    "openstack.compute.v2",
    "openstack.image.v2",
    "openstack.network.v2",
    "openstack.volume.v3",
    "openstack.neutronclient.v2",
    "openstack.load_balancer.v2",
]


class Refused(Exception):
    pass


def refuse(parser, message):
    raise Refused(message)


def commands():
    manager = commandmanager.CommandManager(GROUPS[0])
    for group in GROUPS[1:]:
        manager.add_command_group(group)
    return manager


def parse(manager, words, whole):
    """Raises Refused if the client does not take the words after `openstack`."""
    _, words = shell.OpenStackShell().parser.parse_known_args(words)
    try:
        factory, name, rest = manager.find_command(words)
    except ValueError:
        known = " ".join(words)
        if not whole and any(n.startswith(known + " ") for n, _ in manager):
            return  # a family of commands: `openstack loadbalancer quota`
        raise Refused(f"no such command: {known}")
    # Some commands ask which services the cloud has, to know their options: it has all.
    parser = factory(mock.MagicMock(), None).get_parser(name)
    added = 0
    while True:
        try:
            parser.parse_args(rest)
            return
        except argparse.ArgumentTypeError as e:  # the form of a value
            if not added:
                raise Refused(str(e))
            return
        except Refused as e:
            number = re.search(r"invalid int value: '([A-Z]+)'", str(e))
            if number:
                rest = ["1" if w == number[1] else w for w in rest]
            elif not whole and added < 4 and re.search("are required|expected .* argument", str(e)):
                rest, added = rest + ["1"], added + 1
            else:
                raise


def main():
    argparse.ArgumentParser.error = refuse
    manager = commands()
    for number, line in enumerate(sys.stdin, 1):
        whole = not line.startswith("?")
        try:
            words = shlex.split(line.lstrip("?"), comments=True)
            parse(manager, words[words.index("openstack") + 1 :], whole)
        except (Refused, ValueError) as e:
            print(f"{number}\t{e}")


if __name__ == "__main__":
    main()
