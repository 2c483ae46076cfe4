#!/usr/bin/python3
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes what an installed Neutron says of its API, as JSON, to standard output:
attributes of each resource in the order in which Neutron looks at them, the
extensions, and the access rules. The simulator embeds it:

    hack/neutron-api.py > openstacksim/internal/neutron/api-RELEASE.json

Facts only: nothing of Neutron is run but its own loading of these definitions.
The extensions are those that ML2/OVN of the installed release offers with the
plugins ovn-router, trunk, qos, port_forwarding, segments and network_segment_range.
"""
import functools
import importlib
import importlib.metadata
import json
import os
import sys

ALIASES = """
address-group address-scope agent allowed-address-pairs auto-allocated-topology availability_zone binding
binding-extended default-subnetpools dns-domain-ports dns-integration dns-integration-domain-keywords
expose-port-forwarding-in-fip ext-gw-mode external-net extra_dhcp_opt extraroute filter-validation fip-port-details flavors
floating-ip-port-forwarding floating-ip-port-forwarding-description floating-ip-port-forwarding-detail
floating-ip-port-forwarding-port-ranges floatingip-pools ip_allocation l2_adjacency multi-provider net-mtu net-mtu-writable
network-ip-availability network-segment-range network_availability_zone pagination port-device-profile
port-mac-address-regenerate port-numa-affinity-policy port-resource-request port-resource-request-groups port-security
project-id provider qos qos-bw-limit-direction qos-bw-minimum-ingress qos-default qos-fip qos-gateway-ip
qos-port-network-policy qos-pps qos-pps-minimum qos-pps-minimum-rule-alias qos-rule-type-details qos-rule-type-filter
qos-rules-alias quota-check-limit quota_details quotas rbac-address-scope rbac-policies rbac-security-groups
revision-if-match router router_availability_zone security-group security-groups-normalized-cidr
security-groups-remote-address-group security-groups-shared-filtering segment segments-peer-subnet-host-routes service-type
sorting standard-attr-description standard-attr-revisions standard-attr-segment standard-attr-tag standard-attr-timestamp
stateful-security-group subnet-dns-publish-fixed-ip subnet-segmentid-writable subnet-service-types subnet_allocation trunk
trunk-details
""".split()
# What Neutron 26 (2025.1) offers beyond Neutron 21 (Zed).
ALIASES_SINCE_26 = """
dhcp_agent_scheduler empty-string-filtering enable-default-route-bfd enable-default-route-ecmp external-gateway-multihoming
l3-flavors l3-ha port-numa-affinity-policy-socket quota-check-limit-default security-groups-default-rules
security-groups-rules-belongs-to-default-sg subnet-external-network subnetpool-prefix-ops tag-creation
""".split()
SINCE_26 = int(importlib.metadata.version("neutron").split(".")[0]) >= 26
if SINCE_26:
    ALIASES += ALIASES_SINCE_26

RESOURCES = ["networks", "subnets", "subnetpools", "ports", "routers", "floatingips", "security_groups",
             "security_group_rules", "address_groups", "address_scopes", "trunks", "agents",
             "availability_zones", "quotas"]


def converter(f):
    """Names a converter: itself, or the one that it wraps with what arguments."""
    if isinstance(f, functools.partial):
        return {"name": f.func.__name__, "args": [plain(a) for a in f.args],
                "named": {k: plain(v) for k, v in f.keywords.items()}}
    cells = {n: c.cell_contents for n, c in zip(f.__code__.co_freevars, f.__closure__ or ())} \
        if hasattr(f, "__code__") else {}
    if not cells:
        return {"name": f.__name__}
    return {"name": f.__qualname__.split(".")[0], "args": [plain(v) for v in cells.values()]}


def plain(value):
    """Makes a value JSON: functions by name, the value that stands for none."""
    from neutron_lib import constants
    if value is constants.ATTR_NOT_SPECIFIED:
        return "ATTR_NOT_SPECIFIED"
    if callable(value):
        return converter(value)
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(plain(v) for v in value)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    return str(value)


def keys(data):
    """Gives the order of a dictionary's keys, in which its access rules are named."""
    return {"keys": list(data)} if isinstance(data, dict) else {}


def attribute(name, spec):
    out = {"name": name}
    for key, value in sorted(spec.items()):
        if key == "validate":
            value = [{"rule": rule, "data": plain(data), **keys(data)} for rule, data in value.items()]
        else:
            value = plain(value)
        out[key] = value
    out["has_default"] = "default" in spec
    return out


def load():
    from neutron.common import config
    from oslo_config import cfg
    config.register_common_config_options()
    cfg.CONF([], project="neutron", default_config_files=[])
    import neutron.extensions
    from neutron.api import extensions
    from neutron_lib.api import attributes
    # Standard attributes are known once models are loaded; what has tags is named
    # in that extension's own name, in the order of loading.
    modules = ["db.models_v2", "db.models.securitygroup", "db.models.l3", "db.qos.models", "services.trunk.models",
               "db.models.network_segment_range"]
    if SINCE_26:  # address groups show their standard attributes
        modules.append("db.models.address_group")
    for module in modules:
        importlib.import_module("neutron." + module)

    class Manager(extensions.ExtensionManager):
        def _check_extension(self, extension):
            return extension.get_alias() in ALIASES and super()._check_extension(extension)

    manager = Manager(os.path.dirname(neutron.extensions.__file__))
    try:
        manager.get_resources()
    except Exception as e:
        print("resources:", e, file=sys.stderr)
    manager.extend_resources("2.0", attributes.RESOURCES)
    return manager.extensions, attributes.RESOURCES


def policies():
    from neutron import policy
    policy.init(suppress_deprecation_warnings=True)
    rules = policy._ENFORCER.rules
    return {name: str(rules[name]) for name in sorted(rules)}


def release():
    return {name: importlib.metadata.version(name) for name in ("neutron", "neutron-lib")}


def main():
    extensions, resources = load()
    missing = set(ALIASES) - set(extensions)
    if missing:
        print("not found:", sorted(missing), file=sys.stderr)
    out = {
        "release": release(),
        "extensions": [{"name": e.get_name(), "alias": e.get_alias(), "description": e.get_description(),
                        "updated": e.get_updated(), "links": []} for e in extensions.values()],
        "resources": {r: [attribute(n, s) for n, s in resources[r].items()] for r in RESOURCES if r in resources},
        "policies": policies(),
    }
    json.dump(out, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
