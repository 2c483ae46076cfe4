// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package nested tests pods of a node that is a virtual machine, from end to
// end: a machine with a kernel of its own, whose interface is the parent port of
// a trunk of the real Neutron, is a node of the bed's Kubernetes. The controller
// that is deployed there makes ports for its pods, the daemon in the machine plugs
// them, and traffic goes between its pods, itself, a pod elsewhere and the world
// outside. hack/e2e-nested.sh runs these tests and makes the machine; what that
// does is machine.sh.
package nested
