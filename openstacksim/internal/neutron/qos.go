// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

// noPolicy refuses a QoS policy. The simulator has none, so none is found (message of neutron_lib
// 3.1.0: exceptions/qos.py).
func noPolicy(in values) *fault {
	id := in.text("qos_policy_id")
	if id == "" {
		return nil
	}
	return refuse(404, "QosPolicyNotFound", "QoS policy %s could not be found.", id)
}
