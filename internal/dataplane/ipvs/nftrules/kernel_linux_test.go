package nftrules_test

import (
	"errors"
	"runtime"
	"testing"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// openKernel is a handle in a network namespace of its own, which ends with the thread.
func openKernel(t *testing.T) *nft.Handle {
	t.Helper()
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNET)
	if errors.Is(err, unix.EPERM) {
		t.Skip("skipped: no permission to make a network namespace")
	}
	if err != nil {
		t.Fatal(err)
	}
	h, err := nft.New(zaptest.NewLogger(t), nft.Options{Timeout: poll.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	probe := nft.Pass{Tables: []nft.TableChange{{Op: nft.Add, Family: nft.IPv4}}}
	if err := h.Check(t.Context(), probe).Err(); errors.Is(err, nft.ErrUnsupported) {
		t.Skipf("skipped: no nf_tables here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestKernelKeepsContract(t *testing.T) {
	for name, check := range contract {
		t.Run(name, func(t *testing.T) { check(t, openKernel(t)) })
	}
}
