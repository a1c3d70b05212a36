#!/bin/bash
# guest.sh: installs, starts, upgrades, removes and purges the deb with dpkg under a systemd of its own. It runs in a throw-away
# guest (e2e/release.sh) whose files are the machine's: /run/usr, /run/etc and /run/dpkg are the machine's /usr, /etc and
# /var/lib/dpkg, read-only, and everything that is written goes to memory.
#   guest.sh OLD.deb NEW.deb BACKEND VERSION    BACKEND is e2e/backend; VERSION is what the new program says that it is
set -euo pipefail
old=$1 new=$2 backend=$3 version=$4
root=/run/root

say() { echo "package: $*"; }
fail() {
	inside journalctl --no-pager -u kube-ipvs.service -n 40 || true
	[ ! -s /run/load ] || cat /run/load
	say "FAILED: $*"
	exit 1
}

# over LOWER DIRECTORY: the directory shows LOWER, and keeps changes in memory.
over() {
	local own=/run/over/${2//\//_}
	mkdir -p "$own/changes" "$own/work" "$root$2"
	mount -t overlay overlay -o "lowerdir=$1,upperdir=$own/changes,workdir=$own/work" "$root$2"
}

# A root file system with the machine's programs and packages, and none of its units and settings.
mkdir -p $root /run/over
mount -t tmpfs none $root
mount -t tmpfs none /run/over
over /run/usr /usr
over /run/dpkg /var/lib/dpkg
for dir in bin sbin lib lib64; do
	[ ! -e $root/usr/$dir ] || ln -s usr/$dir $root/$dir
done
mkdir -p $root/{dev,proc,sys,run,tmp,root,etc,var/log,var/tmp,var/cache,packages}
for file in passwd group nsswitch.conf alternatives ld.so.conf ld.so.conf.d ld.so.cache os-release debian_version dpkg; do
	[ ! -e /run/etc/$file ] || cp -a /run/etc/$file $root/etc/
done
: >$root/etc/machine-id
cp "$old" $root/packages/old.deb
cp "$new" $root/packages/new.deb
# The guest's tmpfs has no extended attributes, and without them an overlay cannot rename a new directory, as dpkg does.
chroot $root dpkg-deb --fsys-tarfile packages/new.deb | tar -t | grep '^\./usr/.*/$' | (cd $root && xargs mkdir -p)
mkdir -p $root/proc
for kind in dev sys; do
	mount --rbind /$kind $root/$kind
done
umount $root/sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
mount -t tmpfs none $root/run
mkdir -p $root/etc/systemd/system

# systemd is the first process of a namespace of its own.
unshare --pid --mount --ipc --fork --kill-child --mount-proc=$root/proc chroot $root /usr/bin/env -i container=guest PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	/lib/systemd/systemd --unit=basic.target --log-target=journal </dev/null >/run/systemd.log 2>&1 &
for _ in $(seq 600); do
	pid=$(pgrep -x -f '/lib/systemd/systemd --unit=basic.target.*' | tail -n 1) && break
	sleep 0.1
done

inside() { nsenter --target "$pid" --pid --mount --ipc chroot $root "$@"; }
state() { inside systemctl show -P "$1" kube-ipvs.service; }

# until WORDS...: the command succeeds within a minute.
until_true() {
	for _ in $(seq 600); do
		! "$@" >/dev/null 2>&1 || return 0
		sleep 0.1
	done
	cat /run/systemd.log || true
	fail "this did not come true within a minute: $*"
}
until_true inside systemctl is-active basic.target
say "systemd $(inside systemctl --version | head -n 1 | cut -d' ' -f2) runs"

# answers fails unless each of ten requests to the Service is answered.
answers() { "$backend" ask -n 10 -timeout 30s 10.96.0.10:80 >/dev/null; }
unit() { inside systemctl "$@" kube-ipvs.service; }
running() { [ "$(state ActiveState)" = active ]; }
stopped() { [ "$(state ActiveState)" != active ]; }
package() { inside dpkg "$@" </dev/null 2>&1 | sed 's/^/    /'; }

"$backend" serve -name pod -http 10.0.2.15:8080 >/dev/null &

say 'dpkg -i: the old version'
package -i /packages/old.deb
! unit is-enabled --quiet && stopped || fail 'the first installation starts the agent'
inside systemd-analyze verify --man=no kube-ipvs.service || fail 'systemd finds faults in the unit'
inside kube-ipvs version | sed 's/^/    /'
[ -s $root/usr/share/man/man8/kube-ipvs-explain.8.gz ] || fail 'no manual pages'

say 'systemctl enable --now: it returns when Services answer'
cat >$root/etc/kube-ipvs/manifests/web.yaml <<-'YAML'
	apiVersion: v1
	kind: Service
	metadata: {name: web, namespace: default}
	spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80, targetPort: 8080}]}
	---
	apiVersion: discovery.k8s.io/v1
	kind: EndpointSlice
	metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
	addressType: IPv4
	ports: [{name: http, port: 8080}]
	endpoints: [{addresses: [10.0.2.15]}]
YAML
echo 'KUBE_IPVS_ARGS=--cluster-cidr=10.244.0.0/16' >$root/etc/kube-ipvs/env
unit enable --now || fail 'the unit does not start'
answers || fail 'systemd says that the agent is ready, and the Service does not answer'
[ "$(state Type) $(state NotifyAccess)" = 'notify main' ] || fail 'the unit is not of type notify'
inside kube-ipvs show services | sed 's/^/    /'

say 'the watchdog: a process that hangs is replaced, and traffic goes on'
mkdir -p $root/run/systemd/system/kube-ipvs.service.d
printf '[Service]\nWatchdogSec=6\n' >$root/run/systemd/system/kube-ipvs.service.d/test.conf
inside systemctl daemon-reload
unit restart
"$backend" ask -stream -rate 20 -timeout 30s 10.96.0.10:80 >/run/load &
load=$!
unit kill --kill-whom=main --signal=STOP
replaced() { [ "$(state NRestarts)" -ge 1 ] && running; }
until_true replaced
answers || fail 'after the watchdog has acted the Service does not answer'

say 'dpkg -i: the new version, under load'
before=$(state MainPID)
package -i /packages/new.deb
running && [ "$(state MainPID)" != "$before" ] || fail 'the upgrade does not restart the agent'
told=$(inside kube-ipvs version)
sed 's/^/    /' <<<"$told"
[[ $told == "kube-ipvs $version "* ]] || fail "the new version is not $version"
grep -q cluster-cidr $root/etc/kube-ipvs/env || fail 'the upgrade replaces /etc/kube-ipvs/env'
answers || fail 'after the upgrade the Service does not answer'
kill -TERM $load
wait $load || fail 'requests failed while the agent hung or was replaced'
sed 's/^/    /' /run/load

say 'dpkg -r: the agent stops, and the kernel is clean'
package -r kube-ipvs
stopped || fail 'the agent runs after the removal'
[ "$(ipvsadm -Ln | wc -l)" = 3 ] || { ipvsadm -Ln; fail 'virtual servers are left'; }
! ip link show kube-ipvs0 2>/dev/null || fail 'kube-ipvs0 is left'
! iptables-save | grep KUBE- || fail 'rules are left'
[ -e $root/etc/kube-ipvs/env ] || fail 'removal takes settings away that only purging may'

say 'dpkg -P: settings go, manifests stay'
package -P kube-ipvs
for path in /usr/bin/kube-ipvs /etc/kube-ipvs/env /run/kube-ipvs /usr/lib/systemd/system/kube-ipvs.service; do
	[ ! -e $root$path ] || fail "$path is left"
done
[ -e $root/etc/kube-ipvs/manifests/web.yaml ] || fail "the operator's manifests are gone"
say 'installed, started, watched, upgraded, removed and purged under systemd'
