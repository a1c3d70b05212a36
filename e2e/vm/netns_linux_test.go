package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// needNamespaces skips where the user may not make namespaces, as in most containers.
func needNamespaces(t *testing.T) {
	t.Helper()
	status, err := RunInNetns(t.Context(), Options{Command: []string{"true"}})
	if err != nil || status != 0 {
		t.Skipf("no namespaces for this user: status %d, %v", status, err)
	}
}

// inNetns runs a shell script and returns its status and output.
func inNetns(t *testing.T, o Options, script string) (int, string) {
	t.Helper()
	var out strings.Builder
	o.Command, o.Stdout = []string{"sh", "-c", script}, &out
	status, err := RunInNetns(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return status, out.String()
}

func TestNetnsIsARouterNode(t *testing.T) {
	needNamespaces(t)
	_, got := inNetns(t, Options{Env: []string{"A=b c"}}, `
		cat /sys/class/net/lo/flags /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/all/rp_filter
		ls /sys/class/net | grep -vc '^lo$'
		echo "$KUBE_IPVS_WHERE $A"`)
	if diff := cmp.Diff("0x9\n1\n0\n0\nnetns b c\n", got); diff != "" {
		t.Errorf("inside (-want +got):\n%s", diff)
	}
}

func TestNetnsStatus(t *testing.T) {
	needNamespaces(t)
	tests := []struct {
		script string
		want   int
	}{
		{"true", 0},
		{"exit 7", 7},
		{"exit 125", 125},
		{"kill -KILL $$", 128 + 9},
		{"exec /no/such/program", 127},
	}
	for _, tt := range tests {
		t.Run(tt.script, func(t *testing.T) {
			if got, out := inNetns(t, Options{}, tt.script); got != tt.want {
				t.Errorf("status %d, want %d: %s", got, tt.want, out)
			}
		})
	}
}

func TestNetnsCommandThatDoesNotExist(t *testing.T) {
	needNamespaces(t)
	var out strings.Builder
	status, err := RunInNetns(t.Context(), Options{Command: []string{"/no/such/program"}, Stdout: &out})
	if status != 127 || err != nil || !strings.Contains(out.String(), "/no/such/program") {
		t.Errorf("status %d, %v, output %q, want 127 and the program's name", status, err, out.String())
	}
}

func TestNetnsSharesAndCopies(t *testing.T) {
	needNamespaces(t)
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"in/a": "A", "tool": "T", "out/.keep": ""})
	o := Options{
		Shares: []Share{{Host: dir + "/in", Guest: "/run/in"}, {Host: dir + "/out", Guest: "/run/out", Writable: true}},
		Copies: []Copy{{Host: dir + "/tool", Guest: "/run/bin/tool"}},
	}
	_, got := inNetns(t, o, `cat /run/in/a /run/bin/tool; echo
		(echo x >/run/in/b) 2>/dev/null || echo refused
		echo result >/run/out/c; touch /run/private`)
	if got != "AT\nrefused\n" {
		t.Errorf("output %q", got)
	}
	if text, err := os.ReadFile(dir + "/out/c"); err != nil || string(text) != "result\n" {
		t.Errorf("the result arrived as %q, %v", text, err)
	}
	if exists("/run/private") || exists("/run/in") {
		t.Error("the run left files in the host's /run")
	}
}

func TestNetnsFlavourOfIPTables(t *testing.T) {
	needNamespaces(t)
	for _, flavour := range []string{"nft", "legacy"} {
		program, ok := lookTool("xtables-" + flavour + "-multi")
		if !ok {
			t.Skipf("no iptables %s on this machine", flavour)
		}
		_, got := inNetns(t, Options{IPTables: flavour}, "readlink $(command -v iptables) $(command -v ip6tables-restore)")
		if want := program + "\n" + program + "\n"; got != want {
			t.Errorf("%s: plain names lead to %q, want %q", flavour, got, want)
		}
	}
}

func TestNetnsLeavesNoProcess(t *testing.T) {
	needNamespaces(t)
	tests := []struct {
		name   string
		script string
		run    func(ctx context.Context, cancel context.CancelFunc, out *signalWriter)
	}{
		{name: "left in the background", script: "sleep 4321 & echo started", run: func(context.Context, context.CancelFunc, *signalWriter) {}},
		{name: "cancelled", script: "sleep 4321 & echo started; wait", run: func(_ context.Context, cancel context.CancelFunc, out *signalWriter) {
			<-out.written
			cancel()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &signalWriter{written: make(chan struct{})}
			go tt.run(ctx, cancel, out)
			marker := "KUBE_IPVS_TEST_MARKER=" + strconv.Itoa(os.Getpid()) + tt.name
			_, _ = RunInNetns(ctx, Options{Command: []string{"sh", "-c", tt.script}, Env: []string{marker}, Stdout: out})
			awaitNone(t, func() []int { return processesWith(marker) })
		})
	}
}

// signalWriter tells when the first output arrives.
type signalWriter struct {
	written chan struct{}
	text    strings.Builder
}

func (w *signalWriter) Write(p []byte) (int, error) {
	if w.text.Len() == 0 && len(p) > 0 {
		close(w.written)
	}
	return w.text.Write(p)
}

// processesWith lists the processes that have a marker in their environment or command line.
func processesWith(marker string) []int {
	var found []int
	files, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range files {
		environ, _ := os.ReadFile(dir + "/environ")
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil && pid != os.Getpid() && strings.Contains(string(environ)+string(cmdline), marker) {
			found = append(found, pid)
		}
	}
	return found
}

// awaitNone polls until list is empty. The kernel ends processes asynchronously, so the first look may be too early.
func awaitNone(t *testing.T, list func() []int) {
	t.Helper()
	var left []int
	t.Cleanup(func() {
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
	poll.Until(t, "the end of all processes", func() bool {
		left = list()
		return len(left) == 0
	}, func() string { return fmt.Sprintf("processes %v are still there", left) })
}

func TestNetnsTimeout(t *testing.T) {
	needNamespaces(t)
	status, err := RunInNetns(t.Context(), Options{Command: []string{"sleep", "4321"}, Timeout: 100 * time.Millisecond})
	if status != StatusBroken || err == nil || !strings.Contains(err.Error(), "time-out of 100ms") {
		t.Errorf("status %d, error %v, want %d and the time-out", status, err, StatusBroken)
	}
}

func TestLocateGivesAReason(t *testing.T) {
	for _, need := range []Need{NeedIPVS, NeedIPTables} {
		where, reason := Locate(t.Context(), need)
		switch {
		case where == InNetns && reason == nil:
			t.Logf("%s: this host can", need)
		case where == InVM && reason != nil && reason.Error() != "":
			t.Logf("%s: this host cannot: %v", need, reason)
		default:
			t.Errorf("Locate(%s) = %q, %v: the VM needs a reason, a namespace none", need, where, reason)
		}
	}
}
