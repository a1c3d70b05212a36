package tune_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

func answer(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

func TestRunChecks(t *testing.T) {
	got := tune.RunChecks(t.Context(), []tune.Check{
		{Name: "fine", Run: answer(nil), Fix: "nothing"},
		{Name: "lacks", Run: answer(tune.Lacking(errors.New("no dummy links"))), Fix: "modprobe dummy"},
		{Name: "wrapped", Run: answer(fmt.Errorf("probe: %w", tune.Lacking(errors.New("no rr")))), Fix: "modprobe ip_vs_rr"},
		{Name: "slow", Run: answer(tune.Warning(errors.New("small table")))},
		{Name: "unknown", Run: answer(errors.New("timeout")), Fix: "try again"},
		{Name: "denied", Run: answer(tune.Lacking(fmt.Errorf("probe: %w", os.ErrPermission))), Fix: "modprobe dummy"},
		{Name: "graded nothing", Run: answer(errors.Join(tune.Lacking(nil), tune.Warning(nil)))},
	})
	want := []tune.Verdict{
		{Name: "fine", State: tune.OK},
		{Name: "lacks", State: tune.Lacks, Detail: "no dummy links", Fix: "modprobe dummy"},
		{Name: "wrapped", State: tune.Lacks, Detail: "probe: no rr", Fix: "modprobe ip_vs_rr"},
		{Name: "slow", State: tune.Warn, Detail: "small table"},
		{Name: "unknown", State: tune.Failed, Detail: "timeout", Fix: "try again"},
		{Name: "denied", State: tune.Lacks, Detail: "probe: permission denied", Fix: "run as root, or with CAP_NET_ADMIN and CAP_NET_RAW"},
		{Name: "graded nothing", State: tune.OK},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

func TestGradeKeepsTheError(t *testing.T) {
	cause := errors.New("cause")
	if err := tune.Lacking(fmt.Errorf("probe: %w", cause)); !errors.Is(err, cause) {
		t.Errorf("%v does not lead to its cause", err)
	}
}

func TestRunChecksStopsAtEndOfContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	got := tune.RunChecks(ctx, []tune.Check{
		{Name: "last", Run: func(context.Context) error { cancel(); return nil }},
		{Name: "unasked", Run: func(context.Context) error { t.Error("asked after the end"); return nil }},
	})
	want := []tune.Verdict{
		{Name: "last", State: tune.OK},
		{Name: "unasked", State: tune.Failed, Detail: "context canceled"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

func TestWriteVerdicts(t *testing.T) {
	var b strings.Builder
	err := tune.WriteVerdicts(&b, []tune.Verdict{
		{Name: "kernel release", State: tune.OK},
		{Name: "dummy link", State: tune.Lacks, Detail: "not supported", Fix: "modprobe dummy"},
		{Name: "sets", State: tune.Failed, Detail: "no answer"},
	})
	if err != nil {
		t.Fatalf("WriteVerdicts: %v", err)
	}
	want := `
ok       kernel release
missing  dummy link      not supported
                         fix: modprobe dummy
failed   sets            no answer
`
	if diff := cmp.Diff(want[1:], b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// healthy puts all files on the node that the checks look at.
func (n node) healthy(t *testing.T) {
	t.Helper()
	n.sysctl(t, key, "1")
	n.sysctl(t, "net.netfilter.nf_conntrack_max", "262144")
	n.sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	n.file(t, "sys/module/ip_vs/parameters/conn_tab_bits", "20")
	n.file(t, "proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB")
}

func TestOwnChecks(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*testing.T, node)
		check  string
		want   tune.State
		detail string
	}{
		"a healthy node": {change: func(*testing.T, node) {}},
		"a kernel without a number": {
			change: func(t *testing.T, n node) { n.file(t, "proc/sys/kernel/osrelease", "linux") },
			check:  "kernel release", want: tune.Warn, detail: `"linux" has no version`},
		"an empty release": {
			change: func(t *testing.T, n node) { n.file(t, "proc/sys/kernel/osrelease", "") },
			check:  "kernel release", want: tune.Failed, detail: "empty"},
		"no sysctls": {
			change: func(t *testing.T, n node) { n.remove(t, "proc/sys/net/ipv4/ip_forward") },
			check:  "sysctls writable", want: tune.Warn, detail: "cannot be set"},
		"no connection tracking": {
			change: func(t *testing.T, n node) { n.remove(t, "proc/sys/net/netfilter/nf_conntrack_max") },
			check:  "connection tracking", want: tune.Lacks, detail: "nf_conntrack is not loaded"},
		"a small table": {
			change: func(t *testing.T, n node) { n.file(t, "sys/module/ip_vs/parameters/conn_tab_bits", "12") },
			check:  "ipvs connection table", want: tune.Warn, detail: "4096 buckets"},
		"no table": {
			change: func(t *testing.T, n node) { n.remove(t, "sys/module/ip_vs/parameters/conn_tab_bits") },
			check:  "ipvs connection table", want: tune.Warn, detail: "not loaded"},
		"a strange table": {
			change: func(t *testing.T, n node) { n.file(t, "sys/module/ip_vs/parameters/conn_tab_bits", "many") },
			check:  "ipvs connection table", want: tune.Failed, detail: "conn_tab_bits"},
		"no IPv6 forwarding": {
			change: func(t *testing.T, n node) { n.sysctl(t, "net.ipv6.conf.all.forwarding", "0") },
			check:  "ipv6 forwarding", want: tune.Warn, detail: "forwarding=0"},
		"no IPv6": {
			change: func(t *testing.T, n node) { n.remove(t, "proc/sys/net/ipv6/conf/all/forwarding") },
			check:  "ipv6 forwarding", want: tune.Lacks, detail: "no IPv6"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.healthy(t)
			tc.change(t, n)
			verdicts := tune.RunChecks(t.Context(), n.tuner(t).Checks(tune.CheckOptions{IPv6: true}))
			for _, v := range verdicts {
				switch {
				case v.Name != tc.check && v.State != tune.OK:
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
	for _, c := range n.tuner(t).Checks(tune.CheckOptions{}) {
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
			n.file(t, "proc/meminfo", meminfo)
		}
		if got := n.tuner(t).SuggestConnTabBits(); got != want {
			t.Errorf("%q: %d bits, want %d", meminfo, got, want)
		}
	}
}

func TestIPVSModule(t *testing.T) {
	for bits, want := range map[int]string{0: "ip_vs", 18: "ip_vs conn_tab_bits=18"} {
		if got := tune.IPVSModule(bits); got != want {
			t.Errorf("IPVSModule(%d) = %q, want %q", bits, got, want)
		}
	}
}

func verdictOf(t *testing.T, verdicts []tune.Verdict, name string) tune.Verdict {
	t.Helper()
	for _, v := range verdicts {
		if v.Name == name {
			return v
		}
	}
	t.Fatalf("no verdict for %q in %+v", name, verdicts)
	return tune.Verdict{}
}
