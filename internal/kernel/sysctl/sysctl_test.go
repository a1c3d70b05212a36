package sysctl_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

func TestIPVSSysctls(t *testing.T) {
	always := []string{"net.ipv4.vs.conntrack=1", "net.ipv4.vs.expire_nodest_conn=1",
		"net.ipv4.vs.expire_quiescent_template=1", "net.ipv4.ip_forward=1"}
	withReuse := append([]string{always[0], "net.ipv4.vs.conn_reuse_mode=0"}, always[1:]...)
	strict := append(append([]string(nil), always...), "net.ipv4.conf.all.arp_ignore=1", "net.ipv4.conf.all.arp_announce=2")
	for name, tc := range map[string]struct {
		opts sysctl.IPVSOptions
		want []string
	}{
		"4.0 has no such key":         {sysctl.IPVSOptions{Release: "4.0.9"}, always},
		"4.1 is the first":            {sysctl.IPVSOptions{Release: "4.1.0"}, withReuse},
		"5.8 is the last":             {sysctl.IPVSOptions{Release: "5.8.18-generic"}, withReuse},
		"5.9 is mended":               {sysctl.IPVSOptions{Release: "5.9.0"}, always},
		"an unknown kernel":           {sysctl.IPVSOptions{Release: "unknown"}, always},
		"strict ARP":                  {sysctl.IPVSOptions{Release: "6.1.0", StrictARP: true}, strict},
		"no release at all":           {sysctl.IPVSOptions{}, always},
		"a distribution's long name":  {sysctl.IPVSOptions{Release: "4.18.0-553.el8_10.x86_64"}, withReuse},
		"a release candidate, strict": {sysctl.IPVSOptions{Release: "6.12-rc3+", StrictARP: true}, strict},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range sysctl.IPVSSysctls(tc.opts) {
				got = append(got, s.String())
				if s.Why == "" {
					t.Errorf("%s has no reason", s)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("sysctls (-want +got):\n%s", diff)
			}
		})
	}
}

const key = "net.ipv4.ip_forward"

func forward(policy sysctl.Policy) []sysctl.Sysctl {
	return []sysctl.Sysctl{{Key: key, Value: "1", Why: "packets pass", Policy: policy}}
}

func TestApplyOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*testing.T, node)
		sysctl  sysctl.Sysctl
		want    string
	}{
		"right already": {
			prepare: func(t *testing.T, n node) { n.Sysctl(t, key, "1") },
			sysctl:  sysctl.Sysctl{Key: key, Value: "1"},
			want:    "net.ipv4.ip_forward=1: right",
		},
		"right but for blanks": {
			prepare: func(t *testing.T, n node) { n.Sysctl(t, "net.ipv4.ip_local_port_range", "32768\t60999") },
			sysctl:  sysctl.Sysctl{Key: "net.ipv4.ip_local_port_range", Value: "32768 60999"},
			want:    "net.ipv4.ip_local_port_range=32768 60999: right",
		},
		"wrong": {
			prepare: func(t *testing.T, n node) { n.Sysctl(t, key, "0") },
			sysctl:  sysctl.Sysctl{Key: key, Value: "1"},
			want:    "net.ipv4.ip_forward=1: changed (it was 0)",
		},
		"missing": {
			prepare: func(*testing.T, node) {},
			sysctl:  sysctl.Sysctl{Key: "net.ipv4.vs.conntrack", Value: "1", Policy: sysctl.Required},
			want:    "net.ipv4.vs.conntrack=1: missing",
		},
		"a dot in the name of a link": {
			prepare: func(t *testing.T, n node) { n.File(t, "proc/sys/net/ipv4/conf/eth0.7/arp_ignore", "0") },
			sysctl:  sysctl.Sysctl{Key: "net.ipv4.conf.eth0/7.arp_ignore", Value: "1"},
			want:    "net.ipv4.conf.eth0/7.arp_ignore=1: changed (it was 0)",
		},
		"a key that leads elsewhere": {
			prepare: func(*testing.T, node) {},
			sysctl:  sysctl.Sysctl{Key: "//.//.//.etc", Value: "1"},
			want:    `//.//.//.etc=1: refused: read sysctl //.//.//.etc: "//.//.//.etc" is not the key of a sysctl`,
		},
		"no key": {
			prepare: func(*testing.T, node) {},
			sysctl:  sysctl.Sysctl{Value: "1"},
			want:    `=1: refused: read sysctl : "" is not the key of a sysctl`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tc.prepare(t, n)
			results := n.handle(t).Apply(t.Context(), []sysctl.Sysctl{tc.sysctl})
			if len(results) != 1 {
				t.Fatalf("Apply returned %d results, want 1", len(results))
			}
			if diff := cmp.Diff(tc.want, results[0].String()); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if (results[0].Outcome == sysctl.Refused) != (results[0].Err != nil) {
				t.Errorf("outcome %s with error %v", results[0].Outcome, results[0].Err)
			}
		})
	}
}

func TestUnreadableKeyIsNotMissing(t *testing.T) {
	n := newNode(t)
	n.Block(t, key)
	for _, policy := range []sysctl.Policy{sysctl.Wanted, sysctl.Required} {
		results := n.handle(t).Apply(t.Context(), forward(policy))
		if results[0].Outcome != sysctl.Refused {
			t.Errorf("%s: %s, want refused", policy, results[0])
		}
		for _, asked := range []sysctl.Policy{sysctl.Wanted, sysctl.Required} {
			err := sysctl.Failure(results, asked)
			if (asked == policy) != (err != nil) {
				t.Errorf("Failure of %s keys where a %s one failed = %v", asked, policy, err)
			}
			if err != nil && !strings.Contains(err.Error(), key) {
				t.Errorf("error %q does not name the key", err)
			}
		}
	}
}

func TestApplyStopsAtEndOfContext(t *testing.T) {
	n := newNode(t)
	n.Sysctl(t, key, "0")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	results := n.handle(t).Apply(ctx, forward(sysctl.Required))
	if !errors.Is(results[0].Err, context.Canceled) {
		t.Errorf("result %s, want cancelled", results[0])
	}
	n.WantSysctl(t, key, "0")
}

func TestJournalRoundTrip(t *testing.T) {
	n := newNode(t)
	n.Sysctl(t, key, "0")
	n.Sysctl(t, "net.ipv4.vs.conntrack", "0")
	n.Sysctl(t, "net.ipv4.vs.expire_nodest_conn", "1")
	n.Sysctl(t, "net.ipv4.vs.expire_quiescent_template", "0")
	n.handle(t).Apply(t.Context(), sysctl.IPVSSysctls(sysctl.IPVSOptions{Release: "6.1"}))
	n.WantSysctl(t, key, "1")
	n.WantSysctl(t, "net.ipv4.vs.conntrack", "1")

	// An operator chooses another value for one of them.
	n.Sysctl(t, "net.ipv4.vs.expire_quiescent_template", "2")
	want := []string{
		leftForward,
		"net.ipv4.vs.conntrack=0: restored (it was 1)",
		"net.ipv4.vs.expire_quiescent_template=2: left (it was 0 before kube-ipvs)",
	}
	if diff := cmp.Diff(want, texts(n.handle(t).Restore(t.Context()))); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	n.WantSysctl(t, key, "1")
	n.WantSysctl(t, "net.ipv4.vs.conntrack", "0")
	n.WantSysctl(t, "net.ipv4.vs.expire_nodest_conn", "1")
	n.WantSysctl(t, "net.ipv4.vs.expire_quiescent_template", "2")
	wantFiles(t, n.Run)
	if again := n.handle(t).Restore(t.Context()); len(again) != 0 {
		t.Errorf("second Restore = %v, want nothing", again)
	}
}

func TestRestartKeepsFirstOldValue(t *testing.T) {
	n := newNode(t)
	const ignore = "net.ipv4.conf.all.arp_ignore"
	n.Sysctl(t, ignore, "8")
	for _, value := range []string{"1", "1", "2"} {
		n.handle(t).Apply(t.Context(), []sysctl.Sysctl{{Key: ignore, Value: value}})
		n.WantSysctl(t, ignore, value)
	}
	// Another program sets it, and the next process sets it again.
	n.Sysctl(t, ignore, "0")
	n.handle(t).Apply(t.Context(), []sysctl.Sysctl{{Key: ignore, Value: "2"}})
	n.handle(t).Restore(t.Context())
	n.WantSysctl(t, ignore, "8")
}

func TestRestoreKeepsWhatItCouldNotRestore(t *testing.T) {
	n := newNode(t)
	n.Sysctl(t, arpIgnore, "0")
	n.handle(t).Apply(t.Context(), []sysctl.Sysctl{{Key: arpIgnore, Value: "1"}})
	file := n.Path("proc/sys/net/ipv4/conf/all/arp_ignore")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.Block(t, arpIgnore)
	if got := n.handle(t).Restore(t.Context()); len(got) != 1 || got[0].Outcome != sysctl.Refused {
		t.Fatalf("Restore = %v, want refused", texts(got))
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.Sysctl(t, arpIgnore, "1")
	if got := n.handle(t).Restore(t.Context()); len(got) != 1 || got[0].Outcome != sysctl.Restored {
		t.Errorf("second Restore = %v, want restored", texts(got))
	}
	n.WantSysctl(t, arpIgnore, "0")
}

func TestRestoreForgetsMissingKeys(t *testing.T) {
	n := newNode(t)
	n.Sysctl(t, key, "0")
	n.handle(t).Apply(t.Context(), forward(sysctl.Required))
	if err := os.Remove(n.Path("proc/sys/net/ipv4/ip_forward")); err != nil {
		t.Fatal(err)
	}
	if got := n.handle(t).Restore(t.Context()); len(got) != 1 || got[0].Outcome != sysctl.Missing {
		t.Errorf("Restore = %v, want missing", texts(got))
	}
	wantFiles(t, n.Run)
}

func TestUnreadableJournalIsMovedAside(t *testing.T) {
	for name, content := range map[string]string{"broken": "{", "null": "null", "another shape": `["a"]`} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.Sysctl(t, key, "0")
			nodefs.WriteFile(t, filepath.Join(n.Run, "sysctls.json"), content, 0o644)
			results := n.handle(t).Apply(t.Context(), forward(sysctl.Required))
			if results[0].Outcome != sysctl.Changed || !strings.Contains(results[0].Note, "sysctls.json.bad") {
				t.Errorf("result %s, want changed with a note", results[0])
			}
			wantFiles(t, n.Run, "sysctls.json", "sysctls.json.bad")
			n.handle(t).RestoreKeys(t.Context(), key)
			n.WantSysctl(t, key, "0")
		})
	}
}

func TestJournalThatCannotBeWrittenIsNoObstacle(t *testing.T) {
	n := newNode(t)
	n.Sysctl(t, key, "0")
	// The parent of the run directory is a file.
	n.Run = filepath.Join(n.Root, "proc/sys/kernel/osrelease", "run")
	results := n.handle(t).Apply(t.Context(), forward(sysctl.Required))
	if results[0].Outcome != sysctl.Changed || !strings.Contains(results[0].Note, "cleanup will not restore it") {
		t.Errorf("result %s, want changed with a note", results[0])
	}
	n.WantSysctl(t, key, "1")
}

// TestNotesAreLogged: the notes that an operator needs before cleanup are in the log,
// also when no key has to be changed.
func TestNotesAreLogged(t *testing.T) {
	for name, tc := range map[string]struct {
		journal, have string
		prepare       func(*testing.T, *node)
		want          []string
	}{
		"a broken journal, nothing to change": {
			journal: "{", have: "1", prepare: func(*testing.T, *node) {},
			want: []string{"warn: journal of sysctls is unreadable: was moved"},
		},
		"a broken journal and a change": {
			journal: "{", have: "0", prepare: func(*testing.T, *node) {},
			want: []string{"warn: journal of sysctls is unreadable: was moved", "info: sysctl changed"},
		},
		"the agent cannot save the sysctls": {
			have: "0", prepare: func(t *testing.T, n *node) { n.DangleRun(t) },
			want: []string{"info: sysctl changed: cleanup will not restore it"},
		},
		"no journal can be read or written": {
			have: "0", prepare: func(_ *testing.T, n *node) { n.Run = n.Path("proc/sys/kernel/osrelease/run") },
			want: []string{"warn: journal of sysctls is unreadable: cannot be read and is kept",
				"info: sysctl changed: cannot be read and is kept: cleanup will not restore it"},
		},
		"nor can the key": {
			prepare: func(t *testing.T, n *node) {
				n.DangleRun(t)
				n.Ignore(t, key)
			},
			want: []string{"warn: sysctl refused: cleanup will not restore it"},
		},
		"all is well": {have: "0", prepare: func(*testing.T, *node) {}, want: []string{"info: sysctl changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.Sysctl(t, key, tc.have)
			if tc.journal != "" {
				nodefs.WriteFile(t, filepath.Join(n.Run, "sysctls.json"), tc.journal, 0o644)
			}
			tc.prepare(t, &n)
			handle, logged := n.observed()
			handle.Apply(t.Context(), forward(sysctl.Required))
			var got []string
			for _, e := range logged() {
				line := e.Level.String() + ": " + e.Message
				note, _ := e.ContextMap()["note"].(string)
				for _, part := range []string{"was moved", "cannot be read and is kept", "cleanup will not restore it"} {
					if strings.Contains(note, part) {
						line += ": " + part
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

// TestJournalThatCannotBeReadStays: a process without a file descriptor cannot read the journal, which proves nothing about its contents.
// Here a link that leads to itself refuses to be read.
func TestJournalThatCannotBeReadStays(t *testing.T) {
	n := newNode(t)
	n.Sysctl(t, key, "0")
	handle, logged := n.observed()
	handle.Apply(t.Context(), forward(sysctl.Required))
	path := filepath.Join(n.Run, "sysctls.json")
	steps := []func() error{
		func() error { return os.Rename(path, path+".whole") },
		func() error { return os.Symlink(path, path) },
		func() error {
			n.Sysctl(t, key, "0")
			for range 2 {
				if r := handle.Apply(t.Context(), forward(sysctl.Required))[0]; r.Outcome == sysctl.Refused {
					t.Errorf("result %s", r)
				}
				handle.RestoreKeys(t.Context(), key)
			}
			wantFiles(t, n.Run, "sysctls.json", "sysctls.json.whole")
			return nil
		},
		func() error { return os.Rename(path+".whole", path) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	handle.RestoreKeys(t.Context(), key)
	n.WantSysctl(t, key, "0")
	warnings := 0
	for _, e := range logged() {
		if e.Message == "journal of sysctls is unreadable" {
			warnings++
		}
	}
	if warnings != 1 {
		t.Errorf("%d warnings of the journal, want one", warnings)
	}
}

func texts(results []sysctl.Result) []string {
	var all []string
	for _, r := range results {
		all = append(all, r.String())
	}
	return all
}

func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("read %s: %v", dir, err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files in the run directory (-want +got):\n%s", diff)
	}
}
