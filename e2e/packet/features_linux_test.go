package packet

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// A feature is tried by a shell script in a namespace: what does not work prints why. Words of its name are joined by hyphens.
type feature struct{ name, script string }

// features are what some kernels have and others lack. The kernel loads modules on first use; those of schedulers are loaded before,
// because the kernel must not load each of them (scheduler.Algorithm).
func features() (all []feature) {
	const server = "192.0.2.77:9"
	add := func(name, format string, args ...any) { all = append(all, feature{name, fmt.Sprintf(format, args...)}) }
	for _, name := range scheduler.Names() {
		add("scheduler-"+name, "modprobe -q ip_vs_%[2]s; ipvsadm -A -t %[1]s -s %[2]s", server, name)
	}
	add("SCTP", "ipvsadm -A --sctp-service %s -s rr", server)
	add("GUE-tunnel", "ipvsadm -A -t %s -s rr && ipvsadm -a -t %[1]s -r 192.0.2.78 -i --tun-type gue --tun-port 6080 && ipvsadm -Ln --tun-info | grep -i gue", server)
	for _, name := range []string{"sloppy_tcp", "sloppy_sctp", "conn_reuse_mode", "expire_nodest_conn", "run_estimation"} {
		add(name, "cat /proc/sys/net/ipv4/vs/%s", name)
	}
	add("conn_tab_bits", "cat /sys/module/ip_vs/parameters/conn_tab_bits")
	for _, kind := range []ipset.Type{ipset.HashIP, ipset.HashIPPort, ipset.HashIPPortIP, ipset.HashIPPortNet} {
		add("set-"+string(kind), "ipset create tried %s", kind)
	}
	add("set-bitmap:port", "ipset create tried bitmap:port range 0-65535")
	add("rules-on-sets", "ipset create tried hash:ip && iptables -w -A INPUT -m set --match-set tried src -j ACCEPT")
	add("rules-on-virtual-servers", "iptables -w -A INPUT -m ipvs --ipvs -j ACCEPT")
	add("nftables", "nft add table ip tried")
	add("concatenated-intervals", "nft -f - <<'END'\ntable ip tried { set s { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 . 80-90 }; }; }\nEND")
	add("events-of-nftables", "timeout 1 nft monitor; [ $? = 124 ]")
	add("dummy-link", "ip link add tried type dummy")
	return all
}

// TestKernelFeatures finds out what the running kernel has. A feature that is missing is a skipped test with the
// kernel's reason, except for what kube-ipvs cannot do without.
func TestKernelFeatures(t *testing.T) {
	needIPVS(t)
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	t.Run("kernel-"+unix.ByteSliceToString(name.Release[:]), func(*testing.T) {})
	needed := map[string]bool{"scheduler-rr": true, "dummy-link": true}
	for _, f := range features() {
		t.Run(f.name, func(t *testing.T) {
			out, err := newSpace(t, "tried").try("sh", "-c", "exec 2>&1; "+f.script)
			switch why := strings.Join(strings.Fields(out), " "); {
			case err == nil:
			case needed[f.name]:
				t.Errorf("this kernel cannot carry Services: %s", why)
			default:
				t.Skipf("missing: %s", why)
			}
		})
	}
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		t.Errorf("the kernel has IPVS and no list of it: %v", err)
	}
}
