// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package nested tests pods of a node that is a virtual machine, from end to
// end: a machine with a kernel of its own, whose interface is the parent port of
// a trunk of the real Neutron, plugs subports, and traffic goes between its pods,
// itself, pods elsewhere and the world outside. hack/e2e-nested.sh makes the
// machine and runs these tests on the test bed, outside of the machine and in it.
package nested
