package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// sloppy makes the sysctls of a node that IPVS picks up connections by, and returns a function that
// reads both.
func sloppy(t *testing.T, root, tcp, sctp string) (read func() string) {
	t.Helper()
	dir := filepath.Join(root, "proc/sys/net/ipv4/vs")
	for name, value := range map[string]string{"sloppy_tcp": tcp, "sloppy_sctp": sctp} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func() string {
		var out []string
		for _, name := range []string{"sloppy_tcp", "sloppy_sctp"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, strings.TrimSpace(string(text)))
		}
		return strings.Join(out, " ")
	}
}

// The sysctls are set while Services need them, set again where another program changes them, and
// get their old values back, also from a process that did not set them.
func TestPickupSetsAndRestores(t *testing.T) {
	k, root := node(t)
	read := sloppy(t, root, "0", "0")
	want := func(when, values string, states map[string]bool) {
		t.Helper()
		if got := read(); got != values {
			t.Errorf("%s: sloppy_tcp and sloppy_sctp are %s, want %s", when, got, values)
		}
		if diff := cmp.Diff(states, k.pickup.states()); diff != "" {
			t.Errorf("%s: states (-want +got):\n%s", when, diff)
		}
	}
	want("at first", "0 0", map[string]bool{})
	p := pickupOf{k}
	p.Want(t.Context(), []model.Protocol{model.TCP, model.SCTP})
	want("both", "1 1", map[string]bool{"tcp": true, "sctp": true})
	sloppy(t, root, "0", "1")
	if err := k.keepTuned(t.Context(), config.Config{}); err != nil {
		t.Fatal(err)
	}
	want("changed by another program", "1 1", map[string]bool{"tcp": true, "sctp": true})
	p.Want(t.Context(), []model.Protocol{model.TCP})
	want("TCP alone", "1 0", map[string]bool{"tcp": true})

	k = &kernel{files: k.files, sysctls: k.sysctls} // the next process
	if err := k.tune(t.Context(), config.Config{}); err != nil {
		t.Fatal(err)
	}
	want("another process, which knows no Service", "1 0", map[string]bool{})
	pickupOf{k}.Want(t.Context(), nil)
	want("no Service needs it", "0 0", map[string]bool{})
}

// A value that the operator set stays.
func TestPickupLeavesTheOperatorsValue(t *testing.T) {
	k, root := node(t)
	read := sloppy(t, root, "1", "0")
	p := pickupOf{k}
	p.Want(t.Context(), []model.Protocol{model.TCP})
	p.Want(t.Context(), nil)
	if got := read(); got != "1 0" {
		t.Errorf("sloppy_tcp and sloppy_sctp are %s, want 1 0", got)
	}
}

// A sysctl that the kernel lacks or refuses is shown as not in force, and does not end the start.
func TestPickupRefused(t *testing.T) {
	k, root := node(t)
	p := pickupOf{k}
	p.Want(t.Context(), []model.Protocol{model.TCP})
	if k.pickup.states()["tcp"] || p.InForce(model.TCP) {
		t.Error("a sysctl that is missing is in force")
	}
	if err := os.Mkdir(filepath.Join(root, "proc/sys/net/ipv4/vs/sloppy_tcp"), 0o700); err != nil { // cannot be read
		t.Fatal(err)
	}
	if err := k.keepTuned(t.Context(), config.Config{}); err != nil {
		t.Errorf("a wanted sysctl that is refused fails the start: %v", err)
	}
	if p.InForce(model.TCP) {
		t.Error("a sysctl that is refused is in force")
	}
}
