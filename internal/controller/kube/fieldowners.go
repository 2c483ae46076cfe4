// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Field owners, as the client takes them: see package v1.
const (
	OwnerPool       = client.FieldOwner(v1.FieldOwnerPool)
	OwnerPort       = client.FieldOwner(v1.FieldOwnerPort)
	OwnerAnnotation = client.FieldOwner(v1.FieldOwnerAnnotation)
	OwnerService    = client.FieldOwner(v1.FieldOwnerService)
	OwnerBalancer   = client.FieldOwner(v1.FieldOwnerLoadBalancer)
)
