#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Deploys Kuryr on the running test bed as a user would: an image, and an
# overlay over config/default that says which cloud, subnet and security group.
# Run again it rolls out what has changed. Without KURYR_POOLS, which is what the
# configuration says under pools, no free ports are kept: tests count ports.
# KURYR_CONTROLLERS says how many replicas the controller has (1: tests stop and read
# the one that works), and KURYR_ACTIVE how many of them work (1; 0: all).
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."

# A shell that had the settings of a dual-stack bed may still have these.
unset POD_SUBNET6 SERVICE_SUBNET6 NODE_SUBNET6
eval "$(hack/bed/bed env)"
overlay=$KURYR_BED/deploy
step() { printf '%(%H:%M:%S)T  %s\n' -1 "$*"; }

step "building Kuryr's image and loading it into the nodes"
make --no-print-directory image
image=registry.invalid/kuryr
# The tag is the archive's sum: the same image restarts nothing, and another one
# does, though nodes never pull.
tag=$(sha256sum bin/kuryr-image.tar | cut -c1-12)
loaded() { hack/bed/bed exec "$1" ctr -n k8s.io images ls -q | grep -qx "$image:$tag"; }
all_loaded() { for node in $KURYR_BED_NODE_NAMES; do loaded "$node" || return 1; done; }
if ! all_loaded; then
	hack/bed/bed load bin/kuryr-image.tar
	for node in $KURYR_BED_NODE_NAMES; do
		hack/bed/bed exec "$node" ctr -n k8s.io images tag --force "$image:dev" "$image:$tag" >/dev/null
	done
fi

step "applying the manifests"
mkdir -p "$overlay"
cp "$OS_CLIENT_CONFIG_FILE" "$overlay/clouds.yaml"
cat >"$overlay/kuryr.yaml" <<YAML
apiVersion: kuryr.openstack.org/v1alpha1
kind: KuryrConfiguration
neutron:
  cloud: kuryr
pods:
  subnetIDs: [$POD_SUBNET${POD_SUBNET6:+, $POD_SUBNET6}]
  securityGroupIDs: [$POD_SG]
pools: ${KURYR_POOLS:-{min: 0, batch: 1, ttl: 0s, cooldown: 0s\}}
orphans:
  interval: 10s
  grace: 15s
controllers: {active: ${KURYR_ACTIVE:-1}}
YAML
if [[ $KURYR_BED_KIND != ovs ]]; then # that bed has no Octavia: pods only
	cat >>"$overlay/kuryr.yaml" <<YAML
services:
  subnetIDs: [$SERVICE_SUBNET${SERVICE_SUBNET6:+, $SERVICE_SUBNET6}]
  nodeSubnetIDs: [$NODE_SUBNET${NODE_SUBNET6:+, $NODE_SUBNET6}]
  externalNetworkID: $EXT_NET
  provider: ovn
YAML
fi
if [[ $KURYR_BED_KIND == sim ]]; then # no SDN moves packets: the node's bridge does
	sed -i 's/^pods:/&\n  vifType: bridge/' "$overlay/kuryr.yaml"
	echo 'node: {ovsdb: "", bridge: kuryr}' >>"$overlay/kuryr.yaml"
fi
if [[ $KURYR_BED_KIND != sim ]]; then
	# No namespace has a network of its own unless it says so.
	free=${KURYR_POOLS:+1} free=${free:-0}
	cat >>"$overlay/kuryr.yaml" <<YAML
networks:
  allowedModes: [namespace, flat]
  subnetPoolIDs: [$NAMESPACE_POOL${NAMESPACE_POOL6:+, $NAMESPACE_POOL6}]
  ranges: [$NAMESPACE_CIDR${NAMESPACE_CIDR6:+, '$NAMESPACE_CIDR6'}]
  routerID: $ROUTER
  given: [{name: given, networkID: $GIVEN_NET, subnetIDs: [$GIVEN_SUBNET${GIVEN_SUBNET6:+, $GIVEN_SUBNET6}]}]
  minFree: $free
projects:
- {projectID: $TENANT_A_PROJECT, routerID: $TENANT_A_ROUTER, subnetPoolIDs: [$TENANT_A_POOL], securityGroupIDs: [$TENANT_A_SG]}
- {projectID: $TENANT_B_PROJECT, routerID: $TENANT_B_ROUTER, subnetPoolIDs: [$TENANT_B_POOL], securityGroupIDs: [$TENANT_B_SG]}
- {projectID: $TENANT_C_PROJECT, securityGroupIDs: [$TENANT_C_SG]}
YAML
fi
cat >"$overlay/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: kuryr-system
resources: [$(realpath --relative-to="$overlay" config/default)]
# Without the suffix of a sum, so that a changed configuration is taken up by
# the controller that runs.
generatorOptions: {disableNameSuffixHash: true}
configMapGenerator:
- {name: kuryr-config, behavior: replace, files: [kuryr.yaml]}
# There is no kube-proxy on the bed: the API server's own address.
- {name: kuryr-api-server, literals: ["KUBERNETES_SERVICE_HOST=${KUBERNETES_API%:*}", "KUBERNETES_SERVICE_PORT=${KUBERNETES_API#*:}"]}
secretGenerator:
- {name: kuryr-cloud, files: [clouds.yaml]}
replicas: [{name: kuryr-controller, count: ${KURYR_CONTROLLERS:-1}}]
images:
- {name: $image, newTag: "$tag"}
YAML
before=$(kubectl -n kuryr-system get configmap kuryr-config -o jsonpath='{.data.kuryr\.yaml}' 2>/dev/null || true)
kubectl apply --server-side --force-conflicts -k "$overlay" >"$overlay/applied" || {
	cat "$overlay/applied" >&2
	exit 1
}
if [[ -n $before && $before != "$(<"$overlay/kuryr.yaml")" ]]; then
	# A controller that runs reads it by itself, within a minute and a half: that is long here.
	kubectl -n kuryr-system rollout restart deployment/kuryr-controller >/dev/null
fi
step "waiting for Kuryr and the nodes to be ready"
for workload in deployment/kuryr-controller daemonset/kuryr-daemon; do
	kubectl -n kuryr-system rollout status "$workload" --timeout=120s || {
		kubectl -n kuryr-system describe pods >&2
		kubectl -n kuryr-system logs "$workload" --tail=50 >&2 || true
		exit 1
	}
done
kubectl wait --for=condition=Ready node --all --timeout=60s
if [[ $KURYR_BED_KIND == real ]]; then
	step "cluster DNS, which is a Service and reaches the API server by another"
	hack/bed/bed dns
fi
