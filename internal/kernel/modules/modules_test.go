package modules_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/modules"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

// withModprobe gives the node a modprobe that logs its arguments, loads what is in
// /lib/modules and complains about the rest, as the real one does with -a.
func (n node) withModprobe(t *testing.T, available ...string) {
	t.Helper()
	for _, m := range available {
		n.File(t, "available/"+m, "")
	}
	script := `#!/bin/sh
root=` + n.Root + `
echo "$*" >> "$root/modprobe.log"
[ "$1" = -a ] && shift
status=0
for m in "$@"; do
	case $m in *=*) continue;; esac
	if [ -e "$root/available/$m" ]; then
		mkdir -p "$root/sys/module/$(echo "$m" | tr - _)"
		[ "$m" != ip_vs_lblc ] || { mkdir -p "$root/proc/sys/net/ipv4/vs"; echo 86400 >"$root/proc/sys/net/ipv4/vs/lblc_expiration"; }
	else echo "modprobe: FATAL: Module $m not found in directory /lib/modules/6.1.0-18-amd64" >&2; status=1; fi
done
exit $status
`
	nodefs.WriteFile(t, n.Path("sbin/modprobe"), script, 0o755)
}

func (n node) wantModprobes(t *testing.T, want ...string) {
	t.Helper()
	b, err := os.ReadFile(n.Path("modprobe.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	got := strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' })
	if len(got)+len(want) == 0 {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs of modprobe (-want +got):\n%s", diff)
	}
}

func states(results []modules.Result) string {
	var all []string
	for _, r := range results {
		all = append(all, r.Name+": "+r.State.String())
	}
	return strings.Join(all, ", ")
}

func TestLoadModules(t *testing.T) {
	const builtIn = "lib/modules/6.1.0-18-amd64/modules.builtin"
	for name, tc := range map[string]struct {
		prepare func(*testing.T, node)
		load    []string
		want    string
		runs    []string
	}{
		"nothing to do": {
			prepare: func(t *testing.T, n node) {
				n.File(t, "sys/module/ip_vs/refcnt", "0")
				n.File(t, builtIn, "kernel/net/netfilter/nf-conntrack.ko\nkernel/drivers/net/dummy.ko")
			},
			load: []string{"ip_vs", "nf_conntrack", "dummy"},
			want: "ip_vs: loaded, nf_conntrack: built in, dummy: built in",
		},
		"all in one run": {
			prepare: func(t *testing.T, n node) { n.withModprobe(t, "ip_vs", "ip_vs_rr", "ip-vs-dashed") },
			load:    []string{"ip_vs", "ip_vs_rr", "ip-vs-dashed"},
			want:    "ip_vs: inserted, ip_vs_rr: inserted, ip-vs-dashed: inserted",
			runs:    []string{"-a ip_vs ip_vs_rr ip-vs-dashed"},
		},
		"parameters go first and alone": {
			prepare: func(t *testing.T, n node) { n.withModprobe(t, "ip_vs", "ip_vs_rr") },
			load:    []string{"ip_vs_rr", modules.IPVS(20)},
			want:    "ip_vs_rr: inserted, ip_vs: inserted",
			runs:    []string{"ip_vs conn_tab_bits=20", "-a ip_vs_rr"},
		},
		"parameters of a loaded module come too late": {
			prepare: func(t *testing.T, n node) {
				n.withModprobe(t, "ip_vs")
				n.File(t, "sys/module/ip_vs/refcnt", "0")
			},
			load: []string{modules.IPVS(20)},
			want: "ip_vs: loaded",
		},
		"one of three is missing": {
			prepare: func(t *testing.T, n node) { n.withModprobe(t, "ip_vs", "ip_vs_rr") },
			load:    []string{"ip_vs", "ip_vs_mh", "ip_vs_rr"},
			want:    "ip_vs: inserted, ip_vs_mh: absent, ip_vs_rr: inserted",
			runs:    []string{"-a ip_vs ip_vs_mh ip_vs_rr"},
		},
		"names that are none": {
			prepare: func(t *testing.T, n node) { n.withModprobe(t, "ip_vs") },
			load:    []string{"--remove", "", "ip_vs -r", "ip_vs"},
			want:    "--remove: absent, : absent, ip_vs -r: absent, ip_vs: inserted",
			runs:    []string{"-a ip_vs"},
		},
		"no modprobe": {
			prepare: func(*testing.T, node) {},
			load:    []string{"ip_vs"},
			want:    "ip_vs: absent",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tc.prepare(t, n)
			results := n.loader(t).Load(t.Context(), tc.load...)
			if diff := cmp.Diff(tc.want, states(results)); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
			n.wantModprobes(t, tc.runs...)
			for _, r := range results {
				if (r.State == modules.Absent) != (r.Err != nil) {
					t.Errorf("%s is %s with error %v", r.Name, r.State, r.Err)
				}
			}
		})
	}
}

// TestMissingModulesInTheLog: without a list of modules in sight, as in most
// containers, nothing is known to be wrong; with one, a refusal is.
func TestMissingModulesInTheLog(t *testing.T) {
	const dir = "lib/modules/6.1.0-18-amd64/"
	load := []string{modules.IPVS(20), "dummy", "xt_set"}
	for name, tc := range map[string]struct {
		prepare func(*testing.T, node)
		want    []string
	}{
		"no modules in sight": {
			prepare: func(t *testing.T, n node) { n.withModprobe(t) },
			want:    []string{"info: kernel modules not loaded, they may be built in [ip_vs dummy xt_set]"},
		},
		"nor a modprobe": {
			prepare: func(*testing.T, node) {},
			want:    []string{"info: kernel modules not loaded, they may be built in [ip_vs dummy xt_set]"},
		},
		"those of another kernel": {
			prepare: func(t *testing.T, n node) {
				n.withModprobe(t, "ip_vs")
				n.File(t, "lib/modules/5.10.0/modules.dep", "")
			},
			want: []string{"info: module loaded ip_vs", "info: kernel modules not loaded, they may be built in [dummy xt_set]"},
		},
		"refused": {
			prepare: func(t *testing.T, n node) {
				n.withModprobe(t, "dummy")
				n.File(t, dir+"modules.dep", "")
			},
			want: []string{"info: module loaded dummy", "warn: module not loaded ip_vs", "warn: module not loaded xt_set"},
		},
		"nothing missing": {
			prepare: func(t *testing.T, n node) {
				n.File(t, dir+"modules.builtin", "kernel/ip_vs.ko\nkernel/dummy.ko\nkernel/xt_set.ko")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tc.prepare(t, n)
			loader, logged := n.observed()
			loader.Load(t.Context(), load...)
			var got []string
			for _, e := range logged() {
				line := e.Level.String() + ": " + e.Message
				for _, field := range []string{"module", "modules"} {
					if v, ok := e.ContextMap()[field]; ok {
						line += fmt.Sprint(" ", v)
					}
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadModulesBlamesTheMissingOne(t *testing.T) {
	n := newNode(t)
	n.withModprobe(t, "ip_vs")
	results := n.loader(t).Load(t.Context(), "ip_vs", "ip_vs_mh", "ip_vs_m")
	want := "load module ip_vs_mh: modprobe: FATAL: Module ip_vs_mh not found in directory " +
		"/lib/modules/6.1.0-18-amd64: exit status 1"
	if got := results[1].Err.Error(); got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	if got := results[2].Err.Error(); strings.Contains(got, "ip_vs_mh") {
		t.Errorf("error %q blames a module of a longer name", got)
	}
}

// A module that adds a sysctl is loaded unless the kernel has the sysctl. It is built in then, or was loaded before.
func TestEnsure(t *testing.T) {
	const sysctl = "net.ipv4.vs.lblc_expiration"
	for name, tc := range map[string]struct {
		has       bool
		available []string
		runs      []string
		fails     string
	}{
		"there":       {has: true},
		"loaded":      {available: []string{"ip_vs_lblc"}, runs: []string{"ip_vs_lblc"}},
		"not found":   {runs: []string{"ip_vs_lblc"}, fails: "load module ip_vs_lblc: modprobe: FATAL: Module ip_vs_lblc not found"},
		"not the one": {available: []string{"ip_vs_lblcr"}, runs: []string{"ip_vs_lblc"}, fails: "load module ip_vs_lblc: "},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.withModprobe(t, tc.available...)
			if tc.has {
				n.File(t, "proc/sys/net/ipv4/vs/lblc_expiration", "86400")
			}
			err := n.loader(t).Ensure(t.Context(), "ip_vs_lblc", sysctl)
			if (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("error %v, want %q", err, tc.fails)
			}
			n.wantModprobes(t, tc.runs...)
		})
	}
}

func TestLoadModulesEndsAtDeadline(t *testing.T) {
	n := newNode(t)
	nodefs.WriteFile(t, n.Path("sbin/modprobe"), "#!/bin/sh\nexec sleep 600\n", 0o755)
	loader := modules.New(zaptest.NewLogger(t), modules.Options{
		Files: n.Files(), Modprobe: n.Path("sbin/modprobe"), Timeout: 20 * time.Millisecond})
	results := loader.Load(t.Context(), "ip_vs")
	if !errors.Is(results[0].Err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the deadline", results[0].Err)
	}
}

func TestModuleFix(t *testing.T) {
	const dir = "lib/modules/6.1.0-18-amd64/"
	for name, tc := range map[string]struct {
		prepare func(*testing.T, node)
		want    string
	}{
		"no modules in sight": {
			prepare: func(*testing.T, node) {},
			want: "ip_vs: this kernel has it neither built in nor in /lib/modules/6.1.0-18-amd64; " +
				"in a container mount the host's /lib/modules; else boot a kernel that has it (a distribution's stock one)",
		},
		"only to be loaded": {
			prepare: func(t *testing.T, n node) {
				n.File(t, dir+"modules.dep", "kernel/net/netfilter/ipvs/ip_vs.ko.xz: kernel/net/netfilter/nf_conntrack.ko.xz")
			},
			want: "ip_vs: in /lib/modules/6.1.0-18-amd64 but not loaded; as root on the host: modprobe ip_vs",
		},
		"packaged without it": {
			prepare: func(t *testing.T, n node) {
				n.File(t, dir+"modules.dep", "kernel/net/netfilter/ipvs/ip_vs_rr.ko: kernel/net/netfilter/ipvs/ip_vs.ko")
			},
			want: "ip_vs: not in this kernel; on Ubuntu: apt install linux-modules-extra-6.1.0-18-amd64; " +
				"on Debian: the full linux-image package instead of a cloud one; " +
				"on RHEL and Fedora: dnf install kernel-modules-extra; then modprobe ip_vs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tc.prepare(t, n)
			if diff := cmp.Diff(tc.want, n.loader(t).Fix("ip_vs")); diff != "" {
				t.Errorf("fix (-want +got):\n%s", diff)
			}
		})
	}
}

func TestModuleFixWithoutRelease(t *testing.T) {
	n := newNode(t)
	if err := os.Remove(filepath.Join(n.Root, "proc/sys/kernel/osrelease")); err != nil {
		t.Fatal(err)
	}
	if got := n.loader(t).Fix("ip_vs"); !strings.Contains(got, "/lib/modules/$(uname -r)") {
		t.Errorf("fix %q, want the release left to the reader", got)
	}
}

func TestIPVS(t *testing.T) {
	for bits, want := range map[int]string{0: "ip_vs", 18: "ip_vs conn_tab_bits=18"} {
		if got := modules.IPVS(bits); got != want {
			t.Errorf("IPVS(%d) = %q, want %q", bits, got, want)
		}
	}
}
