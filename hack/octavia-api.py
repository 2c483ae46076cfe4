#!/usr/bin/python3
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes what the installed Octavia says of its API's bodies, as JSON.

    /usr/bin/python3 hack/octavia-api.py >openstacksim/internal/octavia/api-RELEASE.json

It imports Octavia's own types, so it has to run where that is installed. The
simulator checks bodies against the output; run it again for another release.
"""

import importlib
import json

from wsme import types

MODULES = {
    "load_balancer": "LoadBalancer",
    "listener": "Listener",
    "pool": "Pool",
    "member": "Member",
    "health_monitor": "HealthMonitor",
    "l7policy": "L7Policy",
    "l7rule": "L7Rule",
    "quotas": "Quota",
    "flavors": "Flavor",
    "flavor_profile": "FlavorProfile",
    "availability_zones": "AvailabilityZone",
    "availability_zone_profile": "AvailabilityZoneProfile",
}
NAMED = {"IPAddressType": "address", "CidrType": "cidr", "AlpnProtocolType": "alpn",
         "URLType": "url", "URLPathType": "path", "UuidType": "uuid"}
objects = {}


def of(kind):
    """Describes one type; objects are described once and named."""
    if isinstance(kind, list):
        return {"kind": "list", "item": of(kind[0])}
    if isinstance(kind, types.ArrayType):
        return {"kind": "list", "item": of(kind.item_type)}
    if isinstance(kind, types.DictType):
        return {"kind": "map", "item": of(kind.value_type)}
    if types.iscomplex(kind):
        add(kind)
        return {"kind": "object", "object": kind.__name__}
    if isinstance(kind, types.Enum):
        return {"kind": "enum", "base": kind.basetype.__name__, "values": sorted(kind.values)}
    if isinstance(kind, types.IntegerType):
        return known(kind="integer", minimum=kind.minimum, maximum=kind.maximum)
    if isinstance(kind, types.StringType):
        pattern = kind.pattern.pattern if kind.pattern else None
        return known(kind="string", minimum=kind.min_length, maximum=kind.max_length, pattern=pattern)
    if type(kind).__name__ in NAMED:
        return {"kind": NAMED[type(kind).__name__]}
    return {"kind": {"str": "text", "datetime": "time"}.get(kind.__name__, kind.__name__)}


def known(**facts):
    return {k: v for k, v in facts.items() if v is not None}


def add(kind):
    if kind.__name__ in objects:
        return
    objects[kind.__name__] = attributes = []
    for a in types.list_attributes(kind):
        entry = {"name": a.name, "type": of(a.datatype)}
        if a.mandatory:
            entry["mandatory"] = True
        default = getattr(a, "default", types.Unset)
        if default is not types.Unset:
            entry["default"] = default
        attributes.append(entry)


for module, title in MODULES.items():
    m = importlib.import_module("octavia.api.v2.types." + module)
    for form in ("POST", "RootPOST", "PUT", "RootPUT", "RootPut", "Response", "FullResponse", "StatusResponse"):
        if hasattr(m, title + form):
            add(getattr(m, title + form))
for module, name in (("member", "MembersRootPUT"), ("quotas", "QuotaAllBase")):
    add(getattr(importlib.import_module("octavia.api.v2.types." + module), name))
print("{\n" + ",\n".join(
    json.dumps(name) + ": [\n  " + ",\n  ".join(json.dumps(a) for a in objects[name]) + "\n]"
    for name in sorted(objects)) + "\n}")
