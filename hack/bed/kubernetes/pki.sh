# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: keys, certificates and kubeconfigs of the cluster. A file gets
# its name when it is complete: one that is there can be used.

pki_up() {
	mkdir -p "$PKI"
	certificate_authority ca
	certificate_authority front-proxy-ca
	[[ -s $PKI/sa.pub ]] || {
		openssl genrsa -out "$PKI/sa.key" 2048 2>/dev/null
		openssl rsa -in "$PKI/sa.key" -pubout -out "$PKI/sa.pub.new" 2>/dev/null
		mv "$PKI/sa.pub.new" "$PKI/sa.pub"
	}
	local dns=DNS:localhost name=kubernetes label
	for label in "" .default .svc .cluster.local; do
		name+=$label
		dns+=,DNS:$name
	done
	certificate ca apiserver /CN=kube-apiserver "IP:127.0.0.1,IP:$API_IP,IP:$KUBERNETES_IP,$dns"
	certificate ca kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
	certificate front-proxy-ca front-proxy /CN=front-proxy
	kubeconfig admin /O=system:masters/CN=admin
	kubeconfig controller-manager /CN=system:kube-controller-manager
	kubeconfig scheduler /CN=system:kube-scheduler
}

new_key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc)

certificate_authority() { # NAME
	[[ -s $PKI/$1.crt ]] && return
	openssl req -x509 "${new_key[@]}" -days 3650 -subj "/CN=kuryr-bed-$1" \
		-addext keyUsage=critical,keyCertSign,digitalSignature \
		-keyout "$PKI/$1.key" -out "$PKI/$1.crt.new" 2>/dev/null
	mv "$PKI/$1.crt.new" "$PKI/$1.crt"
}

# certificate CA NAME SUBJECT [SAN]: for a client, and with SAN also for a server.
certificate() {
	local ca=$PKI/$1 file=$PKI/$2 subject=$3 san=${4:-}
	[[ -s $file.crt ]] && openssl x509 -in "$file.crt" -checkend 86400 >/dev/null && return
	openssl req -new "${new_key[@]}" -keyout "$file.key" -subj "$subject" -out "$file.csr" 2>/dev/null
	openssl x509 -req -in "$file.csr" -days 365 -CA "$ca.crt" -CAkey "$ca.key" -out "$file.crt.new" \
		-extfile <(
			echo "keyUsage=digitalSignature"
			echo "extendedKeyUsage=clientAuth${san:+,serverAuth}"
			[[ -z $san ]] || echo "subjectAltName=$san"
		) 2>/dev/null
	rm "$file.csr"
	mv "$file.crt.new" "$file.crt"
}

# kubeconfig NAME SUBJECT: $PKI/NAME.kubeconfig for that user.
kubeconfig() {
	certificate ca "$1" "$2"
	cat >"$PKI/$1.kubeconfig.new" <<-YAML
		apiVersion: v1
		kind: Config
		current-context: $1
		contexts:
		- {name: $1, context: {cluster: kuryr-bed, user: $1}}
		clusters:
		- name: kuryr-bed
		  cluster: {server: "https://$API_IP:6443", certificate-authority: $PKI/ca.crt}
		users:
		- name: $1
		  user: {client-certificate: $PKI/$1.crt, client-key: $PKI/$1.key}
	YAML
	mv "$PKI/$1.kubeconfig.new" "$PKI/$1.kubeconfig"
}
