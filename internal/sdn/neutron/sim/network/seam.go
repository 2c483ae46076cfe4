// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package network

// portKinds are the kinds of resources around ports.
type portKinds struct{}

func (s *Service) registerPorts() {}
