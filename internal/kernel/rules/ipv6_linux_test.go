package rules_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
)

const (
	ifInet6 = "proc/thread-self/net/if_inet6"
	conf6   = "proc/sys/net/ipv6/conf/"
)

// fakeRoot makes files of the kernel with the given contents.
func fakeRoot(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// open6 returns the families of a handle and why any was left out.
func open6(t *testing.T, opts rules.Options) (families []rules.Family, reasons []string) {
	t.Helper()
	core, logs := observer.New(zap.WarnLevel)
	opts.Owned = rulestest.Owned
	h, err := rules.New(zap.New(core), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range logs.FilterMessage("IP family is not used").All() {
		reasons = append(reasons, e.ContextMap()["error"].(string))
	}
	return h.Families(), reasons
}

var (
	onlyIPv4 = []rules.Family{rules.IPv4}
	both     = []rules.Family{rules.IPv4, rules.IPv6}
)

func TestIPv6SwitchedOff(t *testing.T) {
	for _, tc := range []struct {
		name   string
		files  map[string]string
		link   string
		want   []rules.Family
		reason string
	}{
		{"on", map[string]string{ifInet6: "", conf6 + "all/disable_ipv6": "0", conf6 + "default/disable_ipv6": "0"}, "", both, ""},
		{"a kernel that does not say", map[string]string{ifInet6: ""}, "", both, ""},
		{"booted without", map[string]string{conf6 + "all/disable_ipv6": "0"}, "", onlyIPv4, "IPv6 is not in the running kernel"},
		{"for all links", map[string]string{ifInet6: "", conf6 + "all/disable_ipv6": "1", conf6 + "default/disable_ipv6": "1"}, "",
			onlyIPv4, "net.ipv6.conf.all.disable_ipv6=1"},
		{"for links to come", map[string]string{ifInet6: "", conf6 + "all/disable_ipv6": "0", conf6 + "default/disable_ipv6": "1"}, "",
			onlyIPv4, "net.ipv6.conf.default.disable_ipv6=1"},
		{"the link is there and has it", map[string]string{ifInet6: "", conf6 + "all/disable_ipv6": "1",
			conf6 + "default/disable_ipv6": "1", conf6 + "kube-ipvs0/disable_ipv6": "0"}, "", both, ""},
		{"the link is there without it", map[string]string{ifInet6: "", conf6 + "all/disable_ipv6": "0",
			conf6 + "default/disable_ipv6": "0", conf6 + "kube-ipvs0/disable_ipv6": "1"}, "",
			onlyIPv4, "net.ipv6.conf.kube-ipvs0.disable_ipv6=1"},
		{"another link is nothing to us", map[string]string{ifInet6: "", conf6 + "eth0/disable_ipv6": "1"}, "", both, ""},
		{"a link of the caller's choice", map[string]string{ifInet6: "", conf6 + "vips0/disable_ipv6": "1",
			conf6 + "kube-ipvs0/disable_ipv6": "0"}, "vips0", onlyIPv4, "net.ipv6.conf.vips0.disable_ipv6=1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tools := ipv4Scripts("", "")
			for _, name := range []string{"ip6tables", "ip6tables-save", "ip6tables-restore"} {
				tools[name] = ""
			}
			scripts(t, tools)
			families, reasons := open6(t, rules.Options{Root: fakeRoot(t, tc.files), Link: tc.link})
			if diff := cmp.Diff(tc.want, families); diff != "" {
				t.Errorf("families (-want +got):\n%s", diff)
			}
			var want []string
			if tc.reason != "" {
				want = []string{tc.reason + ": " + rules.ErrUnsupported.Error()}
			}
			if diff := cmp.Diff(want, reasons); diff != "" {
				t.Errorf("reasons in the log (-want +got):\n%s", diff)
			}
		})
	}
}

// ip6tables works where IPv6 is switched off, so the kernel has to be asked.
func TestKernelWithIPv6SwitchedOff(t *testing.T) {
	namespace(t)
	needBackend(t, rules.NFT)
	opts := rules.Options{Backend: rules.NFT}
	if families, reasons := open6(t, opts); !cmp.Equal(families, both) {
		t.Skipf("no IPv6 on this machine: %v", reasons)
	}
	for _, step := range []struct {
		name, do string
		want     []rules.Family
	}{
		{"off for all", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6", onlyIPv4},
		{"the link inherits it", "ip link add kube-ipvs0 type bridge", onlyIPv4},
		{"on for the link", "echo 0 > /proc/sys/net/ipv6/conf/kube-ipvs0/disable_ipv6", both},
		{"the link is gone", "ip link del kube-ipvs0", onlyIPv4},
		{"on for all", "echo 0 > /proc/sys/net/ipv6/conf/all/disable_ipv6", both},
	} {
		tool(t, "", "sh", "-c", step.do)
		families, reasons := open6(t, opts)
		if diff := cmp.Diff(step.want, families); diff != "" {
			t.Errorf("%s: families (-want +got):\n%sleft out for %v", step.name, diff, reasons)
		}
	}
}
