package sysctl_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

// The kernel itself, in a network namespace: timeouts are its own, to be set and
// given back; the maximum is the machine's on most kernels, and its refusal costs
// nothing. The maximum asked for is so low that the machine's hash table is large
// enough whatever happens.
func TestConntrackOfANamespace(t *testing.T) {
	if !nodefs.Own(t, unix.CLONE_NEWNET) {
		return
	}
	machine := node{nodefs.Node{Root: "/", Run: t.TempDir()}}
	timeouts := []string{netfilter + "tcp_timeout_established", netfilter + "udp_timeout"}
	var before []string
	for _, key := range timeouts {
		b, err := os.ReadFile(machine.Path(nodefs.SysctlFile(key)))
		if errors.Is(err, fs.ErrNotExist) {
			t.Skip("nf_conntrack is not loaded")
		}
		before = append(before, strings.TrimSpace(string(b)))
	}
	results := machine.handle(t).ApplyConntrack(t.Context(),
		sysctl.ConntrackOptions{MaxPerCore: 1, UDP: 47 * time.Second, TCPEstablished: 7777 * time.Second})
	if err := sysctl.Failure(results, sysctl.Wanted); errors.Is(err, unix.EROFS) {
		t.Skipf("sysctls of this machine cannot be set: %v", err)
	}
	for _, r := range results {
		switch {
		case r.Key == "nf_conntrack hashsize" && r.Outcome != sysctl.Right:
			t.Errorf("%s, want the machine's hash table left alone", r)
		case r.Key != netfilter+"max" && r.Outcome == sysctl.Refused:
			t.Errorf("%s, want at most the maximum refused", r)
		}
	}
	machine.WantSysctl(t, timeouts[0], "7777")
	machine.WantSysctl(t, timeouts[1], "47")
	machine.handle(t).Restore(t.Context())
	for i, key := range timeouts {
		machine.WantSysctl(t, key, before[i])
	}
}
