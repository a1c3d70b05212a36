package host_test

import (
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck/host"
)

// healthy puts all files on the node that the checks look at.
func (n node) healthy(t *testing.T) {
	t.Helper()
	n.Sysctl(t, key, "1")
	n.Sysctl(t, "net.netfilter.nf_conntrack_max", "262144")
	n.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	n.File(t, "sys/module/ip_vs/parameters/conn_tab_bits", "20")
	n.File(t, "proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB")
}

func TestOwnChecks(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*testing.T, node)
		check  string
		want   diagnosis.State
		detail string
	}{
		"a healthy node": {change: func(*testing.T, node) {}},
		"a kernel without a number": {
			change: func(t *testing.T, n node) { n.File(t, "proc/sys/kernel/osrelease", "linux") },
			check:  "kernel release", want: diagnosis.Warn, detail: `"linux" has no version`},
		"an empty release": {
			change: func(t *testing.T, n node) { n.File(t, "proc/sys/kernel/osrelease", "") },
			check:  "kernel release", want: diagnosis.Failed, detail: "empty"},
		"no sysctls": {
			change: func(t *testing.T, n node) { n.Remove(t, "proc/sys/net/ipv4/ip_forward") },
			check:  "sysctls writable", want: diagnosis.Warn, detail: "cannot be set"},
		"no connection tracking": {
			change: func(t *testing.T, n node) { n.Remove(t, "proc/sys/net/netfilter/nf_conntrack_max") },
			check:  "connection tracking", want: diagnosis.Lacks, detail: "nf_conntrack is not loaded"},
		"a small table": {
			change: func(t *testing.T, n node) { n.File(t, "sys/module/ip_vs/parameters/conn_tab_bits", "12") },
			check:  "ipvs connection table", want: diagnosis.Warn, detail: "4096 buckets"},
		"no table": {
			change: func(t *testing.T, n node) { n.Remove(t, "sys/module/ip_vs/parameters/conn_tab_bits") },
			check:  "ipvs connection table", want: diagnosis.Warn, detail: "not loaded"},
		"a strange table": {
			change: func(t *testing.T, n node) { n.File(t, "sys/module/ip_vs/parameters/conn_tab_bits", "many") },
			check:  "ipvs connection table", want: diagnosis.Failed, detail: "conn_tab_bits"},
		"no IPv6 forwarding": {
			change: func(t *testing.T, n node) { n.Sysctl(t, "net.ipv6.conf.all.forwarding", "0") },
			check:  "ipv6 forwarding", want: diagnosis.Warn, detail: "forwarding=0"},
		"no IPv6": {
			change: func(t *testing.T, n node) { n.Remove(t, "proc/sys/net/ipv6/conf/all/forwarding") },
			check:  "ipv6 forwarding", want: diagnosis.Lacks, detail: "no IPv6"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.healthy(t)
			tc.change(t, n)
			verdicts := diagnosis.Run(t.Context(), n.host(t).Checks(host.CheckOptions{IPv6: true}))
			for _, v := range verdicts {
				switch {
				case v.Name != tc.check && v.State != diagnosis.OK:
					t.Errorf("%+v, want ok", v)
				case v.Name == tc.check && (v.State != tc.want || v.Fix == "" || !strings.Contains(v.Detail, tc.detail)):
					t.Errorf("%+v, want %s, a fix and %q", v, tc.want, tc.detail)
				}
			}
			if tc.check != "" {
				verdictOf(t, verdicts, tc.check)
			}
		})
	}
}

func TestChecksWithoutIPv6(t *testing.T) {
	n := newNode(t)
	for _, c := range n.host(t).Checks(host.CheckOptions{}) {
		if strings.Contains(c.Name, "ipv6") {
			t.Errorf("check %q on a node that serves IPv4 only", c.Name)
		}
	}
}

func TestSuggestConnTabBits(t *testing.T) {
	for meminfo, want := range map[string]int{
		"":                         12,
		"MemTotal: many kB":        12,
		"MemTotal:     8192 kB":    12,
		"MemTotal:   524288 kB":    16,
		"MemTotal:  1048576 kB":    17,
		"MemTotal:  4194304 kB":    19,
		"MemTotal: 16777216 kB":    20,
		"MemTotal: 1073741824 kB":  20,
		"MemFree: 1\nMemTotal: 1G": 12,
	} {
		n := newNode(t)
		if meminfo != "" {
			n.File(t, "proc/meminfo", meminfo)
		}
		if got := host.SuggestConnTabBits(n.Files()); got != want {
			t.Errorf("%q: %d bits, want %d", meminfo, got, want)
		}
	}
}

func verdictOf(t *testing.T, verdicts []diagnosis.Verdict, name string) diagnosis.Verdict {
	t.Helper()
	for _, v := range verdicts {
		if v.Name == name {
			return v
		}
	}
	t.Fatalf("no verdict for %q in %+v", name, verdicts)
	return diagnosis.Verdict{}
}
