# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: the cluster's DNS. It wants what is under test: a pod network,
# and Services, by one of which it reaches the API server while it is another.

verb_dns() {
	dns_manifest | kubectl apply --server-side -f - >/dev/null
	kubectl -n kube-system rollout status deployment/coredns --timeout=120s >/dev/null || {
		kubectl -n kube-system describe pods --selector=k8s-app=kube-dns >&2
		kubectl -n kube-system logs deployment/coredns --tail=30 >&2 || true
		die "no cluster DNS: do pods have a network, and does $KUBERNETES_IP answer them?"
	}
	say "cluster DNS is up at $DNS_IP $DNS_IP6"
}

# It forwards nothing, as there is no way out: a name that is not the cluster's is
# refused at once.
dns_manifest() {
	cat <<-YAML
		apiVersion: v1
		kind: ServiceAccount
		metadata: {name: coredns, namespace: kube-system}
		---
		apiVersion: rbac.authorization.k8s.io/v1
		kind: ClusterRole
		metadata: {name: "system:coredns"}
		rules:
		- {apiGroups: [""], resources: [services, pods, namespaces], verbs: [list, watch]}
		- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
		---
		apiVersion: rbac.authorization.k8s.io/v1
		kind: ClusterRoleBinding
		metadata: {name: "system:coredns"}
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}
		subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
		---
		apiVersion: v1
		kind: ConfigMap
		metadata: {name: coredns, namespace: kube-system}
		data:
		  Corefile: |
		    .:53 {
		      errors
		      health
		      ready
		      kubernetes cluster.local in-addr.arpa ip6.arpa {
		        pods insecure
		        ttl 5
		      }
		      cache 5
		    }
		---
		apiVersion: apps/v1
		kind: Deployment
		metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
		spec:
		  selector: {matchLabels: {k8s-app: kube-dns}}
		  template:
		    metadata: {labels: {k8s-app: kube-dns}}
		    spec:
		      serviceAccountName: coredns
		      priorityClassName: system-cluster-critical
		      dnsPolicy: Default
		      containers:
		      - name: coredns
		        image: $COREDNS_IMAGE
		        args: [-conf, /etc/coredns/Corefile]
		        ports:
		        - {name: dns, containerPort: 53, protocol: UDP}
		        - {name: dns-tcp, containerPort: 53, protocol: TCP}
		        readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1}
		        livenessProbe: {httpGet: {path: /health, port: 8080}, initialDelaySeconds: 60}
		        volumeMounts: [{name: config, mountPath: /etc/coredns, readOnly: true}]
		      volumes: [{name: config, configMap: {name: coredns}}]
		---
		apiVersion: v1
		kind: Service
		metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
		spec:
		  clusterIP: $DNS_IP
		  clusterIPs: $(jq -nc '$ARGS.positional' --args "$DNS_IP" $DNS_IP6)
		  ipFamilyPolicy: $([[ -n $DNS_IP6 ]] && echo RequireDualStack || echo SingleStack)
		  selector: {k8s-app: kube-dns}
		  ports:
		  - {name: dns, port: 53, protocol: UDP}
		  - {name: dns-tcp, port: 53, protocol: TCP}
	YAML
}
