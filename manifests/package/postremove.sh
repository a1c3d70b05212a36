#!/bin/sh
# dpkg calls it with "remove", "purge" or "upgrade", rpm with the number of versions that stay installed.
# Purging removes what the agent kept in /run. Manifests in /etc/kube-ipvs are the operator's and stay.
set -e
if [ "$1" = purge ]; then
	rm -rf /run/kube-ipvs
fi
[ ! -d /run/systemd/system ] || systemctl daemon-reload
