#!/bin/sh
# dpkg calls it with "remove" or "upgrade", rpm with the number of versions that stay installed.
# Removal stops the agent and, if it was running, removes from the kernel what it wrote: afterwards no
# program on this machine could. An agent that was stopped before leaves its rules alone, because
# another proxy may serve the node by now.
set -e
case $1 in
remove | 0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
running=no
systemctl is-active --quiet kube-ipvs.service && running=yes
systemctl disable --now --quiet kube-ipvs.service
if [ $running = yes ]; then
	/usr/bin/kube-ipvs cleanup || echo 'kube-ipvs: the kernel still carries some of its rules, see above' >&2
else
	echo 'kube-ipvs: the agent was not running, so the kernel is left as it is'
fi
