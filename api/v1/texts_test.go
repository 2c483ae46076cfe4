// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"fmt"
	"strings"
)

// names returns n different words, each with tail.
func names(n int, tail string) []string {
	var s []string
	for i := range n {
		s = append(s, fmt.Sprintf("n%d%s", i, tail))
	}
	return s
}

// list is a YAML list of n different words.
func list(n int) string { return "[" + strings.Join(names(n, ""), ", ") + "]" }

// ips is the inside of a YAML list of n different addresses.
func ips(n int) string {
	var s []string
	for i := range n {
		s = append(s, fmt.Sprintf("{ip: 10.0.0.%d, prefixLength: 24}", i+1))
	}
	return strings.Join(s, ", ")
}

// vips is a patch of a load balancer with these VIPs.
func vips(ips ...string) string {
	var s []string
	for _, ip := range ips {
		s = append(s, fmt.Sprintf("{ip: %q, subnetID: services}", ip))
	}
	return "spec: {vips: [" + strings.Join(s, ", ") + "]}"
}

// listeners is a patch of a load balancer with these listeners.
func listeners(l string) string { return "spec: {listeners: [" + l + "]}" }

// members is a patch of a load balancer with one listener with these members.
func members(m string) string {
	return listeners("{protocol: TCP, port: 80, members: [" + m + "]}")
}

// monitor is a patch of a load balancer with one listener with this monitor.
func monitor(m string) string { return listeners("{protocol: TCP, port: 80, monitor: " + m + "}") }

func manyListeners(n int) string {
	return listeners(many(n, func(i int) string { return fmt.Sprintf("{protocol: TCP, port: %d}", i+1) }))
}

func manyMembers(n int) string {
	return many(n, func(i int) string { return fmt.Sprintf("{ip: 10.1.%d.%d, port: 80}", i/250, i%250+1) })
}

func ranges(n int) string {
	return "[" + many(n, func(i int) string { return fmt.Sprintf("10.%d.%d.0/24", i/250, i%250) }) + "]"
}

func many(n int, one func(int) string) string {
	var s []string
	for i := range n {
		s = append(s, one(i))
	}
	return strings.Join(s, ", ")
}
