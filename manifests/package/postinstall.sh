#!/bin/sh
# dpkg calls it with "configure" and the version before, rpm with the number of versions installed.
# An upgrade restarts the agent if it runs; the kernel carries traffic meanwhile. The first installation
# starts nothing: on a node that another proxy serves, an agent without Services would replace its rules.
set -e
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl try-restart kube-ipvs.service
if ! systemctl is-enabled --quiet kube-ipvs.service; then
	echo 'kube-ipvs: put Services into /etc/kube-ipvs/manifests, then: systemctl enable --now kube-ipvs'
fi
