package sysctl_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
)

const (
	arpIgnore   = "net.ipv4.conf.all.arp_ignore"
	arpAnnounce = "net.ipv4.conf.all.arp_announce"
)

// leftForward is the note of cleanup about forwarding, which pods may need by then.
const leftForward = key + "=1: left (it was 0 before kube-ipvs); pods and other programs may need forwarding"

// strict applies all sysctls with strict ARP to a node where those of strict ARP
// and one other are wrong.
func (n node) strict(t *testing.T) {
	t.Helper()
	n.Sysctl(t, key, "0")
	n.Sysctl(t, arpIgnore, "0")
	n.Sysctl(t, arpAnnounce, "1")
	n.handle(t).Apply(t.Context(), sysctl.IPVSSysctls(sysctl.IPVSOptions{Release: "6.1", StrictARP: true}))
	n.WantSysctl(t, arpIgnore, "1")
	n.WantSysctl(t, arpAnnounce, "2")
}

func TestRestoreKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*testing.T, node)
		keys   []string
		want   []string
		rest   []string
	}{
		"strict ARP switched off": {
			keys: []string{arpIgnore, arpAnnounce},
			want: []string{arpAnnounce + "=1: restored (it was 2)", arpIgnore + "=0: restored (it was 1)"},
			rest: []string{leftForward},
		},
		"one that another program has changed": {
			change: func(t *testing.T, n node) { n.Sysctl(t, arpIgnore, "8") },
			keys:   []string{arpIgnore},
			want:   []string{arpIgnore + "=8: left (it was 0 before kube-ipvs)"},
			rest:   []string{arpAnnounce + "=1: restored (it was 2)", leftForward},
		},
		"one that was never changed": {
			keys: []string{"net.ipv4.vs.conntrack"},
			rest: []string{arpAnnounce + "=1: restored (it was 2)", arpIgnore + "=0: restored (it was 1)",
				leftForward},
		},
		"the last ones": {
			keys: []string{key, arpIgnore, arpAnnounce},
			want: []string{arpAnnounce + "=1: restored (it was 2)", arpIgnore + "=0: restored (it was 1)",
				key + "=0: restored (it was 1)"},
		},
		"none": {
			rest: []string{arpAnnounce + "=1: restored (it was 2)", arpIgnore + "=0: restored (it was 1)",
				leftForward},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.strict(t)
			if tc.change != nil {
				tc.change(t, n)
			}
			if diff := cmp.Diff(tc.want, texts(n.handle(t).RestoreKeys(t.Context(), tc.keys...))); diff != "" {
				t.Errorf("restored (-want +got):\n%s", diff)
			}
			if len(tc.rest) == 0 {
				wantFiles(t, n.Run)
			}
			// Other keys are left to cleanup.
			if diff := cmp.Diff(tc.rest, texts(n.handle(t).Restore(t.Context()))); diff != "" {
				t.Errorf("restored by cleanup (-want +got):\n%s", diff)
			}
		})
	}
}

// Switched on, off and on again: cleanup restores the values before the first time.
func TestRestoreKeysAndApplyAgain(t *testing.T) {
	n := newNode(t)
	n.strict(t)
	n.handle(t).RestoreKeys(t.Context(), arpIgnore, arpAnnounce)
	n.WantSysctl(t, arpIgnore, "0")
	n.WantSysctl(t, arpAnnounce, "1")
	n.WantSysctl(t, key, "1")
	n.Sysctl(t, arpIgnore, "2")
	n.handle(t).Apply(t.Context(), sysctl.IPVSSysctls(sysctl.IPVSOptions{Release: "6.1", StrictARP: true}))
	n.WantSysctl(t, arpIgnore, "1")
	n.handle(t).Restore(t.Context())
	n.WantSysctl(t, arpIgnore, "2")
	n.WantSysctl(t, arpAnnounce, "1")
}

func TestRestoreKeysKeepsWhatItCouldNotRestore(t *testing.T) {
	n := newNode(t)
	n.strict(t)
	handle := n.handle(t)
	n.Remove(t, "proc/sys/net/ipv4/conf/all/arp_announce")
	n.Block(t, arpAnnounce)
	if got := handle.RestoreKeys(t.Context(), arpAnnounce); len(got) != 1 || got[0].Outcome != sysctl.Refused {
		t.Fatalf("RestoreKeys = %v, want refused", texts(got))
	}
	n.Remove(t, "proc/sys/net/ipv4/conf/all/arp_announce")
	n.Sysctl(t, arpAnnounce, "2")
	want := []string{arpAnnounce + "=1: restored (it was 2)"}
	if diff := cmp.Diff(want, texts(handle.RestoreKeys(t.Context(), arpAnnounce))); diff != "" {
		t.Errorf("second try (-want +got):\n%s", diff)
	}
}
