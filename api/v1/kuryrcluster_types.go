// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KuryrCluster holds what Kuryr reports on the cluster as a whole. The controller creates the only
// one, which is named ClusterName.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=kc
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Serving",type=string,JSONPath=`.status.conditions[?(@.type=="Serving")].status`
// +kubebuilder:printcolumn:name="Errors",type=integer,JSONPath=`.status.errors`
// +kubebuilder:printcolumn:name="Warnings",type=integer,JSONPath=`.status.warnings`
// +kubebuilder:printcolumn:name="Unknown",type=integer,JSONPath=`.status.unknown`
// +kubebuilder:printcolumn:name="Checked",type=date,JSONPath=`.status.lastChecked`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type KuryrCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Result of the preflight checks. The controller's preflight loop writes it.
	// +optional
	Status KuryrClusterStatus `json:"status,omitzero"`
}

// KuryrClusterList is a list of KuryrClusters.
//
// +kubebuilder:object:root=true
type KuryrClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KuryrCluster `json:"items"`
}

// ClusterName is the name of the only KuryrCluster.
const ClusterName = "default"

// Bounds of a KuryrCluster's findings. The controller cuts what is longer.
const (
	MaxFindings      = 50
	MaxFindingObject = 200
	MaxFindingText   = 700
	MaxRemedies      = 10
	MaxRemedy        = 400
)

// KuryrClusterStatus is the result of the last preflight checks that reached the cloud.
type KuryrClusterStatus struct {
	// When the checks were last made.
	// +optional
	LastChecked *metav1.Time `json:"lastChecked,omitempty"`
	// Number of findings with which pods or Services do not work.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Errors int32 `json:"errors"`
	// Number of findings that will harm later, or part of what Kuryr serves.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Warnings int32 `json:"warnings"`
	// Number of checks that could not be made.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unknown int32 `json:"unknown"`
	// What is wrong: errors first, then warnings, then checks that could not be made. The first 50
	// are listed, the numbers count all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Findings []KuryrClusterFinding `json:"findings,omitempty"`
	// Ready: there is no finding of severity Error. Checked: the last checks reached the cloud;
	// otherwise the findings are those of the checks before. Serving: pods, Services and networks are
	// served; False while a first start waits for what preflight finds missing.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// KuryrClusterFinding is one thing that is wrong.
type KuryrClusterFinding struct {
	// Name of the finding, the same in each version.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Error: pods or Services do not work. Warning: it will harm later, or a part. Unknown: the
	// check could not be made.
	// +kubebuilder:validation:Enum=Error;Warning;Unknown
	Severity string `json:"severity"`
	// What it is about.
	// +optional
	// +kubebuilder:validation:MaxLength=200
	Object string `json:"object,omitempty"`
	// What is wrong, and what follows from it.
	// +optional
	// +kubebuilder:validation:MaxLength=700
	Message string `json:"message,omitempty"`
	// Commands that mend it, in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=400
	Remedy []string `json:"remedy,omitempty"`
}

// String returns the finding in a line, without its severity and remedy.
func (f *KuryrClusterFinding) String() string {
	if f.Object == "" {
		return f.Name + ": " + f.Message
	}
	return f.Name + ", " + f.Object + ": " + f.Message
}
