package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
)

// node is a tree with the sysctls of IPVS as a kernel begins with them.
func node(t *testing.T) (*kernel, string) {
	root := t.TempDir()
	for key, value := range map[string]string{
		"kernel/osrelease": "6.1.0", "net/ipv4/ip_forward": "1",
		"net/ipv4/vs/conntrack": "0", "net/ipv4/vs/expire_nodest_conn": "0", "net/ipv4/vs/expire_quiescent_template": "0",
		"net/ipv4/conf/all/arp_ignore": "0", "net/ipv4/conf/all/arp_announce": "0",
	} {
		name := filepath.Join(root, "proc/sys", key)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &kernel{files: procfs.Files{Root: root}, sysctls: sysctl.New(zap.NewNop(), sysctl.Options{Files: procfs.Files{Root: root}, RunDir: t.TempDir()})}, root
}

func arp(t *testing.T, root string) string {
	var out []string
	for _, key := range []string{"arp_ignore", "arp_announce"} {
		text, err := os.ReadFile(filepath.Join(root, "proc/sys/net/ipv4/conf/all", key))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSpace(string(text)))
	}
	return strings.Join(out, " ")
}

// Strict ARP comes and goes with its setting; the next process puts back what one
// before it set.
func TestStrictARPFollowsItsSetting(t *testing.T) {
	k, root := node(t)
	off, on := config.Config{}, config.Config{VirtualServers: config.VirtualServers{StrictARP: true}}
	for _, step := range []struct {
		name string
		do   func() map[string]error
		want string
	}{
		{"start without", func() map[string]error { return err(k.tune(t.Context(), off)) }, "0 0"},
		{"on", func() map[string]error { return k.retune(t.Context(), off, on) }, "1 2"},
		{"off", func() map[string]error { return k.retune(t.Context(), on, off) }, "0 0"},
		{"start with", func() map[string]error { return err(k.tune(t.Context(), on)) }, "1 2"},
		{"start without, again", func() map[string]error { return err(k.tune(t.Context(), off)) }, "0 0"},
	} {
		if refused := step.do(); len(refused) > 0 {
			t.Errorf("%s: refused %v", step.name, refused)
		}
		if got := arp(t, root); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}

// conn_reuse_mode follows the release; one that cannot be read changes nothing, and is no reason not to start.
func TestReuseModeFollowsTheRelease(t *testing.T) {
	for release, want := range map[string]string{"4.18.0-553.el8_10.x86_64": "0", "5.8.18-generic": "0", "5.9.0": "1", "6.1.0": "1", "": "1"} {
		k, root := node(t)
		mode := filepath.Join(root, "proc/sys/net/ipv4/vs/conn_reuse_mode")
		for name, value := range map[string]string{mode: "1", filepath.Join(root, "proc/sys/kernel/osrelease"): release} {
			if err := os.WriteFile(name, []byte(value+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.tune(t.Context(), config.Config{}); err != nil {
			t.Errorf("release %q: %v", release, err)
		}
		if got, err := os.ReadFile(mode); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("release %q: conn_reuse_mode is %q, %v; want %s", release, got, err, want)
		}
	}
}

func err(err error) map[string]error {
	if err == nil {
		return nil
	}
	return map[string]error{"tune": err}
}

// A setting that the node refuses is not reported as in use.
func TestRefusedSettingsAreNamed(t *testing.T) {
	k, root := node(t)
	key := filepath.Join(root, "proc/sys/net/ipv4/conf/all/arp_ignore")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(key, 0o755); err != nil { // cannot be read, by root neither
		t.Fatal(err)
	}
	refused := k.retune(t.Context(), config.Config{}, config.Config{VirtualServers: config.VirtualServers{StrictARP: true, Timeouts: config.Timeouts{TCP: time.Minute}}})
	if refused["ipvs.strictARP"] == nil || len(refused) != 1 {
		t.Errorf("refused %v", refused)
	}
}

// A sysctl that is required and refused is told with its name and the remedy, once each time
// that it begins.
func TestRefusedSysctlIsTold(t *testing.T) {
	k, root := node(t)
	var told []string
	k.sysctlRefused = func(why error) { told = append(told, why.Error()) }
	key := filepath.Join(root, "proc/sys/net/ipv4/vs/conntrack")
	spoil := func() {
		if err := errors.Join(os.Remove(key), os.Mkdir(key, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	mend := func() {
		if err := errors.Join(os.Remove(key), os.WriteFile(key, []byte("0\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []struct {
		change func()
		fails  bool
		told   int
	}{{spoil, true, 1}, {func() {}, true, 1}, {mend, false, 1}, {spoil, true, 2}} {
		step.change()
		if err := k.tune(t.Context(), config.Config{}); (err != nil) != step.fails || len(told) != step.told {
			t.Errorf("step %d: %v, told %q; want an error %t, told %d times", i, err, told, step.fails, step.told)
		}
	}
	if want := "remedy: on the host: sysctl -w net.ipv4.vs.conntrack=1; or mount"; !strings.Contains(told[0], want) {
		t.Errorf("told %q, want %q", told[0], want)
	}
}
