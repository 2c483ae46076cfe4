#!/usr/bin/python3
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the installed Octavia's API again what a file of exchanges says it answered.

    /usr/bin/python3 hack/octavia-answers.py openstacksim/internal/octavia/testdata/ovn.txt

prints the file anew. The API runs in this process, on sqlite, with the drivers of
the providers behind it, whose workers and OVN are stood in for by mocks: that is
enough for statuses, words and the order of checks, and gives the answers of the
amphora provider without a single amphora. Octavia's own functional tests' base is
used, so python3-octavia with its tests has to be installed.
"""

import json
import logging
import re
import sys
import types
import unittest
import warnings
from unittest import mock

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)


class Case(unittest.TestCase):
    """What Octavia's tests want of oslotest, which need not be installed."""

    def useFixture(self, fixture):
        fixture.setUp()
        return fixture

    def runTest(self):
        pass


def stand_in(name, **attributes):
    module = sys.modules.setdefault(name, types.ModuleType(name))
    for key, value in attributes.items():
        setattr(module, key, value)
    return module


Fixture = type("Fixture", (), {"setUp": lambda self: None, "addCleanup": lambda self, *a, **k: None})
stand_in("fixtures", Fixture=Fixture)
stand_in("oslotest", base=stand_in("oslotest.base", BaseTestCase=Case))

import netaddr  # noqa: E402
from octavia.api.drivers import driver_factory  # noqa: E402
from octavia.api.drivers.amphora_driver.v2 import driver as amphora  # noqa: E402
from octavia.common import data_models, exceptions  # noqa: E402
from octavia.db import api as db, models, repositories  # noqa: E402
from octavia.network import data_models as network  # noqa: E402
from octavia.network.drivers.noop_driver import driver as noop  # noqa: E402
from octavia.tests.functional.api.v2 import base  # noqa: E402
from oslo_config import cfg  # noqa: E402
from ovn_octavia_provider import driver as ovn  # noqa: E402
from wsme import types as wtypes  # noqa: E402

SUBNET, NET = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
PORT, VIP, CIDR = "33333333-3333-4333-8333-333333333333", "10.0.0.5", "10.0.0.0/16"
KINDS = (models.LoadBalancer, models.Listener, models.Pool, models.Member, models.HealthMonitor, models.L7Policy, models.L7Rule)


def make_driver(name):
    if isinstance(name, wtypes.UnsetType):
        name = "ovn"
    name = name or "amphora"
    if name not in cfg.CONF.api_settings.enabled_provider_drivers:
        raise exceptions.ProviderNotEnabled(prov=name)
    if name == "amphora":
        d = amphora.AmphoraProviderDriver.__new__(amphora.AmphoraProviderDriver)
        d.client, d.fernet, d.repositories = mock.Mock(), mock.Mock(), repositories.Repositories()
    else:
        d = ovn.OvnProviderDriver.__new__(ovn.OvnProviderDriver)
        d._ovn_helper = h = mock.Mock()
        h._get_subnet_from_pool.return_value = (SUBNET, CIDR)
        h._check_ip_in_subnet.side_effect = lambda ip, s: netaddr.IPAddress(ip) in netaddr.IPNetwork(s)
        h._find_ovn_lb_by_pool_id.return_value = ("pool_x", mock.Mock(external_ids={"neutron:vip": VIP, "pool_x": ""}))
        h.create_vip_port.side_effect = lambda project, lb, vip: {
            "port": {"id": PORT, "fixed_ips": [{"ip_address": vip.get("vip_address", VIP)}]}}
    d.name = name
    return d


def start():
    t = type("API", (base.BaseAPITest,), {"runTest": lambda self: None})()
    t.setUp()
    driver_factory.get_driver = make_driver
    t.conf.config(group="api_settings", auth_strategy="testing", default_provider_driver="ovn", api_base_uri="http://lb.test",
                  enabled_provider_drivers={"ovn": "Octavia OVN driver", "amphora": "The Octavia Amphora driver."})
    known = noop._NOOP_MANAGER_VARS
    known["networks"][NET] = network.Network(id=NET, subnets=[SUBNET], port_security_enabled=True)
    known["subnets"][SUBNET] = network.Subnet(id=SUBNET, network_id=NET, cidr=CIDR, ip_version=4)
    noop.NoopNetworkDriver.get_subnet = lambda self, i, context=None: known["subnets"][i]
    noop.NoopNetworkDriver.get_network = lambda self, i, context=None: known["networks"][i]
    noop.NoopNetworkDriver.allocate_vip = lambda self, lb: (data_models.Vip(
        ip_address=VIP, subnet_id=SUBNET, network_id=NET, port_id=PORT, load_balancer_id=lb.id), [])
    return t


def settle(t):
    """Ends all changes, as the providers' workers would."""
    t.session.expire_all()
    session = db.get_session()
    for m in KINDS:
        session.query(m).filter(m.provisioning_status == "PENDING_DELETE").update({"provisioning_status": "DELETED"})
        session.query(m).filter(m.provisioning_status != "DELETED").update({"provisioning_status": "ACTIVE"})


def ask(t, line, known):
    line = re.sub(r"\$([a-z0-9]+)", lambda m: known.get(m[1], m[0]), line)
    name, method, path, header, body = re.match(r"(?:(\w+)=)?([A-Z]+) (\S+)(?: @(\S+))?(?: (.*))?$", line).groups()
    headers = {"X-Project-Id": "p1", "X-User-Id": "u1", "X-Roles": "load-balancer_member,member",
               "Accept": "application/json", "Content-Type": "application/json"}
    if header:
        headers.update([header.split("=", 1)])
    url = path[1:] if path.startswith("=") else "/v2/lbaas" + path
    r = t.app.request(url, method=method, headers=headers, body=(body or "").encode(), expect_errors=True)
    text = r.body.decode().strip()
    for key, value in sorted(known.items(), key=lambda kv: -len(kv[1])):
        text = text.replace(value, "$" + key)
    if name:
        known[name] = list(json.loads(r.body).values())[0]["id"]
    return f"{r.status_int} {text}"


blocks = open(sys.argv[1]).read().strip().split("\n\n")
api, variables = start(), {"subnet": SUBNET, "net": NET}
out = [blocks[0]]
for block in blocks[1:]:
    settle(api)
    request = block.split("\n")[0]
    out.append(request + "\n" + ask(api, request, variables))
print("\n\n".join(out))
