package main

import (
	"context"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// The sentry notices a flush by the tools because the kernel reports it. Both poll periods
// are an hour, so that no poll notices the flush.
func TestKernelTellsOfFlush(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs a network namespace of its own: %v", err)
	}
	if _, err := exec.LookPath("iptables-nft"); err != nil {
		t.Skipf("needs the tools of iptables: %v", err)
	}
	k := kernel{}
	var err error
	if k.rules, err = rules.New(zap.NewNop(), rules.Options{Backend: rules.NFT, Families: []rules.Family{rules.IPv4}, Owned: ipvs.OwnedChain}); err != nil {
		t.Fatal(err)
	}
	if k.tables, err = nftables.New(zap.NewNop(), nftables.Options{}); err != nil {
		t.Fatal(err)
	}
	defer k.tables.Close()
	jumps := sentinels(k.rules.Families())
	for _, j := range jumps {
		_ = exec.CommandContext(t.Context(), "iptables-nft", "-t", j.Table, "-N", j.Target).Run() // two jumps may lead to one
		tool(t, "-t", j.Table, "-A", j.Hook, "-j", j.Target)
	}
	s := newSentry(zap.NewNop(), &ownWrites{Handle: k.rules, sign: k.rulesSign}, jumps)
	looked, mended := make(chan int, 100), make(chan struct{}, 100)
	s.missing = func(ctx context.Context, keys []rules.JumpKey) ([]rules.JumpKey, error) {
		missing, err := k.missing(ctx, keys)
		looked <- len(missing)
		return missing, err
	}
	s.repair = func(context.Context) error { mended <- struct{}{}; return nil }
	s.watch, s.poll, s.belt = k.tables.Watch, time.Hour, time.Hour
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // on a thread in another namespace
		defer close(done)
		s.run(ctx)
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
	poll.Receive(t, "the repair", mended)
	t.Logf("noticed after %v", time.Since(start))
	stop()
	<-done
}
