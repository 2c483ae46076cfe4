# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
"""Users and the service catalogue: bootstrap.py PASSWORD TYPE=URL...

Makes what is not there. The cloud is the one that OS_CLOUD names.
"""

import sys

import openstack

password, endpoints = sys.argv[1], sys.argv[2:]
identity = openstack.connect().identity


def project(name):
    return identity.find_project(name) or identity.create_project(name=name, domain_id="default")


def role(name):
    return identity.find_role(name) or identity.create_role(name=name)


def user(name, project_name, *roles):
    found = identity.find_user(name) or identity.create_user(
        name=name, password=password, domain_id="default")
    for r in roles:
        identity.assign_project_role_to_user(project(project_name), found, role(r))


def endpoint(kind, url):
    service = next(identity.services(type=kind), None) or identity.create_service(name=kind, type=kind)
    there = {e.interface for e in identity.endpoints(service_id=service.id)}
    for interface in {"public", "internal", "admin"} - there:
        identity.create_endpoint(
            service_id=service.id, interface=interface, url=url, region_id="RegionOne")


user("neutron", "service", "admin")
user("octavia", "service", "admin")
# A controller that binds ports to hosts is an admin of its project: binding:host_id
# is for admins only. `tenant` is a plain member, to see what one is refused.
user("kuryr", "k8s", "admin", "member", "load-balancer_member")
user("tenant", "k8s", "member", "load-balancer_member")
# Projects that namespaces may be in: their users see what is theirs, and no more.
for name in "tenant-a", "tenant-b", "tenant-c":
    user(name, name, "member", "load-balancer_member")
for pair in endpoints:
    endpoint(*pair.split("=", 1))
