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
from octavia.common import clients
from octavia.compute.drivers.noop_driver import driver
from oslo_config import cfg

NOVA = "compute:nova"  # owner of ports that Nova has made


class PortsComputeDriver(driver.NoopComputeDriver):
    @property
    def neutron(self):
        conf = cfg.CONF.neutron
        return clients.NeutronAuth.get_neutron_client(
            endpoint=conf.endpoint, region=conf.region_name, endpoint_type=conf.endpoint_type,
            service_name=conf.service_name, insecure=conf.insecure, ca_cert=conf.ca_certificates_file)

    def attach_network_or_port(self, compute_id, network_id=None, ip_address=None, port_id=None):
        if port_id:
            port = self.neutron.update_port(port_id, {"port": {"device_id": compute_id}})["port"]
        else:
            port = self.neutron.create_port({"port": {
                "network_id": network_id, "device_id": compute_id, "device_owner": NOVA}})["port"]
        return types.SimpleNamespace(
            net_id=port["network_id"], port_id=port["id"], fixed_ips=port["fixed_ips"])

    def detach_port(self, compute_id, port_id):
        for port in self.neutron.list_ports(id=port_id, device_id=compute_id)["ports"]:
            self._release(port)

    def delete(self, compute_id):
        for port in self.neutron.list_ports(device_id=compute_id)["ports"]:
            self._release(port)
        super().delete(compute_id)

    def _release(self, port):
        if port["device_owner"] == NOVA:
            self.neutron.delete_port(port["id"])
        else:
            self.neutron.update_port(port["id"], {"port": {"device_id": ""}})


# The name by which the worker finds its driver.
driver.NoopComputeDriver = PortsComputeDriver
sys.exit(octavia_worker.main())
