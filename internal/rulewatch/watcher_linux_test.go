package rulewatch

import (
	"context"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// TestKernelNotifiesOfFlush: the watcher notices a flush by a notification of the kernel. Both poll
// intervals are an hour, so that no poll notices the flush.
func TestKernelNotifiesOfFlush(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs a network namespace of its own: %v", err)
	}
	if _, err := exec.LookPath("iptables-nft"); err != nil {
		t.Skipf("needs the tools of iptables: %v", err)
	}
	h, err := rules.New(zap.NewNop(), rules.Options{Backend: rules.NFT, Families: []rules.Family{rules.IPv4}, Owned: netfilter.Owned})
	if err != nil {
		t.Fatal(err)
	}
	tables, err := nftables.New(zap.NewNop(), nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Close()
	own := Track(h, tables)
	jumps := watchedJumps(own.Families())
	for _, j := range jumps {
		_ = exec.CommandContext(t.Context(), "iptables-nft", "-t", j.Table, "-N", j.Target).Run() // two jumps may lead to one
		tool(t, "-t", j.Table, "-A", j.Hook, "-j", j.Target)
	}
	looked, repaired := make(chan int, 100), make(chan struct{}, 100)
	w := NewWatcher(zap.NewNop(), own, func(context.Context) error { repaired <- struct{}{}; return nil })
	w.missing = func(ctx context.Context, keys []rules.JumpKey) ([]rules.JumpKey, error) {
		missing, err := own.missing(ctx, keys)
		looked <- len(missing)
		return missing, err
	}
	w.poll, w.safety = time.Hour, time.Hour
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // on a thread in another namespace
		defer close(done)
		w.Run(ctx)
	}()
	if n := poll.Receive(t, "the look at the beginning", looked); n != 0 {
		t.Fatalf("%d jumps are missing at the beginning", n)
	}
	nat := len(slices.DeleteFunc(slices.Clone(jumps), func(j rules.JumpKey) bool { return j.Table != "nat" }))
	tool(t, "-t", "nat", "-F")
	start := time.Now()
	if n := poll.Receive(t, "the look after the flush", looked); n != nat {
		t.Errorf("%d jumps are missing, want the %d of nat", n, nat)
	}
	poll.Receive(t, "the repair", repaired)
	t.Logf("noticed after %v", time.Since(start))
	stop()
	<-done
}

// tool runs iptables-nft.
func tool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "iptables-nft", args...).CombinedOutput(); err != nil {
		t.Fatalf("iptables-nft %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
