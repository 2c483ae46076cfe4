# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
"""octavia-worker whose virtual machines are nothing but their ports.

Octavia's own noop driver of computes starts no machine, and plugs no port. Octavia's real
network driver asks Nova for two things: to attach a port or a network to a machine, and to
detach a port. Here that is what Nova does to Neutron's ports, so that the real driver works:
the ports of amphorae, their allowed address pairs and security groups are real.
"""

import sys
import types

from octavia.cmd import octavia_worker
from octavia.common import keystone
from octavia.compute.drivers.noop_driver import driver

NOVA = "compute:nova"  # owner of ports that Nova has made


def neutron(method, path, port=None, **query):
    """Neutron's answer. Octavia's own clients for it are others in each release."""
    answer = keystone.KeystoneSession().get_session().request(
        "/v2.0/ports" + path, method, params=query, json=port and {"port": port},
        endpoint_filter={"service_type": "network"})
    return answer.json() if answer.content else None


class PortsComputeDriver(driver.NoopComputeDriver):
    def attach_network_or_port(self, compute_id, network_id=None, ip_address=None, port_id=None):
        if port_id:
            port = neutron("PUT", "/" + port_id, {"device_id": compute_id})["port"]
        else:
            port = neutron("POST", "", {
                "network_id": network_id, "device_id": compute_id, "device_owner": NOVA})["port"]
        return types.SimpleNamespace(
            net_id=port["network_id"], port_id=port["id"], fixed_ips=port["fixed_ips"])

    def detach_port(self, compute_id, port_id):
        for port in neutron("GET", "", id=port_id, device_id=compute_id)["ports"]:
            self._release(port)

    def delete(self, compute_id):
        for port in neutron("GET", "", device_id=compute_id)["ports"]:
            self._release(port)
        super().delete(compute_id)

    def _release(self, port):
        if port["device_owner"] == NOVA:
            neutron("DELETE", "/" + port["id"])
        else:
            neutron("PUT", "/" + port["id"], {"device_id": ""})


# The name by which the worker finds its driver.
driver.NoopComputeDriver = PortsComputeDriver
sys.exit(octavia_worker.main())
